#include "herd/kernels/block_codec.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace herd::kernels {
namespace {

TEST(BlockCodec, CodesMultiplesOfTheMaximumExactly) {
  for (const int64_t count : {1, 2, 5, 15, 16, 17, 33, 254}) {
    std::vector<float> values, again(static_cast<size_t>(count), 7.0f);
    for (int64_t i = 0; i < count; ++i) values.push_back(static_cast<float>(i % 255 - 127));
    std::vector<uint8_t> codes(static_cast<size_t>(count));
    encode_block_int8(values.data(), count, 127, codes.data());
    for (int64_t i = 0; i < count; ++i) EXPECT_EQ(codes[static_cast<size_t>(i)], values[static_cast<size_t>(i)] + 128);
    decode_block_int8(codes.data(), count, 127, again.data());
    for (size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(again[i], values[i], 1e-4);
  }
}

TEST(BlockCodec, PutsTheHalvesOfABlockInTheHalvesOfBytes) {
  const std::vector<float> values = {-7, 3, 0, 7, 1};
  std::vector<uint8_t> codes(3);
  encode_block_int4(values.data(), 5, 7, codes.data());
  EXPECT_EQ(codes, (std::vector<uint8_t>{0xf1, 0x9b, 0x88}));
  std::vector<float> again(5, 1.0f);
  add_block_int4(codes.data(), 5, 7, 1, again.data());
  for (size_t i = 0; i < 5; ++i) EXPECT_NEAR(again[i], values[i] + 1, 1e-5);
}

TEST(BlockCodec, RoundsTiesToEven) {
  const std::vector<float> values = {0.5f, 1.5f, 2.5f, -0.5f, -1.5f, 127.0f};
  std::vector<uint8_t> codes(6);
  encode_block_int8(values.data(), 6, 127, codes.data());
  EXPECT_EQ(codes, (std::vector<uint8_t>{128, 130, 130, 128, 126, 255}));
}

TEST(BlockCodec, FindsTheMaximumOfEachBlock) {
  const std::vector<float> values = {1, -3, 2, 0, -0.0f, 0, NAN, 1, 2, 5};
  std::vector<float> maxima(4);
  block_maxima(values.data(), 10, 3, maxima.data());
  EXPECT_EQ(maxima[0], 3);
  EXPECT_EQ(maxima[1], 0);
  EXPECT_TRUE(std::isnan(maxima[2]));
  EXPECT_EQ(maxima[3], 5);
}

}  // namespace
}  // namespace herd::kernels
