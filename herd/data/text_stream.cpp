#include "herd/data/text_stream.h"

namespace herd {
namespace {

// Returns the bytes of `text` without the replacement characters at its end. Up to three of them may stand for the
// first bytes of a character.
size_t certain_bytes(const std::string& text) {
  constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
  size_t end = text.size();
  for (int bytes = 0; bytes < 3 && std::string_view(text).substr(0, end).ends_with(kReplacement); ++bytes)
    end -= kReplacement.size();
  return end;
}

}  // namespace

std::string TextStream::next(bool last) {
  const std::string text = tokenizer_.decode(ids_);
  const size_t begin = shown_;
  shown_ = last ? text.size() : certain_bytes(text);
  return text.substr(begin, shown_ - begin);
}

std::string TextStream::add(std::span<const int> ids) {
  ids_.insert(ids_.end(), ids.begin(), ids.end());
  return next(false);
}

std::string TextStream::rest() { return next(true); }

}  // namespace herd
