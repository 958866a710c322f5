#include "herd/base/units.h"

#include <gtest/gtest.h>

#include "herd/base/error.h"

namespace herd {
namespace {

TEST(Units, ParsesBinaryAndDecimalBytes) {
  EXPECT_EQ(parse_bytes("4096"), 4096);
  EXPECT_EQ(parse_bytes("4KiB"), 4096);
  EXPECT_EQ(parse_bytes("1.5 GiB"), 1610612736);
  EXPECT_EQ(parse_bytes("80GB"), 80000000000);
  EXPECT_EQ(parse_bytes("0"), 0);
}

TEST(Units, RefusesWhatIsNoNumberOfBytes) {
  for (const char* text : {"", "GiB", "4 GiBs", "-1", "nan", "1e30", "4x"}) {
    try {
      parse_bytes(text);
      ADD_FAILURE() << "took \"" << text << '"';
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kBadConfig);
      EXPECT_NE(error.message().find("fix:"), std::string::npos);
    }
  }
}

TEST(Units, FormatsAsPeopleRead) {
  EXPECT_EQ(format_bytes(512), "512 B");
  EXPECT_EQ(format_bytes(1.21 * 1073741824), "1.21 GiB");
  EXPECT_EQ(format_us(1.8), "1.80 us");
  EXPECT_EQ(format_us(252e6), "4 min 12 s");
  EXPECT_EQ(format_us(3.6e30), "1e+21 h");
  EXPECT_EQ(format_count(162e6), "162 M");
  EXPECT_EQ(format_number(0.1), "0.1");
  EXPECT_EQ(format_number(1e300), "1e+300");
}

}  // namespace
}  // namespace herd
