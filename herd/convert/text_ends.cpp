#include "herd/convert/text_ends.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "herd/base/error.h"

namespace herd::convert {
namespace {

constexpr char kBegin[] = "begin_of_text", kEnd[] = "end_of_text", kNone[] = "none";

std::string text_of(const std::vector<int64_t>& ids) {
  if (ids.empty()) return kNone;
  std::string text;
  for (const int64_t id : ids) text += (text.empty() ? "" : ",") + std::to_string(id);
  return text;
}

std::vector<int64_t> ids_of(const char* name, std::string_view text) {
  std::vector<int64_t> ids;
  if (text == kNone) return ids;
  for (const char *at = text.data(), *end = at + text.size(); true; ++at) {
    int64_t id = -1;
    const auto [rest, error] = std::from_chars(at, end, id);
    if (error != std::errc() || id < 0 || (rest != end && *rest != ',')) {
      throw Error(Code::kCorruptFile, "the checkpoint's note \"" + std::string(name) + "\" is \"" + std::string(text) +
                                          "\", but must be token ids with commas between them, or none");
    }
    ids.push_back(id);
    if (rest == end) return ids;
    at = rest;
  }
}

}  // namespace

bool TextEnds::is_end(int64_t id) const { return std::find(end.begin(), end.end(), id) != end.end(); }

TextEnds default_text_ends() { return {1, {2}}; }

void write_text_ends(const TextEnds& ends, Notes& notes) {
  notes[kBegin] = ends.begin ? std::to_string(*ends.begin) : kNone;
  notes[kEnd] = text_of(ends.end);
}

TextEnds text_ends_of(const Notes& notes, const TextEnds& otherwise) {
  TextEnds ends = otherwise;
  if (const auto found = notes.find(kEnd); found != notes.end()) ends.end = ids_of(kEnd, found->second);
  if (const auto found = notes.find(kBegin); found != notes.end()) {
    const std::vector<int64_t> ids = ids_of(kBegin, found->second);
    ends.begin = ids.empty() ? std::nullopt : std::optional(ids[0]);
  }
  return ends;
}

}  // namespace herd::convert
