#include "herd/data/text_encoding.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>

#include "herd/base/error.h"

namespace herd {
namespace {

uint8_t byte_at(std::string_view text, size_t at) { return static_cast<uint8_t>(text[at]); }

bool is_continuation(std::string_view text, size_t at) {
  return at < text.size() && (byte_at(text, at) & 0xc0) == 0x80;
}

// Returns the bytes of the character at `at`; 0 where none begins there. Source: Unicode 15, table 3-7.
size_t character_bytes(std::string_view text, size_t at) {
  const uint8_t first = byte_at(text, at);
  if (first < 0x80) return 1;
  if (first < 0xc2 || first > 0xf4 || !is_continuation(text, at + 1)) return 0;
  if (first < 0xe0) return 2;
  const uint8_t second = byte_at(text, at + 1);
  const bool is_overlong = (first == 0xe0 && second < 0xa0) || (first == 0xf0 && second < 0x90);
  const bool is_surrogate = first == 0xed && second >= 0xa0, is_beyond = first == 0xf4 && second >= 0x90;
  if (is_overlong || is_surrogate || is_beyond || !is_continuation(text, at + 2)) return 0;
  if (first < 0xf0) return 3;
  return is_continuation(text, at + 3) ? 4 : 0;
}

// Returns the end of the ASCII characters from `at` on.
size_t skip_ascii(std::string_view text, size_t at) {
  uint64_t eight = 0;
  for (; at + sizeof eight <= text.size(); at += sizeof eight) {
    std::memcpy(&eight, text.data() + at, sizeof eight);
    if ((eight & 0x8080808080808080) != 0) break;
  }
  while (at < text.size() && byte_at(text, at) < 0x80) ++at;
  return at;
}

size_t find_bad_byte(std::string_view text, size_t at) {
  while ((at = skip_ascii(text, at)) < text.size()) {
    const size_t bytes = character_bytes(text, at);
    if (bytes == 0) return at;
    at += bytes;
  }
  return text.npos;
}

struct Look {
  std::string what, fix;
};

// Says what a text looks like whose byte `at` is bad.
Look look_of(std::string_view text, size_t at) {
  constexpr struct {
    std::string_view begin;
    const char *what, *fix;
  } kBegins[] = {{{"\xff\xfe\0\0", 4}, "the text begins as UTF-32 does", "iconv -f UTF-32 -t UTF-8"},
                 {{"\0\0\xfe\xff", 4}, "the text begins as UTF-32 does", "iconv -f UTF-32 -t UTF-8"},
                 {"\xff\xfe", "the text begins as UTF-16 does (FF FE)", "iconv -f UTF-16 -t UTF-8"},
                 {"\xfe\xff", "the text begins as UTF-16 does (FE FF)", "iconv -f UTF-16 -t UTF-8"},
                 {"\x1f\x8b", "it is compressed by gzip (1F 8B)", "gunzip"},
                 {"\x28\xb5\x2f\xfd", "it is compressed by zstd (28 B5 2F FD)", "unzstd"},
                 {{"\xfd\x37zXZ\0", 6}, "it is compressed by xz", "unxz"},
                 {"BZh", "it is compressed by bzip2 (BZh)", "bunzip2"},
                 {"PK\x03\x04", "it is a zip archive (PK)", "unzip"},
                 {"%PDF-", "it is a PDF", "pdftotext"}};
  for (const auto& [begin, what, fix] : kBegins) {
    if (text.starts_with(begin)) return {what, fix};
  }
  const uint8_t byte = byte_at(text, at);
  if (byte == 0xed && is_continuation(text, at + 1) && is_continuation(text, at + 2)) {
    char name[32];
    std::snprintf(name, sizeof name, "U+%04X",
                  0xd000 | (byte_at(text, at + 1) & 0x3f) << 6 | (byte_at(text, at + 2) & 0x3f));
    return {"a lone surrogate, " + std::string(name) + ", which is no character", "write the text as UTF-8"};
  }
  if (text.size() - at < 4 && byte >= 0xc2 && byte <= 0xf4 &&
      std::all_of(text.begin() + static_cast<std::ptrdiff_t>(at) + 1, text.end(),
                  [](char c) { return (static_cast<uint8_t>(c) & 0xc0) == 0x80; }))
    return {"the text ends within a character", "the whole text"};
  return {"the text may be in Latin-1 or another code page", "iconv -f LATIN1 -t UTF-8, or from what it is in"};
}

}  // namespace

int64_t first_bad_byte(std::string_view text) {
  const size_t at = find_bad_byte(text, 0);
  return at == text.npos ? -1 : static_cast<int64_t>(at);
}

int64_t count_bad_bytes(std::string_view text) {
  int64_t count = 0;
  for (size_t at = find_bad_byte(text, 0); at != text.npos; at = find_bad_byte(text, at + 1)) ++count;
  return count;
}

void require_utf8(std::string_view text, std::string_view name, std::string_view fix) {
  const size_t at = find_bad_byte(text, 0);
  if (at == text.npos) return;
  char byte[8];
  std::snprintf(byte, sizeof byte, "%02X", byte_at(text, at));
  const Look look = look_of(text, at);
  throw Error(Code::kBadConfig, std::string(name) + " at byte " + std::to_string(at) + ": " + byte +
                                    " is no UTF-8: " + look.what + "\n  fix: " + look.fix + ", or " + std::string(fix));
}

size_t whole_characters(std::string_view text, size_t bytes) {
  if (bytes >= text.size()) return text.size();
  for (size_t back = 0; back < 4 && back < bytes; ++back) {
    if (!is_continuation(text, bytes - back)) return bytes - back;
  }
  return bytes;  // no UTF-8
}

}  // namespace herd
