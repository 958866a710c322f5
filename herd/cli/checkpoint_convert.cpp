#include "herd/cli/checkpoint_convert.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "herd/base/units.h"
#include "herd/cli/progress_line.h"

namespace herd::cli {
namespace {

constexpr char kConvertHelp[] =
    R"help(SOURCE is a checkpoint (or a run's folder: its newest whole one), or a folder of Hugging Face's transformers with
the config.json of a GPT-2 and its *.safetensors. What is written holds weights alone: for inference, for another
program, or to start a training from (model.weights), not to resume one. A 16-bit weight is rounded to nearest.
Checksums of a herd checkpoint are compared while it is read; --out appears when it is whole, or not at all.
Tokenizers are not converted. A model from herd tokenize speaks in ids of its tokenizer.model; one from GPT-2 in those of
GPT-2's tokenizer, which herd does not read: herd generate --ids takes and prints ids.
  herd checkpoint convert runs/mine --to gpt2 --out gpt2-mine
  python -c "from transformers import GPT2LMHeadModel as M; print(M.from_pretrained('gpt2-mine'))"
  herd checkpoint convert gpt2 --to herd --out gpt2-herd && herd train run.toml model.weights=gpt2-herd)help";

}  // namespace

std::string convert_checkpoint(convert::ConvertOptions options) {
  convert::Converted result;
  {
    ProgressLine line("convert", true);
    options.progress = [&](int64_t done, int64_t all) { line.update(done, all); };
    result = convert::convert(options);
  }
  const auto& m = result.run.model;
  return options.out.string() + ": " +
         (options.to == convert::Format::kGpt2 ? "config.json and model.safetensors" : "checkpoint") + " of " + m.kind +
         " with " + std::to_string(m.layers) + " layers of width " + std::to_string(m.width) + ", " +
         std::to_string(result.parameters) + " weights in " + std::string(dtype_name(options.dtype)) + " (" +
         format_bytes(static_cast<double>(result.bytes)) + "); no optimizer states, no tokenizer\n";
}

void add_checkpoint_convert_command(CLI::App& app) {
  struct Words {
    std::string to = "herd", dtype = "fp32";
    bool overwrite = false;
  };
  auto options = std::make_shared<convert::ConvertOptions>();
  auto words = std::make_shared<Words>();
  CLI::App* command = app.add_subcommand("convert", "Weights in another format (Hugging Face's GPT-2) or precision");
  command->add_option("SOURCE", options->source, "a checkpoint, a run's folder, or a folder with config.json")
      ->required();
  command->add_option("--out", options->out, "the folder to write")->required();
  command->add_option("--to", words->to, "herd = a checkpoint; gpt2 = config.json and model.safetensors")
      ->check(CLI::IsMember({"herd", "gpt2"}))
      ->capture_default_str();
  command->add_option("--dtype", words->dtype, "of the weights written")
      ->check(CLI::IsMember({"fp32", "bf16", "fp16"}))
      ->capture_default_str();
  command->add_flag("--overwrite", words->overwrite, "replace a checkpoint that stands at --out");
  command->footer(kConvertHelp);
  command->callback([options, words] {
    options->to = words->to == "gpt2" ? convert::Format::kGpt2 : convert::Format::kHerd;
    options->dtype = parse_dtype(words->dtype);
    if (words->overwrite) options->replace = Replace::kModels;
    std::fputs(convert_checkpoint(*options).c_str(), stdout);
  });
}

}  // namespace herd::cli
