#include "herd/cli/checkpoint_convert.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>

#include "herd/base/units.h"
#include "herd/cli/progress_line.h"
#include "herd/data/tokenizer.h"
#include "herd/data/transformers_tokenizer.h"
#include "herd/storage/small_file.h"

namespace herd::cli {
namespace {

constexpr char kConvertHelp[] =
    R"help(SOURCE is a checkpoint (or a run's folder: its newest whole one), or a folder of Hugging Face's transformers with
the config.json of a GPT-2, a BERT, a Llama, a Qwen or a mixture of experts and its *.safetensors. What is written holds
weights alone: for inference, for another program, or to start a training from (model.weights), not to resume one. A
16-bit weight is rounded to nearest.
Checksums of a herd checkpoint are compared while it is read; --out appears when it is whole, or not at all.
The tokenizer goes along: the files of SOURCE that transformers knows, and generation_config.json; of a model that was
trained on text from herd tokenize its tokenizer.model, for transformers as tokenizer.json as well. A tokenizer of theirs
is kept and not read: herd generate --ids takes and prints ids, and --tokenizer reads the tokenizer.model of a Llama.
  herd checkpoint convert runs/mine --to gpt2 --out gpt2-mine
  python -c "from transformers import GPT2LMHeadModel as M; print(M.from_pretrained('gpt2-mine'))"
  herd checkpoint convert gpt2 --to herd --out gpt2-herd && herd train run.toml model.weights=gpt2-herd)help";

std::string companions_text(const std::vector<std::string>& companions) {
  if (companions.empty()) return "no tokenizer";
  std::string text;
  for (const std::string& name : companions) text += (text.empty() ? "with " : ", ") + name;
  return text;
}

}  // namespace

convert::Companions tokenizer_of_data(const convert::WeightSource& source, convert::Format to) {
  const auto& run = source.run();
  if (source.manifest().notes.contains("tokenizer")) return {};  // the tokenizer is not one of herd's
  std::filesystem::path path = source.path() / convert::kSentencePiece;
  if (!std::filesystem::exists(path) && run.data.kind == "tokens")
    path = std::filesystem::path(run.data.path) / convert::kSentencePiece;
  if (!std::filesystem::exists(path)) return {};
  const Tokenizer tokenizer = Tokenizer::load(path);
  if (tokenizer.vocabulary() > run.model.vocab) return {};  // that folder holds other data by now
  convert::Companions files;
  const SmallFile& model = files[convert::kSentencePiece] = read_small_file(path);
  if (to != convert::Format::kHerd && tokenizer.is_herds()) {
    files["tokenizer.json"] = {transformers_tokenizer(tokenizer), model.mode};
    files["tokenizer_config.json"] = {transformers_tokenizer_config(), model.mode};
  }
  return files;
}

std::string convert_checkpoint(convert::ConvertOptions options) {
  convert::Converted result;
  {
    ProgressLine line("convert", true);
    options.progress = [&](int64_t done, int64_t total) { line.update(done, total); };
    options.extra_companions = [&](const convert::WeightSource& source) {
      return tokenizer_of_data(source, options.to);
    };
    result = convert::convert(options);
  }
  for (const std::string& warning : result.warnings) std::fprintf(stderr, "herd: warning: %s\n", warning.c_str());
  const auto& m = result.run.model;
  return options.out.string() + ": " +
         (options.to == convert::Format::kHerd ? "checkpoint" : "config.json and model.safetensors") + " of " + m.kind +
         " with " + std::to_string(m.layers) + " layers of width " + std::to_string(m.width) + ", " +
         std::to_string(result.parameters) + " weights in " + std::string(dtype_name(options.dtype)) + " (" +
         format_bytes(static_cast<double>(result.bytes)) + "); no optimizer states, " +
         companions_text(result.companions) + "\n";
}

void add_checkpoint_convert_command(CLI::App& app) {
  struct OptionTexts {
    std::string to = "herd", dtype = "fp32";
    bool overwrite = false;
  };
  auto options = std::make_shared<convert::ConvertOptions>();
  auto texts = std::make_shared<OptionTexts>();
  CLI::App* command = app.add_subcommand(
      "convert", "Weights in another format (Hugging Face's GPT-2, BERT, Llama, Qwen and mixtures) or precision");
  command->add_option("SOURCE", options->source, "a checkpoint, a run's folder, or a folder with config.json")
      ->required();
  command->add_option("--out", options->out, "the folder to write")->required();
  const std::vector<std::string> formats(std::begin(convert::kFormatNames), std::end(convert::kFormatNames));
  // The list stands in the text, which is broken into lines, and not in the type, which is not.
  command
      ->add_option("--to", texts->to,
                   "one of " + CLI::detail::join(formats, ", ") +
                       "; herd = a checkpoint, the others = config.json and model.safetensors")
      ->check(CLI::IsMember(formats).description(""))
      ->capture_default_str();
  command->add_option("--dtype", texts->dtype, "of the weights written")
      ->check(CLI::IsMember({"fp32", "bf16", "fp16"}))
      ->capture_default_str();
  command->add_flag("--overwrite", texts->overwrite, "replace a checkpoint that stands at --out");
  command->footer(kConvertHelp);
  command->callback([options, texts] {
    options->to = static_cast<convert::Format>(std::ranges::find(convert::kFormatNames, texts->to) -
                                               std::begin(convert::kFormatNames));
    options->dtype = parse_dtype(texts->dtype);
    if (texts->overwrite) options->replace = Replace::kModels;
    std::fputs(convert_checkpoint(*options).c_str(), stdout);
  });
}

}  // namespace herd::cli
