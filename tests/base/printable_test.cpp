#include "herd/base/printable.h"

#include <gtest/gtest.h>

#include "herd/base/error.h"
#include "herd/base/log.h"

namespace herd {
namespace {

TEST(Printable, LeavesTextAsItIs_AndEscapesWhatATerminalWouldObey) {
  for (const char* text : {"", "h.0.attn.weight", "caf\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x90\x91", "a \\ \"b\""})
    EXPECT_EQ(printable(text), text);
  EXPECT_EQ(printable("\x1b[31mred\x07"), "\\x1b[31mred\\x07");
  EXPECT_EQ(printable("a\nb\tc\r\x7f"), "a\\x0ab\\x09c\\x0d\\x7f");
  EXPECT_EQ(printable_lines("a\nb\tc\r\x7f"), "a\nb\tc\\x0d\\x7f");
  EXPECT_EQ(printable(std::string_view("\0x", 2)), "\\x00x");
  EXPECT_EQ(printable("\xC2\x9B"
                      "31m"),
            "\\xc2\\x9b31m")
      << "the same escape in one character";
  EXPECT_EQ(printable("\xE2\x80\xAEtxt"), "\\xe2\\x80\\xaetxt") << "right to left";
}

TEST(Printable, EscapesEachByteThatIsNoUtf8) {
  EXPECT_EQ(printable("\xFFok\xC3"), "\\xffok\\xc3");
  EXPECT_EQ(printable("\xC0\x9B"), "\\xc0\\x9b") << "too long a form";
  EXPECT_EQ(printable("\xE0\x82\x9B"), "\\xe0\\x82\\x9b");
  EXPECT_EQ(printable("\xED\xA0\x80"), "\\xed\\xa0\\x80") << "half a pair";
  EXPECT_EQ(printable("\xF4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");
  for (int byte = 0; byte < 256; ++byte) {
    const std::string once = printable(std::string(1, static_cast<char>(byte)));
    EXPECT_EQ(printable(once), once);
    for (const char c : once) EXPECT_TRUE(c >= 0x20 && c < 0x7F) << byte;
  }
}

TEST(Printable, ErrorsAndLogsPassNothingElse) {
  const Error error(Code::kBadConfig, "name \"\x1b]0;x\x07\"\n  fix: none");
  EXPECT_STREQ(error.what(), "kBadConfig: name \"\\x1b]0;x\\x07\"\n  fix: none");
  EXPECT_EQ(error.message(), "name \"\\x1b]0;x\\x07\"\n  fix: none");
  std::string said;
  set_log_output([&](const std::string& line) { said += line; });
  log_warning("from \x1b[2J");
  set_log_output({});
  EXPECT_NE(said.find("from \\x1b[2J"), said.npos) << said;
}

}  // namespace
}  // namespace herd
