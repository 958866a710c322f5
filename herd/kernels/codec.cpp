#include "herd/kernels/codec.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "herd/base/check.h"
#include "herd/base/error.h"
#include "herd/kernels/block_codec.h"
#include "herd/kernels/half_array.h"
#include "herd/kernels/quantile_levels.h"
#include "herd/kernels/top_k.h"

namespace herd::kernels {
namespace {

// Parts of an encoded array begin at any byte, so numbers of several bytes are copied in and out.
template <class T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

constexpr int64_t kChunk = 4096;  // elements that go through aligned memory at a time

int64_t bf16_bytes(const CodecSettings&, int64_t elements) { return 2 * elements; }

void encode_bf16(const CodecSettings&, const float* values, int64_t elements, std::byte* encoded) {
  std::array<uint16_t, kChunk> half;
  for (int64_t i = 0; i < elements; i += kChunk) {
    const int64_t count = std::min(kChunk, elements - i);
    narrow(DType::kBF16, values + i, half.data(), count);
    std::memcpy(encoded + 2 * i, half.data(), static_cast<size_t>(2 * count));
  }
}

void decode_bf16(const CodecSettings&, const std::byte* encoded, int64_t elements, float* values) {
  std::array<uint16_t, kChunk> half;
  for (int64_t i = 0; i < elements; i += kChunk) {
    const int64_t count = std::min(kChunk, elements - i);
    std::memcpy(half.data(), encoded + 2 * i, static_cast<size_t>(2 * count));
    widen(DType::kBF16, half.data(), values + i, count);
  }
}

void add_bf16(const CodecSettings& codec, const std::byte* encoded, int64_t elements, float factor, float* values) {
  std::array<float, kChunk> wide;
  for (int64_t i = 0; i < elements; i += kChunk) {
    const int64_t count = std::min(kChunk, elements - i);
    decode_bf16(codec, encoded + 2 * i, count, wide.data());
    for (int64_t j = 0; j < count; ++j) values[i + j] += factor * wide[static_cast<size_t>(j)];
  }
}

// Codecs in blocks: [levels, where the codec has them] [amax of each block, fp32] [codes, block after block].
// kBits = 8 or 4 for each element; kLevels = 0 for multiples of amax / Q.
template <int kBits, int kLevels>
struct InBlocks {
  static int64_t num_blocks(const CodecSettings& codec, int64_t elements) {
    return (elements + codec.block - 1) / codec.block;
  }
  static int64_t code_bytes(int64_t elements) { return kBits == 8 ? elements : (elements + 1) / 2; }
  static int64_t bytes(const CodecSettings& codec, int64_t elements) {
    if (elements == 0) return 0;
    return 4 * kLevels + 4 * num_blocks(codec, elements) + code_bytes(elements);
  }

  // Calls one(begin, count, place of the amax, place of the codes) for each block.
  template <class Byte, class One>
  static void for_each_block(const CodecSettings& codec, int64_t elements, Byte* encoded, const One& one) {
    Byte* maxima = encoded + 4 * kLevels;
    Byte* codes = maxima + 4 * num_blocks(codec, elements);
    for (int64_t begin = 0; begin < elements; begin += codec.block) {
      const int64_t count = std::min(codec.block, elements - begin);
      one(begin, count, maxima, codes);
      maxima += 4;
      codes += code_bytes(count);
    }
  }

  static void encode(const CodecSettings& codec, const float* values, int64_t elements, std::byte* encoded) {
    if constexpr (kLevels > 0) {
      encode_by_levels(codec, values, elements, encoded);
    } else {
      encode_blocks(codec, elements, encoded, [values](int64_t begin, int64_t) { return values + begin; });
    }
  }

  // Encodes the blocks that load(begin, count) returns in fp32.
  template <class Load>
  static void encode_blocks(const CodecSettings& codec, int64_t elements, std::byte* encoded, const Load& load_block) {
    for_each_block(codec, elements, encoded, [&](int64_t begin, int64_t count, std::byte* maximum, std::byte* codes) {
      encode_block(load_block(begin, count), count, maximum, codes);
    });
  }

  static void encode_block(const float* values, int64_t count, std::byte* maximum, std::byte* codes) {
    float amax;
    block_maxima(values, count, count, &amax);
    std::memcpy(maximum, &amax, sizeof(amax));
    (kBits == 8 ? encode_block_int8 : encode_block_int4)(values, count, amax, reinterpret_cast<uint8_t*>(codes));
  }

  static void encode_half(const CodecSettings& codec, DType type, const uint16_t* values, int64_t elements,
                          std::byte* encoded) {
    std::vector<float> wide(static_cast<size_t>(codec.block));
    encode_blocks(codec, elements, encoded, [&](int64_t begin, int64_t count) {
      widen(type, values + begin, wide.data(), count);
      return wide.data();
    });
  }

  static void decode_half(const CodecSettings& codec, DType type, const std::byte* encoded, int64_t elements,
                          uint16_t* values) {
    std::vector<float> wide(static_cast<size_t>(codec.block));
    for_each_block(codec, elements, encoded,
                   [&](int64_t begin, int64_t count, const std::byte* maximum, const std::byte* codes) {
                     (kBits == 8 ? decode_block_int8 : decode_block_int4)(reinterpret_cast<const uint8_t*>(codes),
                                                                          count, load<float>(maximum), wide.data());
                     narrow(type, wide.data(), values + begin, count);
                   });
  }

  // Adds the block of each term, whose arrays begin `term_bytes` apart, to `sum`.
  static void add_terms(const std::byte* maximum, const std::byte* codes, int64_t num_terms, int64_t term_bytes,
                        int64_t count, float* sum) {
    for (int64_t term = 0; term < num_terms; ++term)
      (kBits == 8 ? add_block_int8 : add_block_int4)(reinterpret_cast<const uint8_t*>(codes + term * term_bytes), count,
                                                     load<float>(maximum + term * term_bytes), 1, sum);
  }

  static void decode_sum(const CodecSettings& codec, DType type, const std::byte* encoded, int64_t num_terms,
                         int64_t elements, bool adds, void* sums) {
    const int64_t term_bytes = bytes(codec, elements);
    std::vector<float> block(static_cast<size_t>(codec.block));
    for_each_block(codec, elements, encoded,
                   [&](int64_t begin, int64_t count, const std::byte* maximum, const std::byte* codes) {
                     auto* wide = static_cast<float*>(sums) + begin;
                     auto* half = static_cast<uint16_t*>(sums) + begin;
                     float* sum = type == DType::kF32 ? wide : block.data();
                     if (!adds) std::fill_n(sum, count, 0.0f);
                     if (adds && type != DType::kF32) widen(type, half, sum, count);
                     add_terms(maximum, codes, num_terms, term_bytes, count, sum);
                     if (type != DType::kF32) narrow(type, sum, half, count);
                   });
  }

  static void encode_sum(const CodecSettings& codec, const std::byte* encoded, int64_t num_terms, int64_t term_bytes,
                         int64_t elements, std::byte* sum) {
    std::vector<float> block(static_cast<size_t>(codec.block));
    for_each_block(codec, elements, encoded,
                   [&](int64_t, int64_t count, const std::byte* maximum, const std::byte* codes) {
                     std::fill_n(block.data(), count, 0.0f);
                     add_terms(maximum, codes, num_terms, term_bytes, count, block.data());
                     encode_block(block.data(), count, sum + (maximum - encoded), sum + (codes - encoded));
                   });
  }

  static void decode(const CodecSettings& codec, const std::byte* encoded, int64_t elements, float* values) {
    if constexpr (kLevels > 0) {
      decode_by_levels(codec, encoded, elements, [values](int64_t i, float x) { values[i] = x; });
    } else {
      for_each_block(codec, elements, encoded,
                     [&](int64_t begin, int64_t count, const std::byte* maximum, const std::byte* codes) {
                       (kBits == 8 ? decode_block_int8 : decode_block_int4)(
                           reinterpret_cast<const uint8_t*>(codes), count, load<float>(maximum), values + begin);
                     });
    }
  }

  static void decode_add(const CodecSettings& codec, const std::byte* encoded, int64_t elements, float factor,
                         float* values) {
    if constexpr (kLevels > 0) {
      decode_by_levels(codec, encoded, elements, [values, factor](int64_t i, float x) { values[i] += factor * x; });
    } else {
      for_each_block(codec, elements, encoded,
                     [&](int64_t begin, int64_t count, const std::byte* maximum, const std::byte* codes) {
                       (kBits == 8 ? add_block_int8 : add_block_int4)(reinterpret_cast<const uint8_t*>(codes), count,
                                                                      load<float>(maximum), factor, values + begin);
                     });
    }
  }

  // A code is the level, and above it the sign: level + kLevels for negative numbers. Halves of a byte as in int4.
  static void encode_by_levels(const CodecSettings& codec, const float* values, int64_t elements, std::byte* encoded) {
    if (elements == 0) return;
    std::array<float, kLevels> levels;
    std::vector<float> maxima(static_cast<size_t>(num_blocks(codec, elements)));
    block_maxima(values, elements, codec.block, maxima.data());
    choose_levels(values, elements, codec.block, maxima.data(), levels);
    const auto nearest = nearest_levels(levels);
    std::memcpy(encoded, levels.data(), sizeof(levels));
    std::memcpy(encoded + sizeof(levels), maxima.data(), maxima.size() * sizeof(float));
    for_each_block(codec, elements, encoded, [&](int64_t begin, int64_t count, std::byte* maximum, std::byte* codes) {
      const float amax = load<float>(maximum);
      const auto code = [&](int64_t i) {
        const float x = values[begin + i];
        const float place = std::abs(x) / amax * static_cast<float>(kLevelBins - 1) + 0.5f;
        const auto level = nearest[static_cast<size_t>(std::min(place, static_cast<float>(kLevelBins - 1)))];
        return static_cast<uint8_t>(level + (x < 0 ? kLevels : 0));
      };
      const int64_t size = code_bytes(count);
      if (!(amax > 0)) {
        std::fill_n(codes, size, std::byte{0});
        return;
      }
      for (int64_t i = 0; i < size; ++i) {
        uint8_t byte = code(i);
        if (kBits == 4 && size + i < count) byte = static_cast<uint8_t>(byte | code(size + i) << 4);
        codes[i] = std::byte{byte};
      }
    });
  }

  // Calls take(index, number) for each element.
  template <class Take>
  static void decode_by_levels(const CodecSettings& codec, const std::byte* encoded, int64_t elements,
                               const Take& take) {
    if (elements == 0) return;
    std::array<float, 2 * kLevels> signed_levels;
    std::memcpy(signed_levels.data(), encoded, kLevels * sizeof(float));
    for (size_t i = 0; i < kLevels; ++i) signed_levels[kLevels + i] = -signed_levels[i];
    for_each_block(codec, elements, encoded,
                   [&](int64_t begin, int64_t count, const std::byte* maximum, const std::byte* codes) {
                     const auto amax = load<float>(maximum);
                     const int64_t size = code_bytes(count);
                     for (int64_t i = 0; i < size; ++i) {
                       const auto byte = std::to_integer<unsigned>(codes[i]);
                       take(begin + i, signed_levels[byte % (2 * kLevels)] * amax);
                       if (kBits == 4 && size + i < count) take(begin + size + i, signed_levels[byte >> 4] * amax);
                     }
                   });
  }
};

// Top-k: [k values, fp32] [k indices, 32 bits], by ascending index.
int64_t num_kept(const CodecSettings& codec, int64_t elements) {
  if (elements == 0) return 0;
  return std::clamp<int64_t>(std::llround(codec.ratio * static_cast<double>(elements)), 1, elements);
}

int64_t top_k_bytes(const CodecSettings& codec, int64_t elements) { return 8 * num_kept(codec, elements); }

void encode_top_k(const CodecSettings& codec, const float* values, int64_t elements, std::byte* encoded) {
  const auto kept = static_cast<size_t>(num_kept(codec, elements));
  std::vector<float> top_values(kept);
  std::vector<uint32_t> top_indices(kept);
  select_top_k_by_sample(values, elements, static_cast<int64_t>(kept), top_values.data(), top_indices.data());
  if (kept == 0) return;
  std::memcpy(encoded, top_values.data(), 4 * kept);
  std::memcpy(encoded + 4 * kept, top_indices.data(), 4 * kept);
}

void add_top_k(const CodecSettings& codec, const std::byte* encoded, int64_t elements, float factor, float* values) {
  add_list(encoded, num_kept(codec, elements), elements, factor, values);
}

void decode_top_k(const CodecSettings& codec, const std::byte* encoded, int64_t elements, float* values) {
  std::fill_n(values, elements, 0.0f);
  add_top_k(codec, encoded, elements, 1, values);
}

using Int8 = InBlocks<8, 0>;
using Int4 = InBlocks<4, 0>;
using Int8Quantiles = InBlocks<8, 128>;
using Int4Quantiles = InBlocks<4, 8>;

constexpr double kHalfBin = 0.5 / (kLevelBins - 1);
constexpr double kRounding = 1.001;  // of an error that the arithmetic of fp32 adds

constexpr std::array<CodecRow, 6> kCodecs = {{
    {CodecKind::kBf16, "bf16", {.of_value = 0x1p-8}, bf16_bytes, encode_bf16, decode_bf16, add_bf16},
    {CodecKind::kInt8,
     "int8",
     {.of_block_max = kRounding / 254},
     Int8::bytes,
     Int8::encode,
     Int8::decode,
     Int8::decode_add},
    {CodecKind::kInt4,
     "int4",
     {.of_block_max = kRounding / 14},
     Int4::bytes,
     Int4::encode,
     Int4::decode,
     Int4::decode_add},
    {CodecKind::kInt8Quantiles,
     "int8_quantiles",
     {.of_block_max = kRounding * (2.0 / 127 + kHalfBin)},
     Int8Quantiles::bytes,
     Int8Quantiles::encode,
     Int8Quantiles::decode,
     Int8Quantiles::decode_add},
    {CodecKind::kInt4Quantiles,
     "int4_quantiles",
     {.of_block_max = kRounding * (2.0 / 7 + kHalfBin)},
     Int4Quantiles::bytes,
     Int4Quantiles::encode,
     Int4Quantiles::decode,
     Int4Quantiles::decode_add},
    {CodecKind::kTopK, "topk", {.of_value = 1}, top_k_bytes, encode_top_k, decode_top_k, add_top_k},
}};

// Tells which of the two codecs by multiples it is.
bool is_int8(const CodecSettings& codec) {
  HERD_CHECK(codec.kind == CodecKind::kInt8 || codec.kind == CodecKind::kInt4, "a codec by multiples");
  return codec.kind == CodecKind::kInt8;
}

}  // namespace

std::span<const CodecRow> codecs() { return kCodecs; }

const CodecRow& codec_row(CodecKind kind) { return kCodecs[static_cast<size_t>(kind)]; }

const CodecRow* find_codec(std::string_view name) {
  const auto row = std::ranges::find(kCodecs, name, &CodecRow::name);
  return row == kCodecs.end() ? nullptr : &*row;
}

int64_t encoded_bytes(const CodecSettings& codec, int64_t elements) {
  return codec_row(codec.kind).bytes(codec, elements);
}
void encode(const CodecSettings& codec, const float* values, int64_t elements, std::byte* encoded) {
  codec_row(codec.kind).encode(codec, values, elements, encoded);
}
void decode(const CodecSettings& codec, const std::byte* encoded, int64_t elements, float* values) {
  codec_row(codec.kind).decode(codec, encoded, elements, values);
}
void decode_add(const CodecSettings& codec, const std::byte* encoded, int64_t elements, float factor, float* values) {
  codec_row(codec.kind).decode_add(codec, encoded, elements, factor, values);
}

void add_list(const std::byte* encoded, int64_t kept, int64_t elements, float factor, float* values) {
  for (int64_t i = 0; i < kept; ++i) {
    const auto index = load<uint32_t>(encoded + 4 * (kept + i));
    if (index >= elements)
      throw Error(Code::kBug, "a sparse array names element " + std::to_string(index) + " of " +
                                  std::to_string(elements) + "\n  fix: report this");
    values[index] += factor * load<float>(encoded + 4 * i);
  }
}

void encode(const CodecSettings& codec, DType type, const void* values, int64_t elements, std::byte* encoded) {
  if (type == DType::kF32) return encode(codec, static_cast<const float*>(values), elements, encoded);
  (is_int8(codec) ? Int8::encode_half : Int4::encode_half)(codec, type, static_cast<const uint16_t*>(values), elements,
                                                           encoded);
}
void decode(const CodecSettings& codec, DType type, const std::byte* encoded, int64_t elements, void* values) {
  if (type == DType::kF32) return decode(codec, encoded, elements, static_cast<float*>(values));
  (is_int8(codec) ? Int8::decode_half : Int4::decode_half)(codec, type, encoded, elements,
                                                           static_cast<uint16_t*>(values));
}

void decode_sum(const CodecSettings& codec, DType type, const std::byte* encoded, int64_t num_terms, int64_t elements,
                bool adds, void* sums) {
  (is_int8(codec) ? Int8::decode_sum : Int4::decode_sum)(codec, type, encoded, num_terms, elements, adds, sums);
}

void encode_sum(const CodecSettings& codec, const std::byte* encoded, int64_t num_terms, int64_t term_bytes,
                int64_t elements, std::byte* sum) {
  (is_int8(codec) ? Int8::encode_sum : Int4::encode_sum)(codec, encoded, num_terms, term_bytes, elements, sum);
}

}  // namespace herd::kernels
