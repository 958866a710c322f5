// herd-trainer: what `herd train` and `herd generate` run, since it needs libtorch.
//   herd-trainer train FILE.toml [section.key=value ...]      one rank; who it is comes from the launcher's environment
//   herd-trainer generate CHECKPOINT --prompt TEXT ...
//   herd-trainer --version                                     herd's and libtorch's; herd doctor asks
// Exit status: 0, 2 for a request that can't be met, 1 for everything else that ends a run.
#include <CLI/CLI.hpp>

#include <torch/version.h>

#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "herd/base/error.h"
#include "herd/base/standard_streams.h"
#include "herd/base/units.h"
#include "herd/base/version.h"
#include "herd/launch/help_text.h"
#include "herd/train/generate_text.h"
#include "herd/train/train_rank.h"

namespace {

struct TrainOptions {
  std::string file;
  std::vector<std::string> overrides;
};

void add_train(CLI::App& app, TrainOptions& options) {
  CLI::App* train = app.add_subcommand("train", "one rank of a run; the launcher's environment says which");
  train->add_option("FILE", options.file, "the run file")->required();
  train->add_option("OVERRIDES", options.overrides, "section.key=value");
}

void add_generate(CLI::App& app, herd::train::GenerateTextOptions& options) {
  CLI::App* generate = app.add_subcommand("generate", "continue a text with the model of a checkpoint");
  generate
      ->add_option("CHECKPOINT", options.checkpoint,
                   "a checkpoint, a folder that holds some (then the newest), or one of transformers")
      ->required();
  CLI::Option* prompt = generate->add_option("--prompt", options.prompt, "the text to continue");
  CLI::Option* ids =
      generate
          ->add_option_function<std::string>(
              "--ids",
              [&options](const std::string& words) { options.prompt_ids = herd::train::parse_prompt_ids(words); },
              "token ids to continue, 464,2068: then ids are printed")
          ->excludes(prompt);
  generate->callback([prompt, ids] {
    if (prompt->empty() && ids->empty()) throw CLI::RequiredError("--prompt or --ids");
  });
  generate->add_flag("--replace-bad-bytes", options.replace_bad_bytes,
                     "U+FFFD for each byte of the prompt that is no UTF-8; without it such a prompt is an error");
  generate
      ->add_option("--tokens", options.sampling.max_tokens, "how many to add, at most; an end of text stops earlier")
      ->capture_default_str();
  generate->add_option("--temperature", options.sampling.temperature, "0 = always the likeliest")
      ->capture_default_str();
  generate->add_option("--top-k", options.sampling.top_k, "only the k likeliest; 0 = all")->capture_default_str();
  generate->add_option("--seed", options.sampling.seed, "the same seed gives the same text")->capture_default_str();
  generate->add_option_function<std::string>(
      "--budget", [&options](const std::string& text) { options.budget_bytes = herd::parse_bytes(text); },
      "device memory that it may take, as 4GiB: where it needs more, it says so and does not begin");
  generate->add_option(
      "--tokenizer", options.tokenizer,
      "tokenizer.model, herd's or a Llama's; default: the one beside the weights or in the run's data folder");
}

int run_command(int argc, char** argv) {
  CLI::App app("The part of the herd command that needs libtorch", "herd");
  app.require_subcommand(1);
  app.set_version_flag("--version", std::string("herd ") + herd::version() + ", libtorch " + TORCH_VERSION);
  TrainOptions train_options;
  add_train(app, train_options);
  herd::train::GenerateTextOptions generate_options;
  add_generate(app, generate_options);
  try {
    app.parse(argc, argv);
    if (app.got_subcommand("train")) return herd::train::train_rank(train_options.file, train_options.overrides);
    herd::train::generate(generate_options);
    return 0;
  } catch (const CLI::ParseError& wrong) {
    std::ostringstream out, problems;
    const int status = app.exit(wrong, out, problems);
    std::fputs(herd::launch::fitted(out.str(), herd::launch::terminal_width()).c_str(), stdout);
    herd::launch::print_error(problems.str());
    return status == 0 ? 0 : 2;
  } catch (const herd::Error& error) {
    herd::launch::print_error("herd: " + std::string(error.what()) + "\n");
    return herd::train::exit_status(error);
  } catch (const std::exception& error) {
    herd::launch::print_error("herd: " + std::string(error.what()) + "\n");
    return 1;
  }
}

}  // namespace

int main(int argc, char** argv) {
  herd::open_missing_streams();
  const int status = herd::flush_output(run_command(argc, argv));
  std::fflush(nullptr);  // the log's file, too
  // libtorch's destructors, which unregister every operator, would take 0.15 s of each rank.
  std::_Exit(status);
}
