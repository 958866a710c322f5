// Defines the codecs: shorter forms of fp32 arrays, to be sent. The table has a row for each, with its bytes, the bound
// of its error, and its functions.
//   bf16            2 bytes an element.
//   int8, int4      x = q * amax / Q in blocks of `block` elements, amax the largest |x| of the block; Q = 127 or 7
//   int8_quantiles, int4_quantiles
//                   x = sign * level[q] * amax, with levels that follow the distribution of the values
//   topk            the k = max(1, round(ratio * elements)) elements of largest |x|, as (value, index); others are 0
// A NaN or an infinity stays one: a block that holds one decodes as NaN throughout, and top-k takes it first.
// The encoded bytes are the same on every instruction set. Threads: pure, call from any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "herd/base/dtype.h"

namespace herd::kernels {

enum class CodecKind : uint8_t { kBf16, kInt8, kInt4, kInt8Quantiles, kInt4Quantiles, kTopK };

struct CodecSettings {
  CodecKind kind = CodecKind::kBf16;
  int64_t block = 256;  // elements that share a scale, even; codecs in blocks only
  double ratio = 0.01;  // part of the elements that top-k keeps, in (0, 1]
  bool operator==(const CodecSettings&) const = default;
};

// Bounds the error of one finite element x: |x - decoded| <= of_value * |x| + of_block_max * amax + kErrorFloor.
struct ErrorBound {
  double of_value = 0;
  double of_block_max = 0;
};
constexpr double kErrorFloor = 0x1p-133;  // half of the distance between the smallest bf16 numbers

// Holds the functions of a codec. They REQUIRE elements >= 0, and < 2^32 for top-k; nothing is touched beyond them.
struct CodecRow {
  CodecKind kind;
  std::string_view name;
  ErrorBound bound;
  int64_t (*bytes)(const CodecSettings&, int64_t elements);
  void (*encode)(const CodecSettings&, const float* values, int64_t elements, std::byte* encoded);
  // Writes the decoded values, or adds factor times them. Top-k throws kBug where an index is not below `elements`.
  void (*decode)(const CodecSettings&, const std::byte* encoded, int64_t elements, float* values);
  void (*decode_add)(const CodecSettings&, const std::byte* encoded, int64_t elements, float factor, float* values);
};

std::span<const CodecRow> codecs();  // in the order of CodecKind
const CodecRow& codec_row(CodecKind kind);
const CodecRow* find_codec(std::string_view name);  // null where no codec has this name

// These call the row's functions.
int64_t encoded_bytes(const CodecSettings& codec, int64_t elements);
void encode(const CodecSettings& codec, const float* values, int64_t elements, std::byte* encoded);
void decode(const CodecSettings& codec, const std::byte* encoded, int64_t elements, float* values);
void decode_add(const CodecSettings& codec, const std::byte* encoded, int64_t elements, float factor, float* values);
// Adds factor times a list of `kept` numbers in the form of top-k: [kept values, fp32] [kept indices, 32 bits]. Throws
// kBug where an index is not below `elements`.
void add_list(const std::byte* encoded, int64_t kept, int64_t elements, float factor, float* values);

// These take arrays of fp32, bf16 or fp16, with the same bytes for each as for fp32: numbers of 16 bits are widened on
// their way in, and rounded once more on their way out. REQUIRES int8 or int4 by multiples.
void encode(const CodecSettings& codec, DType type, const void* values, int64_t elements, std::byte* encoded);
void decode(const CodecSettings& codec, DType type, const std::byte* encoded, int64_t elements, void* values);
// Writes the sum of `num_terms` encoded arrays that follow each other, added in fp32 in their order and rounded once.
// `adds`: what `sums` holds is the first term. REQUIRES int8 or int4 by multiples.
void decode_sum(const CodecSettings& codec, DType type, const std::byte* encoded, int64_t num_terms, int64_t elements,
                bool adds, void* sums);
// Encodes the sum, in fp32, of `num_terms` encoded arrays that begin `term_bytes` apart. REQUIRES int8 or int4 by
// multiples.
void encode_sum(const CodecSettings& codec, const std::byte* encoded, int64_t num_terms, int64_t term_bytes,
                int64_t elements, std::byte* sum);

}  // namespace herd::kernels
