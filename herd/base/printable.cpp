#include "herd/base/printable.h"

#include <cstdint>

#include "herd/base/hex.h"

namespace herd {
namespace {

struct Character {
  size_t bytes = 0;   // 0 where no UTF-8 character begins
  uint32_t code = 0;  // its code point
};

// Decodes the first character of a text that is not empty.
Character first_of(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<unsigned char>(text[i])); };
  const uint32_t lead = byte(0);
  if (lead < 0x80) return {1, lead};
  const size_t bytes = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < bytes) return {};
  uint32_t code = lead & (0x7Fu >> bytes);
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return {};
    code = code << 6 | (byte(i) & 0x3F);
  }
  constexpr uint32_t kSmallestCode[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool is_surrogate = code >= 0xD800 && code <= 0xDFFF;
  return code < kSmallestCode[bytes] || is_surrogate || code > 0x10FFFF ? Character{} : Character{bytes, code};
}

// Refuses marks that change the direction of text too, since they could disguise what a terminal shows.
bool is_printable(uint32_t code) {
  const bool is_control = code < 0x20 || (code >= 0x7F && code < 0xA0) || code == 0x2028 || code == 0x2029;
  const bool changes_direction = code == 0x061C || code == 0x200E || code == 0x200F ||
                                 (code >= 0x202A && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069);
  return !is_control && !changes_direction;
}

std::string escaped(std::string_view text, bool one_line) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const auto [bytes, code] = first_of(text);
    const size_t num_bytes = bytes == 0 ? 1 : bytes;
    const bool is_kept = bytes > 0 && (is_printable(code) || (!one_line && (code == '\n' || code == '\t')));
    for (const char c : text.substr(0, num_bytes)) {
      if (is_kept) {
        out += c;
      } else {
        append_hex(out += "\\x", static_cast<uint8_t>(c));
      }
    }
    text.remove_prefix(num_bytes);
  }
  return out;
}

}  // namespace

std::string printable(std::string_view text) { return escaped(text, true); }

std::string printable_lines(std::string_view text) { return escaped(text, false); }

}  // namespace herd
