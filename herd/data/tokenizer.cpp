#include "herd/data/tokenizer.h"

#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <unordered_map>

#include "herd/base/check.h"
#include "herd/base/error.h"
#include "herd/base/regular_file.h"
#include "herd/data/learned_by_herd.h"
#include "herd/data/text_encoding.h"
#include "herd/storage/atomic_file.h"

namespace herd {
namespace {

constexpr size_t kLongestTrainingPiece = 4096;  // bytes; longer lines are learned from in parts
constexpr int kFixedPieces = 3 + 256;           // unknown, begin, end, and every byte

// Iterates over the lines of a text, without line feeds and in parts no longer than the trainer takes.
class Lines final : public sentencepiece::SentenceIterator {
 public:
  explicit Lines(std::string_view text) : remaining_(text) { Next(); }
  bool done() const override { return done_; }
  const std::string& value() const override { return line_; }
  sentencepiece::util::Status status() const override { return {}; }
  void Next() override {
    do {
      done_ = remaining_.empty();
      if (done_) return;
      const size_t line_bytes = std::min(remaining_.find('\n'), remaining_.size());
      const size_t end = whole_characters(remaining_, std::min(line_bytes, kLongestTrainingPiece));
      line_ = remaining_.substr(0, end);
      remaining_.remove_prefix(std::min(remaining_.size(), end + (end < remaining_.size() && remaining_[end] == '\n')));
    } while (line_.empty());
  }

 private:
  std::string_view remaining_;
  std::string line_;
  bool done_ = false;
};

[[noreturn]] void refuse_training(size_t text_bytes, int vocabulary, const std::string& reason) {
  throw Error(Code::kBadConfig, "can't learn a vocabulary of " + std::to_string(vocabulary) + " from " +
                                    std::to_string(text_bytes) + " bytes of text: " + reason);
}

// Returns the number after the last `mark` in a message of sentencepiece, or 0.
int number_after(const std::string& message, const std::string& mark) {
  const size_t at = message.rfind(mark);
  return at == std::string::npos ? 0 : std::atoi(message.c_str() + at + mark.size());
}

// Throws the trainer's two known refusals in herd's words, and any other as it stands.
[[noreturn]] void explain_refusal(const std::string& message, size_t text_bytes, int vocabulary) {
  if (const int max_pieces = number_after(message, "value <= "); max_pieces > 0) {
    refuse_training(text_bytes, vocabulary,
                    "it holds only " + std::to_string(max_pieces) + " different pieces\n  fix: --vocab " +
                        std::to_string(max_pieces) + " or less, or more text");
  }
  if (const int min_pieces = number_after(message, " vs "); min_pieces > 0) {
    refuse_training(text_bytes, vocabulary,
                    "its characters, the 256 bytes and the three marks alone take " + std::to_string(min_pieces) +
                        "\n  fix: --vocab " + std::to_string(min_pieces) + " or more");
  }
  refuse_training(text_bytes, vocabulary, message);
}

std::string read_file(const std::filesystem::path& path) {
  std::optional<std::string> text = read_regular_file(path);
  if (!text) {
    throw Error(Code::kBadConfig, "there is no tokenizer at " + path.string() +
                                      "\n  fix: herd tokenize FILES... --out " + path.parent_path().string());
  }
  return *std::move(text);
}

}  // namespace

struct Tokenizer::State {
  sentencepiece::SentencePieceProcessor model;
  std::string serialized;
  int line_feed = -1;  // the id of a line feed between lines; -1: a text is encoded as a whole
};

Tokenizer::Tokenizer(std::unique_ptr<State> state) : state_(std::move(state)) {
  if (is_learned_by_herd(state_->serialized)) state_->line_feed = state_->model.PieceToId("<0x0A>");
}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Tokenizer Tokenizer::train(std::string_view text, int vocabulary) {
  if (vocabulary <= kFixedPieces) {
    refuse_training(text.size(), vocabulary,
                    "259 are taken by the bytes and the three marks\n  fix: --vocab 512 or more");
  }
  Lines lines(text);
  if (lines.done()) refuse_training(text.size(), vocabulary, "it holds no words\n  fix: name files with text");
  // The trainer reserves what it is asked for before it refuses. More pieces than these no text makes: its characters,
  // and one for each merge of two pieces, of which a line begins with one more.
  const int64_t most_pieces = kFixedPieces + 16 + 4 * static_cast<int64_t>(text.size());
  auto state = std::make_unique<State>();
  const auto status = sentencepiece::SentencePieceTrainer::Train(
      {{"model_type", "bpe"},
       {"vocab_size", std::to_string(std::min<int64_t>(vocabulary, most_pieces))},
       {"byte_fallback", "true"},
       {"normalization_rule_name", "identity"},
       {"remove_extra_whitespaces", "false"},
       {"character_coverage", "0.9999"},
       {"max_sentence_length", std::to_string(kLongestTrainingPiece)},
       {"num_threads", "1"},
       {"minloglevel", "2"}},
      &lines, &state->serialized);
  if (!status.ok()) explain_refusal(status.ToString(), text.size(), vocabulary);
  const auto loaded = state->model.LoadFromSerializedProto(state->serialized);
  HERD_CHECK(loaded.ok(), loaded.ToString());
  HERD_CHECK_EQ(state->model.GetPieceSize(), vocabulary);
  return Tokenizer(std::move(state));
}

Tokenizer Tokenizer::load(const std::filesystem::path& path) {
  auto state = std::make_unique<State>();
  state->serialized = read_file(path);
  const auto status = state->model.LoadFromSerializedProto(state->serialized);
  if (!status.ok() || state->model.GetPieceSize() == 0) {
    throw Error(Code::kCorruptFile, path.string() + " at byte 0: not a sentencepiece model: " + status.ToString() +
                                        "\n  fix: write it again with herd tokenize");
  }
  return Tokenizer(std::move(state));
}

bool Tokenizer::is_herds() const { return state_->line_feed >= 0; }

int Tokenizer::vocabulary() const { return state_->model.GetPieceSize(); }

int Tokenizer::end_of_text() const { return state_->model.eos_id(); }

std::string Tokenizer::piece(int id) const {
  HERD_CHECK(id >= 0 && id < vocabulary(), "a piece of the vocabulary");
  return state_->model.IdToPiece(id);
}

std::vector<int> Tokenizer::encode(std::string_view text) const {
  std::vector<int> ids, line_ids;
  while (true) {
    const size_t end = state_->line_feed < 0 ? text.npos : text.find('\n');
    const auto status = state_->model.Encode(text.substr(0, end), &line_ids);
    HERD_CHECK(status.ok(), status.ToString());
    ids.insert(ids.end(), line_ids.begin(), line_ids.end());
    if (end == text.npos) return ids;
    ids.push_back(state_->line_feed);
    text.remove_prefix(end + 1);
  }
}

std::vector<int> Tokenizer::encode_prompt(std::string_view text) const {
  std::vector<int> ids = encode(text);
  if (!is_herds() && state_->model.bos_id() >= 0) ids.insert(ids.begin(), state_->model.bos_id());
  if (!ids.empty()) return ids;
  if (end_of_text() < 0) {
    throw Error(Code::kBadConfig,
                "the prompt is empty, and the tokenizer has no token that begins or ends a text\n  fix: a prompt of at "
                "least one character");
  }
  return {end_of_text()};
}

std::string Tokenizer::decode(const std::vector<int>& ids) const {
  std::string text, line;
  std::vector<int> line_ids;
  const auto flush = [&] {
    const auto status = state_->model.Decode(line_ids, &line);
    HERD_CHECK(status.ok(), status.ToString());
    text += line;
    line_ids.clear();
  };
  for (const int id : ids) {
    if (id < 0 || id >= vocabulary()) {
      throw Error(Code::kBadConfig, "id " + std::to_string(id) + " is not in the tokenizer's vocabulary [0, " +
                                        std::to_string(vocabulary()) + ")");
    }
    if (line_ids.empty() && id == state_->model.bos_id() && !is_herds()) continue;  // shows as nothing
    if (id != state_->line_feed) {
      line_ids.push_back(id);
      continue;
    }
    flush();
    text += '\n';
  }
  flush();
  return text;
}

void Tokenizer::save(const std::filesystem::path& path) const { write_file_atomically(path, state_->serialized); }

}  // namespace herd
