// Notes of a checkpoint, one NAME=value a line: the token ids that end a text, which come back from their own notes, or
// kCorruptFile.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "accepted.h"
#include "herd/base/error.h"
#include "herd/convert/text_ends.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace herd::convert;
  Notes notes;
  for (std::string_view rest(reinterpret_cast<const char*>(data), size); !rest.empty();) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    const size_t sign = std::min(line.find('='), line.size());
    notes[std::string(line.substr(0, sign))] = line.substr(std::min(line.size(), sign + 1));
  }
  try {
    const TextEnds ends = text_ends_of(notes, default_text_ends());
    for (const int64_t id : ends.end) {
      if (id < 0 || !ends.is_end(id)) std::abort();
    }
    Notes again;
    write_text_ends(ends, again);
    if (!(text_ends_of(again, {}) == ends)) std::abort();
    if (!ends.end.empty()) ++num_accepted;
  } catch (const herd::Error& error) {
    if (error.code() != herd::Code::kCorruptFile) throw;
  }
  return 0;
}
