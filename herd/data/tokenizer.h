// Turns text into token ids and back, by byte-pair encoding of sentencepiece. The vocabulary that train() learns has
// all 256 bytes, so UTF-8 text comes back from decode(encode(text)) byte for byte. The one exception is U+2581, which
// sentencepiece writes for a space: it comes back as one. Bytes that are no UTF-8 come back as U+FFFD
// (text_encoding.h). Ids 0, 1, 2 are unknown (never produced), begin and end of text. Id 3 + b is byte b, so a line
// feed is 13, always alone: lines are encoded one by one. A model from elsewhere that load() reads may differ in all of
// this: ask end_of_text(). Its text is encoded as a whole, as LlamaTokenizer of Hugging Face's transformers does.
// Threads: const methods from any.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace herd {

class Tokenizer {
 public:
  // Learns `vocabulary` tokens from the text; the same text gives the same model. Throws kBadConfig if the text is
  // empty or does not hold that many different pieces (naming the largest vocabulary it allows). Throws it, too, if the
  // vocabulary is too small for the 256 bytes and the text's characters.
  static Tokenizer train(std::string_view text, int vocabulary);
  // Loads a model that save() wrote, or any sentencepiece model. Throws kBadConfig if there is no such file,
  // kCorruptFile if it is no model.
  static Tokenizer load(const std::filesystem::path& path);
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  bool is_herds() const;  // false: a model from elsewhere (learned_by_herd.h)
  int vocabulary() const;
  int end_of_text() const;
  std::string piece(int id) const;  // returns the text of an id, as sentencepiece writes it
  std::vector<int> encode(std::string_view text) const;
  // Returns the ids that a model continues. A tokenizer from elsewhere puts its begin of text, if it has one, before
  // those of encode(). Where that gives none, it is the end of text. Throws kBadConfig where there is no such token.
  std::vector<int> encode_prompt(std::string_view text) const;
  std::string decode(const std::vector<int>& ids) const;  // throws kBadConfig for an id outside the vocabulary
  void save(const std::filesystem::path& path) const;     // replaces the file at once or not at all

 private:
  struct State;
  explicit Tokenizer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace herd
