// Decides which token ids begin and end a text for the tokenizer that a model was trained with. A checkpoint keeps them
// in its notes "begin_of_text" and "end_of_text": ids with commas between them, or "none". Ids that the model's
// vocabulary does not have are legal and never come. Threads: pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace herd::convert {

struct TextEnds {
  std::optional<int64_t> begin = {};
  std::vector<int64_t> end = {};  // any of them ends a text
  bool is_end(int64_t id) const;
  bool operator==(const TextEnds&) const = default;
};

TextEnds text_ends_of_herd();  // of the tokenizers that herd tokenize makes: 1 and 2

using Notes = std::map<std::string, std::string>;
void note(const TextEnds& ends, Notes& notes);
// `otherwise` stands for a note that is not there. Throws kCorruptFile naming a note that holds no ids.
TextEnds text_ends_of(const Notes& notes, const TextEnds& otherwise);

}  // namespace herd::convert
