// Says how an array of m elements is cut and how many bytes it takes where n ranks sum it in the form of a codec
// (comm/encoded_sum.h). E(x) are the codec's bytes for x elements.
//   in blocks  n parts of whole blocks, as equal as they can be; rank r adds part r of all ranks.
//              Each rank sends the sum of E(part) over the other parts, then n-1 times E(own part): with equal parts
//              2(n-1) E(m/n).
//   top-k      one list of all elements, which every rank sends to all others: (n-1) 8k. That is less than a ring of
//              fp32 sends, 2(n-1)/n 4m, where k/m < 1/n.
// Exact elements are left out of the codec's error, and summed in fp32 beside it: 4 bytes each.
// Threads: pure.
#pragma once

#include <cstdint>

#include "herd/kernels/codec.h"
#include "herd/kernels/element_range.h"

namespace herd::kernels {

struct EncodedParts {
  CodecSettings codec;
  int64_t elements = 0;
  int num_ranks = 1;

  bool is_sparse() const { return codec.kind == CodecKind::kTopK; }
  ElementRange part(int rank) const;  // all elements for top-k
  int64_t part_bytes(int rank) const;
  int64_t message_bytes() const;   // what a rank encodes: all parts, or its list
  int64_t incoming_bytes() const;  // what this rank gets of all ranks, its own included: its part, or the lists
  int64_t sent_bytes(int rank) const;
  // Errors that a rank keeps: of what it encodes, and in blocks also of the sums that it encodes.
  int64_t residual_elements() const { return elements + (is_sparse() ? 0 : largest_part()); }
  int64_t largest_part() const { return part(0).size(); }
};

}  // namespace herd::kernels
