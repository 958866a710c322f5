// Decodes tokens into text as they come, in whole characters. A character that no token of the vocabulary holds comes
// as up to four byte tokens. Until the last of them the tokenizer has only replacement characters for it.
//
//   TextStream text(tokenizer);
//   for (int id : ids) print(text.add(id));
//   print(text.rest());
//
// All parts together are tokenizer.decode(ids). Threads: one at a time.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "herd/data/tokenizer.h"

namespace herd {

class TextStream {
 public:
  explicit TextStream(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}  // borrows it
  std::string add(std::span<const int> ids);  // returns the text that is certain now and was not before; may be empty
  std::string add(int id) { return add(std::span(&id, 1)); }
  std::string rest();  // returns what is left at the end, as decode() shows it

 private:
  std::string next(bool last);

  const Tokenizer& tokenizer_;
  std::vector<int> ids_;
  size_t shown_ = 0;  // bytes of the text so far that add() and rest() have returned
};

}  // namespace herd
