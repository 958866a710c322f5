#include "herd/comm/encoded_sum.h"

#include <algorithm>

#include "herd/base/check.h"

namespace herd::comm {
namespace {

using kernels::ElementRange;

std::byte* bytes_of(std::span<uint8_t> memory) { return reinterpret_cast<std::byte*>(memory.data()); }

}  // namespace

EncodedSum::EncodedSum(const kernels::EncodedParts& parts, std::vector<ElementRange> exact, Rank rank, Memory memory)
    : parts_(parts), exact_(std::move(exact)), rank_(rank), memory_(memory) {
  const auto fits = [](const auto& span, int64_t size) { return static_cast<int64_t>(span.size()) == size; };
  int64_t num_exact = 0;
  for (const ElementRange& range : exact_) num_exact += range.size();
  HERD_CHECK(fits(memory_.residual, parts_.residual_elements()) &&
                 fits(memory_.message, parts_.is_sparse() ? 0 : parts_.message_bytes()) &&
                 fits(memory_.incoming, parts_.incoming_bytes()) && fits(memory_.exact, num_exact),
             "memory of an encoded sum");
}

std::span<uint8_t> EncodedSum::part_of_message(int rank) const {
  const auto list_bytes = static_cast<size_t>(parts_.part_bytes(0));
  if (parts_.is_sparse()) return memory_.incoming.subspan(static_cast<size_t>(rank_) * list_bytes, list_bytes);
  size_t begin = 0;
  for (int earlier = 0; earlier < rank; ++earlier) begin += static_cast<size_t>(parts_.part_bytes(earlier));
  return memory_.message.subspan(begin, static_cast<size_t>(parts_.part_bytes(rank)));
}

kernels::EncodingLoss EncodedSum::encode(std::span<const float> terms) {
  float* exact = memory_.exact.data();
  for (const ElementRange& range : exact_)
    exact = std::copy(terms.begin() + range.begin, terms.begin() + range.end, exact);
  std::vector<kernels::EncodedPart> parts;
  for (int rank = 0; rank < (parts_.is_sparse() ? 1 : parts_.num_ranks); ++rank)
    parts.push_back({parts_.part(rank), bytes_of(part_of_message(rank))});
  return kernels::encode_with_feedback(parts_.codec, terms, exact_, parts,
                                       memory_.residual.first(static_cast<size_t>(parts_.elements)));
}

std::vector<Work> EncodedSum::start_exchange(Communicator& terms, Communicator& gathers, const OpOptions& options) {
  std::vector<Work> works;
  if (!memory_.exact.empty()) works.push_back(terms.all_reduce_async(memory_.exact, options));
  works.push_back(parts_.is_sparse() ? gathers.all_gather_async(part_of_message(rank_), memory_.incoming, options)
                                     : start_exchange_of_parts(terms, gathers, options));
  return works;
}

void EncodedSum::exchange(Communicator& comm, const OpOptions& options) {
  for (Work& work : start_exchange(comm, comm, options)) work.wait();
}

// Sums this rank's part in the residual of sums: what was lost of the last sum is in it already.
Work EncodedSum::start_exchange_of_parts(Communicator& terms, Communicator& gathers, const OpOptions& options) {
  const auto n = static_cast<size_t>(parts_.num_ranks);
  std::vector<int64_t> sizes;
  for (int rank = 0; rank < parts_.num_ranks; ++rank) sizes.push_back(parts_.part_bytes(rank));
  std::vector<int64_t> counts;
  for (size_t from = 0; from < n; ++from) counts.insert(counts.end(), sizes.begin(), sizes.end());
  const auto own_bytes = static_cast<size_t>(parts_.part_bytes(rank_));
  const std::span<uint8_t> incoming = memory_.incoming.first(n * own_bytes);
  OpOptions all_to_all = options, all_gather = options;
  all_to_all.counts = counts;
  all_gather.counts = sizes;
  terms.all_to_all(memory_.message, incoming, all_to_all);

  const int64_t size = parts_.part(rank_).size();
  float* sum = memory_.residual.data() + parts_.elements;
  for (size_t from = 0; from < n; ++from)
    kernels::decode_add(parts_.codec, bytes_of(incoming.subspan(from * own_bytes, own_bytes)), size, 1, sum);
  const std::span<uint8_t> encoded = incoming.first(own_bytes);
  kernels::encode(parts_.codec, sum, size, bytes_of(encoded));
  kernels::decode_add(parts_.codec, bytes_of(encoded), size, -1, sum);
  return gathers.all_gather_async(encoded, memory_.message, all_gather);
}

void EncodedSum::decode(std::span<float> sums) const {
  if (parts_.is_sparse()) {
    std::fill(sums.begin(), sums.end(), 0.0f);
    const auto list_bytes = static_cast<size_t>(parts_.part_bytes(0));
    for (size_t from = 0; from < static_cast<size_t>(parts_.num_ranks); ++from)
      kernels::decode_add(parts_.codec, bytes_of(memory_.incoming.subspan(from * list_bytes, list_bytes)),
                          parts_.elements, 1, sums.data());
  } else {
    for (int rank = 0; rank < parts_.num_ranks; ++rank) {
      const ElementRange part = parts_.part(rank);
      kernels::decode(parts_.codec, bytes_of(part_of_message(rank)), part.size(), sums.data() + part.begin);
    }
  }
  const float* exact = memory_.exact.data();
  for (const ElementRange& range : exact_) {
    std::copy_n(exact, range.size(), sums.begin() + range.begin);
    exact += range.size();
  }
}

void all_reduce_encoded(Communicator& comm, std::span<float> values, const kernels::CodecSettings& codec,
                        const OpOptions& options) {
  const kernels::EncodedParts parts{codec, static_cast<int64_t>(values.size()), comm.size()};
  std::vector<float> residual(static_cast<size_t>(parts.residual_elements()));
  std::vector<uint8_t> message(parts.is_sparse() ? 0 : static_cast<size_t>(parts.message_bytes())),
      incoming(static_cast<size_t>(parts.incoming_bytes()));
  EncodedSum sum(parts, {}, comm.rank(), {residual, message, incoming, {}});
  sum.encode(values);
  sum.exchange(comm, options);
  sum.decode(values);
}

}  // namespace herd::comm
