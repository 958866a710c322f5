#include "herd/kernels/encoded_parts.h"

#include <algorithm>

namespace herd::kernels {

ElementRange EncodedParts::part(int rank) const {
  if (is_sparse()) return {0, elements};
  const int64_t blocks = (elements + codec.block - 1) / codec.block;
  const int64_t size = (blocks + num_ranks - 1) / num_ranks * codec.block;
  const int64_t begin = std::min(elements, size * rank);
  return {begin, std::min(elements, begin + size)};
}

int64_t EncodedParts::part_bytes(int rank) const { return encoded_bytes(codec, part(rank).size()); }

int64_t EncodedParts::message_bytes() const {
  if (is_sparse()) return part_bytes(0);
  int64_t bytes = 0;
  for (int rank = 0; rank < num_ranks; ++rank) bytes += part_bytes(rank);
  return bytes;
}

int64_t EncodedParts::incoming_bytes() const { return num_ranks * part_bytes(0); }

int64_t EncodedParts::sent_bytes(int rank) const {
  if (is_sparse()) return (num_ranks - 1) * part_bytes(rank);
  return message_bytes() - part_bytes(rank) + (num_ranks - 1) * part_bytes(rank);
}

}  // namespace herd::kernels
