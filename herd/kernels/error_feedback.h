// Encodes an fp32 array with error feedback: what encoding loses is kept, and added to what is encoded the next time.
// Source: Seide et al. 2014 (error feedback); Karimireddy et al. 2019, arXiv:1901.09847.   Threads: any.
#pragma once

#include <cstddef>
#include <span>

#include "herd/kernels/codec.h"
#include "herd/kernels/element_range.h"

namespace herd::kernels {

struct EncodingLoss {
  double squares = 0;       // sum of the squares of what was encoded
  double lost_squares = 0;  // sum of the squares of what that lost
};

// Says where the encoded form of some elements goes, which has encoded_bytes().
struct EncodedPart {
  ElementRange range;
  std::byte* encoded = nullptr;
};

// Encodes terms + residual, part by part, and leaves in `residual` what that loses. Elements of `exact`, which move in
// fp32 beside it, are encoded as zeros and lose nothing. REQUIRES as many residuals as terms, and parts that are all of
// them.
EncodingLoss encode_with_feedback(const CodecSettings& codec, std::span<const float> terms,
                                  std::span<const ElementRange> exact, std::span<const EncodedPart> parts,
                                  std::span<float> residual);

}  // namespace herd::kernels
