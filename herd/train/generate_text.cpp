#include "herd/train/generate_text.h"

#include <cstdio>
#include <filesystem>
#include <optional>

#include "herd/base/error.h"
#include "herd/comm/communicator.h"
#include "herd/convert/companions.h"
#include "herd/convert/text_ends.h"
#include "herd/convert/weight_source.h"
#include "herd/data/text_stream.h"
#include "herd/data/tokenizer.h"
#include "herd/models/decoder.h"
#include "herd/models/sampling.h"
#include "herd/spec/run_file.h"
#include "herd/train/model_tensors.h"
#include "herd/train/take_weights.h"

namespace herd::train {
namespace {

std::filesystem::path find_tokenizer(const GenerateOptions& options, const convert::WeightSource& source) {
  if (!options.tokenizer.empty()) return options.tokenizer;
  const auto& notes = source.facts().notes;
  if (const auto note = notes.find("tokenizer"); note != notes.end()) {
    throw Error(Code::kBadConfig, "the tokenizer of this checkpoint is not herd's: " + note->second +
                                      "\n  fix: --ids with the token ids of the prompt, or --tokenizer");
  }
  const std::filesystem::path beside = source.path() / convert::kSentencePiece;
  if (std::filesystem::exists(beside)) return beside;
  const auto in_data = std::filesystem::path(source.run().data.path) / convert::kSentencePiece;
  if (source.run().data.kind == "tokens" && std::filesystem::exists(in_data)) return in_data;
  throw Error(Code::kBadConfig, "there is no tokenizer for " + source.path().string() + ": neither " + beside.string() +
                                    (source.run().data.kind == "tokens"
                                         ? " nor " + in_data.string()
                                         : ", nor data of tokens (data.kind = \"" + source.run().data.kind + "\")") +
                                    "\n  fix: --tokenizer with the tokenizer.model that it was trained with, or --ids "
                                    "with the token ids of the prompt");
}

Tokenizer load_tokenizer(const GenerateOptions& options, const convert::WeightSource& source) {
  Tokenizer tokenizer = Tokenizer::load(find_tokenizer(options, source));
  const int64_t vocabulary = source.run().model.vocab;
  if (tokenizer.vocabulary() <= vocabulary) return tokenizer;
  throw Error(Code::kBadConfig, "the tokenizer has " + std::to_string(tokenizer.vocabulary()) + " tokens, the model " +
                                    std::to_string(vocabulary) +
                                    "\n  fix: --tokenizer with the one it was trained with");
}

void show(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

void check_ids(const std::vector<int64_t>& ids, int64_t vocabulary) {
  for (const int64_t id : ids) {
    if (id < 0 || id >= vocabulary)
      throw Error(Code::kBadConfig, "the model has no token " + std::to_string(id) + "\n  fix: --ids from 0 to " +
                                        std::to_string(vocabulary - 1));
  }
}

// Ids that end a text: what the checkpoint's notes say, else those of herd tokenize where the model learned from its
// tokens. Random data has no end.
convert::TextEnds ends_of(const Manifest& manifest, const spec::RunFile& run) {
  return convert::text_ends_of(manifest.notes,
                               run.data.kind == "tokens" ? convert::text_ends_of_herd() : convert::TextEnds{});
}

// As transformers does, the id that ends the text is the last one written.
void generate_ids(const models::Model& model, const convert::TextEnds& ends, const GenerateOptions& options) {
  std::string separator;
  const auto show_id = [&](int64_t id) {
    show(separator + std::to_string(id));
    separator = " ";
    return !ends.is_end(id);
  };
  for (const int64_t id : options.ids) show_id(id);
  models::GenerateOptions sample = options.sample;
  sample.on_token = show_id;
  models::generate(model, options.ids, sample);
  show("\n");
}

void generate_text(const models::Model& model, const Tokenizer& tokenizer, const convert::TextEnds& ends,
                   const GenerateOptions& options) {
  std::vector<int> ids = tokenizer.encode(options.prompt);
  if (ids.empty()) ids = {tokenizer.end_of_text()};
  const std::vector<int64_t> prompt(ids.begin(), ids.end());
  TextStream stream(tokenizer);
  show(stream.add(ids));
  models::GenerateOptions sample = options.sample;
  sample.on_token = [&](int64_t id) {
    if (id == tokenizer.end_of_text() || ends.is_end(id)) return false;
    show(stream.add(static_cast<int>(id)));
    return true;
  };
  models::generate(model, prompt, sample);
  show(stream.rest() + "\n");
}

}  // namespace

void generate(const GenerateOptions& options) {
  const auto source = convert::open_weights(options.checkpoint);
  const spec::RunFile& run = source->run();
  check_ids(options.ids, run.model.vocab);
  std::optional<Tokenizer> tokenizer;
  if (options.ids.empty()) tokenizer = load_tokenizer(options, *source);
  const models::Model model = models::make_model(run.model);
  std::vector<NamedTensor> tensors = whole_weights(model);  // of the optimizer nothing is read
  take_weights(*source, tensors);
  const convert::TextEnds ends = ends_of(source->facts(), run);
  if (tokenizer)
    generate_text(model, *tokenizer, ends, options);
  else
    generate_ids(model, ends, options);
}

}  // namespace herd::train
