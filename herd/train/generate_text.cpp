#include "herd/train/generate_text.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <optional>

#include "herd/base/error.h"
#include "herd/base/printable.h"
#include "herd/base/units.h"
#include "herd/bridge/budget_allocator.h"
#include "herd/comm/inproc_world.h"
#include "herd/convert/companions.h"
#include "herd/convert/text_ends.h"
#include "herd/convert/weight_source.h"
#include "herd/data/text_encoding.h"
#include "herd/data/text_stream.h"
#include "herd/data/tokenizer.h"
#include "herd/models/decoder.h"
#include "herd/program/memory_bound.h"
#include "herd/spec/run_file.h"
#include "herd/strategies/techniques.h"
#include "herd/train/generation.h"
#include "herd/train/model_tensors.h"
#include "herd/train/take_weights.h"

namespace herd::train {
namespace {

std::filesystem::path find_tokenizer(const GenerateTextOptions& options, const convert::WeightSource& source) {
  if (!options.tokenizer.empty()) return options.tokenizer;
  const std::filesystem::path beside = source.path() / convert::kSentencePiece;
  const bool is_beside = std::filesystem::exists(beside);
  const auto& notes = source.manifest().notes;
  const auto note = notes.find("tokenizer");
  if (is_beside && (note == notes.end() || Tokenizer::load(beside).is_herds())) return beside;
  if (note != notes.end()) {
    throw Error(Code::kBadConfig, "the tokenizer of this checkpoint is not herd's: " + note->second +
                                      "\n  fix: --ids with the token ids of the prompt, or --tokenizer" +
                                      (is_beside ? " " + beside.string() + " to encode as LlamaTokenizer does" : ""));
  }
  const auto in_data = std::filesystem::path(source.run().data.path) / convert::kSentencePiece;
  if (source.run().data.kind == "tokens" && std::filesystem::exists(in_data)) return in_data;
  throw Error(Code::kBadConfig, "there is no tokenizer for " + source.path().string() + ": neither " + beside.string() +
                                    (source.run().data.kind == "tokens"
                                         ? " nor " + in_data.string()
                                         : ", nor data of tokens (data.kind = \"" + source.run().data.kind + "\")") +
                                    "\n  fix: --tokenizer with the tokenizer.model that it was trained with, or --ids "
                                    "with the token ids of the prompt");
}

Tokenizer load_tokenizer(const GenerateTextOptions& options, const convert::WeightSource& source) {
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

// Returns the ids that end a text: those of the checkpoint's notes, else those of herd tokenize if the model learned
// from its tokens. Random data has none.
convert::TextEnds ends_of(const Manifest& manifest, const spec::RunFile& run) {
  return convert::text_ends_of(manifest.notes,
                               run.data.kind == "tokens" ? convert::default_text_ends() : convert::TextEnds{});
}

// Writes the ids of the text. As in transformers, the id that ends the text is the last one written.
void generate_ids(Generation& generation, const convert::TextEnds& ends, const GenerateTextOptions& options) {
  std::string separator;
  const auto show_id = [&](int64_t id) {
    show(separator + std::to_string(id));
    separator = " ";
    return !ends.is_end(id);
  };
  for (const int64_t id : options.prompt_ids) show_id(id);
  models::GenerateOptions sample = options.sampling;
  sample.on_token = show_id;
  generation.run(options.prompt_ids, sample);
  show("\n");
}

std::vector<int64_t> ids_of(const Tokenizer& tokenizer, const std::string& text) {
  const std::vector<int> ids = tokenizer.encode_prompt(text);
  return {ids.begin(), ids.end()};
}

void generate_text(Generation& generation, const Tokenizer& tokenizer, const convert::TextEnds& ends,
                   const std::vector<int64_t>& prompt, const GenerateTextOptions& options) {
  TextStream stream(tokenizer);
  show(stream.add(std::vector<int>(prompt.begin(), prompt.end())));
  models::GenerateOptions sample = options.sampling;
  sample.vocabulary = tokenizer.vocabulary();  // that of a model may be larger
  sample.on_token = [&](int64_t id) {
    if (id == tokenizer.end_of_text() || ends.is_end(id)) return false;
    show(stream.add(static_cast<int>(id)));
    return true;
  };
  generation.run(prompt, sample);
  show(stream.rest() + "\n");
}

// Throws kOverBudget, before anything is allocated, where a pass needs more.
void check_budget(const strategies::GenerationPrograms& programs, int64_t budget) {
  program::Peak peak;
  for (const program::Program& pass : {programs.prompt, programs.token}) {
    program::Peak peak_of_pass = peak_bound(pass, program::Tier::kDevice);
    if (peak_of_pass.bytes > peak.bytes) peak = std::move(peak_of_pass);
  }
  if (budget == 0 || peak.bytes <= budget) return;
  const int64_t enough = peak.bytes + peak.bytes * 3 / 100;  // kernels take a little beside what is counted
  throw Error(Code::kOverBudget, "the text needs up to " + format_bytes(static_cast<double>(peak.bytes)) +
                                     " of device memory, but --budget is " + format_bytes(static_cast<double>(budget)) +
                                     "\n" + memory_table(peak) + "  fix: --budget " +
                                     std::to_string((enough + 1023) / 1024) + "KiB");
}

}  // namespace

std::vector<int64_t> parse_prompt_ids(const std::string& words) {
  std::vector<int64_t> ids;
  for (size_t begin = 0; begin <= words.size();) {
    const size_t end = std::min(words.find(',', begin), words.size());
    int64_t id = -1;
    const auto [stop, error] = std::from_chars(words.data() + begin, words.data() + end, id);
    if (error != std::errc() || stop != words.data() + end || id < 0) {
      const std::string word = words.substr(begin, end - begin);
      throw Error(Code::kBadConfig,
                  "--ids \"" + printable(words) + "\": id " + std::to_string(ids.size() + 1) +
                      (word.empty() ? " is missing" : " is no token id: \"" + printable(word) + "\"") +
                      "\n  fix: whole numbers with commas between them, --ids 464,2068");
    }
    ids.push_back(id);
    begin = end + 1;
  }
  return ids;
}

void generate(const GenerateTextOptions& options) {
  if (!options.replace_bad_bytes)
    require_utf8(options.prompt, "--prompt", "--replace-bad-bytes for U+FFFD in the place of each such byte");
  const auto source = convert::open_weights(options.checkpoint);
  const spec::RunFile& run = source->run();
  const spec::RunFile single_rank_run = strategies::generation_run(run);
  check_ids(options.prompt_ids, run.model.vocab);
  std::optional<Tokenizer> tokenizer;
  if (options.prompt_ids.empty()) tokenizer = load_tokenizer(options, *source);
  const std::vector<int64_t> prompt = tokenizer ? ids_of(*tokenizer, options.prompt) : options.prompt_ids;
  check_request(prompt, options.sampling);  // before anything is printed

  const models::Model model = models::make_model(single_rank_run.model);
  const int64_t tokens =
      max_tokens_per_pass(static_cast<int64_t>(prompt.size()), options.sampling.max_tokens, model.context);
  const strategies::GenerationPrograms programs =
      strategies::compile_generation(single_rank_run, strategies::trainable_layout(single_rank_run, 1), tokens).at(0);
  check_budget(programs, options.budget_bytes);
  if (options.budget_bytes > 0) DeviceMemory::install(), DeviceMemory::set_budget(options.budget_bytes);
  Communicator comm = world_of_one();
  const runtime::AxisGroups groups(comm, programs.token);
  runtime::FlatParameters parameters(model.groups, programs.token, comm, {}, std::nullopt);
  std::vector<NamedTensor> tensors = own_weights(parameters);
  for (const auto& block : model.blocks) {
    for (const nn::Buffer& buffer : block->buffers()) tensors.push_back(whole_tensor(buffer.name, buffer.value));
  }
  take_weights(*source, tensors);
  Generation generation(programs, model, parameters, groups);
  const convert::TextEnds ends = ends_of(source->manifest(), run);
  if (tokenizer)
    generate_text(generation, *tokenizer, ends, prompt, options);
  else
    generate_ids(generation, ends, options);
}

}  // namespace herd::train
