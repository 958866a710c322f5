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
  std::optional<int64_t> begin = {};  // begins a text, where one is needed
  std::vector<int64_t> end = {};      // any of them ends a text
  bool is_end(int64_t id) const;
  bool operator==(const TextEnds&) const = default;
};

TextEnds default_text_ends();  // returns 1 and 2, those of the tokenizers that herd tokenize makes

using Notes = std::map<std::string, std::string>;
// Writes the two notes.
void write_text_ends(const TextEnds& ends, Notes& notes);
// Reads the two notes; `otherwise` stands for one that is missing. Throws kCorruptFile with a note that holds no ids.
TextEnds text_ends_of(const Notes& notes, const TextEnds& otherwise);

}  // namespace herd::convert
