#include "herd/kernels/error_feedback.h"

#include <algorithm>

#include "herd/kernels/sum_of_squares.h"

namespace herd::kernels {

EncodingLoss encode_with_feedback(const CodecSettings& codec, std::span<const float> terms,
                                  std::span<const ElementRange> exact, std::span<const EncodedPart> parts,
                                  std::span<float> residual) {
  const auto elements = static_cast<int64_t>(terms.size());
  float* const kept = residual.data();
  for (int64_t i = 0; i < elements; ++i) kept[i] += terms[static_cast<size_t>(i)];
  for (const ElementRange& range : exact) std::fill(kept + range.begin, kept + range.end, 0.0f);
  EncodingLoss loss{.squares = sum_of_squares(kept, elements)};
  for (const EncodedPart& part : parts) {
    encode(codec, kept + part.range.begin, part.range.size(), part.encoded);
    decode_add(codec, part.encoded, part.range.size(), -1, kept + part.range.begin);
  }
  loss.lost_squares = sum_of_squares(kept, elements);
  return loss;
}

}  // namespace herd::kernels
