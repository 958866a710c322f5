#include "herd/comm/short_list.h"

#include "herd/base/hex.h"
#include "herd/comm/fingerprint.h"

namespace herd::comm {

std::string short_list(std::span<const int64_t> numbers, size_t most) {
  constexpr size_t kCutChars = 13;  // " .. #0a1b2c3d"
  std::string text;
  size_t shown = 0;  // characters that leave room for the hash
  for (const int64_t number : numbers) {
    text += (text.empty() ? "" : " ") + std::to_string(number);
    if (text.size() > most) break;
    if (text.size() + kCutChars <= most) shown = text.size();
  }
  if (text.size() <= most) return text;
  uint64_t hash = 1;
  for (const int64_t number : numbers) hash = mix(hash, static_cast<uint64_t>(number));
  text.resize(shown);
  text += text.empty() ? "#" : " .. #";
  for (int byte = 3; byte >= 0; --byte) append_hex(text, static_cast<uint8_t>(hash >> (8 * byte)));
  return text;
}

}  // namespace herd::comm
