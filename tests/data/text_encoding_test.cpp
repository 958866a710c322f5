#include "herd/data/text_encoding.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/support/expect_error.h"

namespace herd {
namespace {

using namespace std::string_literals;

TEST(TextEncoding, FindsTheFirstByteThatIsNoUtf8) {
  const std::pair<std::string, int64_t> cases[] = {
      {"", -1},
      {"plain\0text\x7f"s, -1},
      {"\xC2\x80 \xDF\xBF \xE0\xA0\x80 \xED\x9F\xBF \xEE\x80\x80 \xEF\xBF\xBF \xF0\x90\x80\x80 \xF4\x8F\xBF\xBF", -1},
      {"\xEF\xBB\xBFwith a byte order mark", -1},
      {"0123456789abcdef\x80", 16},
      {"\xC0\x80", 0},           // overlong
      {"a\xC1\xBF", 1},          // overlong
      {"a\xE0\x9F\xBF", 1},      // overlong
      {"a\xF0\x8F\xBF\xBF", 1},  // overlong
      {"a\xED\xA0\x80", 1},      // a surrogate
      {"a\xF4\x90\x80\x80", 1},  // beyond U+10FFFF
      {"a\xF5\x80\x80\x80", 1},  // beyond
      {"a\xE6\xBC", 1},          // cut
      {"\xE6\xBC\xA2\xF0\x9F\x99", 3},
      {"caf\xE9 au lait", 3}};
  for (const auto& [text, offset] : cases) {
    EXPECT_EQ(first_bad_byte(text), offset) << text;
    EXPECT_EQ(count_bad_bytes(text) > 0, offset >= 0) << text;
  }
  EXPECT_EQ(count_bad_bytes("\xFF a \xED\xA0\x80 \xE9"), 5);
}

TEST(TextEncoding, SaysWhatTheTextLooksLike) {
  const std::tuple<std::string, const char*, const char*> cases[] = {
      {"\xFF\xFEh\0e\0"s, "a.txt at byte 0: FF is no UTF-8: the text begins as UTF-16 does", "fix: iconv -f UTF-16"},
      {"\xFE\xFF\0h"s, "a.txt at byte 0: FE is no UTF-8: the text begins as UTF-16 does", "fix: iconv -f UTF-16"},
      {"\xFF\xFE\0\0h\0\0\0"s, "UTF-32", "fix: iconv -f UTF-32"},
      {"\x1F\x8B\x08"s, "a.txt at byte 1: 8B is no UTF-8: it is compressed by gzip", "fix: gunzip"},
      {"\x28\xB5\x2F\xFD"s, "zstd", "fix: unzstd"},
      {"PK\x03\x04\xFF"s, "zip archive", "fix: unzip"},
      {"half \xED\xA0\xBD"s, "a.txt at byte 5: ED is no UTF-8: a lone surrogate, U+D83D",
       "fix: write the text as UTF-8"},
      {"end \xF0\x9F\x99"s, "ends within a character", "fix: the whole text"},
      {"caf\xE9 au lait"s, "a.txt at byte 3: E9 is no UTF-8: the text may be in Latin-1", "fix: iconv -f LATIN1"}};
  for (const auto& [text, what, fix] : cases)
    EXPECT_ERROR(require_utf8(text, "a.txt", "--replace-bad-bytes"), Code::kBadConfig, what, fix,
                 ", or --replace-bad-bytes");
  require_utf8("caf\xC3\xA9", "a.txt", "");
}

TEST(TextEncoding, CutsBetweenCharacters) {
  const std::string text = "a\xC3\xA9\xE6\xBC\xA2\xF0\x9F\x99\x82";
  const size_t expected[] = {0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10, 10};
  for (size_t bytes = 0; bytes < std::size(expected); ++bytes)
    EXPECT_EQ(whole_characters(text, bytes), expected[bytes]) << bytes;
  EXPECT_EQ(whole_characters(std::string(20, '\x80'), 10), 10u) << "what is no text is cut anywhere";
}

}  // namespace
}  // namespace herd
