// Sums an fp32 array over the ranks of a group in the form of a codec, with error feedback: what a rank loses by
// encoding is added to what it encodes the next time.
//   in blocks  Every rank encodes its terms, part by part. An all-to-all gives part r of all ranks to rank r, which
//              adds them in fp32, in the order of ranks, and encodes the sum. An all-gather gives the sums to all.
//   top-k      An all-gather gives the (value, index) lists of all ranks to all. Each adds them in the order of ranks,
//              so an element that several lists have gets the sum of these.
// kernels/encoded_parts.h has the bytes. All ranks get the same bits, in every run. A NaN or an infinity of any rank
// leaves one on all ranks.
// Source: Seide et al. 2014 (error feedback); Karimireddy et al. 2019, arXiv:1901.09847; Lin et al. 2018,
// arXiv:1712.01887.   Threads: one at a time.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "herd/base/ids.h"
#include "herd/comm/communicator.h"
#include "herd/kernels/encoded_parts.h"
#include "herd/kernels/error_feedback.h"

namespace herd::comm {

class EncodedSum {
 public:
  // Memory that the caller owns, of the sizes that `parts` states; it must outlive the sum.
  struct Memory {
    std::span<float> residual;    // residual_elements(); zeros at first, and kept from sum to sum
    std::span<uint8_t> message;   // message_bytes(); none for top-k, whose list lies among the incoming ones
    std::span<uint8_t> incoming;  // incoming_bytes()
    std::span<float> exact;       // the exact elements
  };
  // `exact` are the ranges that are summed in fp32, ascending and disjoint.
  EncodedSum(const kernels::EncodedParts& parts, std::vector<kernels::ElementRange> exact, Rank rank, Memory memory);

  kernels::EncodingLoss encode(std::span<const float> terms);
  // Collective; returns when it is done.
  void exchange(Communicator& comm, const OpOptions& options = {});
  // The same, in the background from where this rank has summed its part (top-k: at once): gathers go on a group of
  // their own, beside the terms of the next sum. Until the works are done nothing else may use this sum or its memory.
  [[nodiscard]] std::vector<Work> start_exchange(Communicator& terms, Communicator& gathers,
                                                 const OpOptions& options = {});
  void decode(std::span<float> sums) const;

 private:
  std::span<uint8_t> part_of_message(int rank) const;  // of top-k: this rank's list
  Work start_exchange_of_parts(Communicator& terms, Communicator& gathers, const OpOptions& options);

  kernels::EncodedParts parts_;
  std::vector<kernels::ElementRange> exact_;
  Rank rank_;
  Memory memory_;
};

// Does all three with memory of its own, and without feedback of errors. Replaces `values` by their sum over the ranks.
void all_reduce_encoded(Communicator& comm, std::span<float> values, const kernels::CodecSettings& codec,
                        const OpOptions& options = {});

}  // namespace herd::comm
