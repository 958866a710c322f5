#include "herd/storage/checksum.h"

#include <gtest/gtest.h>

#include "herd/storage/crc32c_table_internal.h"

namespace herd {
namespace {

TEST(Checksum, IsCrc32c) {
  EXPECT_EQ(crc32c("123456789"), 0xE3069283u);
  EXPECT_EQ(crc32c(""), 0u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAu);    // RFC 3720, B.4
  EXPECT_EQ(crc32c(std::string(32, '\xFF')), 0x62A8AB43u);  // RFC 3720, B.4
  EXPECT_EQ(format_crc32c(0x0E06928Fu), "0e06928f");
}

TEST(Checksum, InstructionAndTableAgree_AtEveryLengthAndAlignment) {
  std::string text(300, '\0');
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * 37 + 11);
  for (size_t begin = 0; begin < 9; ++begin) {
    for (size_t length = 0; begin + length <= text.size(); ++length) {
      const auto bytes = std::as_bytes(std::span(text)).subspan(begin, length);
      EXPECT_EQ(crc32c(bytes, 5), crc32c_by_table(bytes, 5));
    }
  }
}

TEST(Checksum, ChainsOverPieces) {
  const std::string_view text = "In the beginning God created the heaven and the earth.";
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    EXPECT_EQ(crc32c(text.substr(cut), crc32c(text.substr(0, cut))), crc32c(text));
  }
}

}  // namespace
}  // namespace herd
