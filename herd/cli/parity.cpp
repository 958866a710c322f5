#include "herd/cli/parity.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <sstream>

#include "herd/base/error.h"
#include "herd/base/scratch_folder.h"
#include "herd/cli/difference.h"
#include "herd/cli/read_run_file.h"
#include "herd/cli/run.h"
#include "herd/cli/train.h"
#include "herd/cli/trainer_process.h"
#include "herd/storage/checkpoint_folder.h"
#include "herd/storage/metrics.h"

namespace herd::cli {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> split_words(const std::string& text) {
  std::istringstream in(text);
  return {std::istream_iterator<std::string>(in), {}};
}

// Makes a temporary folder, and removes it at the end unless it is kept.
class ScratchFolder {
 public:
  explicit ScratchFolder(bool keep) : keep_(keep), path_(make_scratch_folder("herd-parity")) {}
  ~ScratchFolder() {
    std::error_code ignored;
    if (keep_)
      std::printf("runs: %s\n", path_.c_str());
    else
      fs::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  bool keep_;
  fs::path path_;
};

// Holds the result of one of the two runs that are compared.
struct Side {
  fs::path folder;
  std::vector<double> losses;
  int64_t close = 0;             // choices of experts that another rounding may change, of all tokens, layers and steps
  bool is_half_mixture = false;  // its layouts differ by more than what counts as close
};

// Trains as `herd train` does, or by the program of an own model. Returns the exit status.
int run_ranks(const TrainOptions& train, const std::string& program) {
  if (program.empty()) return run_train(train);
  RunOptions run;
  run.ranks = train.ranks;
  run.command = split_words(program);
  run.command.push_back(train.file);
  run.command.insert(run.command.end(), train.overrides.begin(), train.overrides.end());
  return run_run(run);
}

Side read_side(const fs::path& folder) {
  Side side;
  side.folder = folder;
  for (const StepMetrics& step : read_metrics(folder / "metrics.jsonl")) {
    side.losses.push_back(step.loss);
    for (const int64_t tokens : step.close_choices) side.close += tokens;
  }
  return side;
}

// `routing` is the key of [train] that records or replays the experts of tokens, where there are any; empty = neither.
Side run_side(const ParityOptions& options, const fs::path& root, const std::string& name,
              const std::string& side_overrides, const std::string& routing) {
  TrainOptions train{.file = options.file, .overrides = options.overrides};
  for (const std::string& word : split_words(side_overrides)) train.overrides.push_back(word);
  const spec::RunFile run = read_run_file(options.file, train.overrides);
  train.ranks = ranks_of_mesh(run);
  if (!routing.empty() && run.model.is_moe())
    train.overrides.push_back("train." + routing + "=" + (root / "routing").string());
  for (const std::string& fixed :
       {"log.dir=" + root.string(), "log.name=" + name, std::string("checkpoint.resume=none"),
        "checkpoint.every=" + std::to_string(run.train.steps),
        std::string("log.every=") + std::to_string(run.train.steps)})
    train.overrides.push_back(fixed);
  std::printf("%s: %d rank%s, %s\n", name.c_str(), train.ranks, train.ranks == 1 ? "" : "s", side_overrides.c_str());
  std::fflush(stdout);
  if (const int status = run_ranks(train, options.program); status != 0)
    throw Error(Code::kAborted, "side " + name + " ended with status " + std::to_string(status));
  Side side = read_side(root / name);
  side.is_half_mixture = run.model.is_moe() && run.strategy.precision != "fp32";
  return side;
}

}  // namespace

void add_parity_command(CLI::App& app) {
  auto options = std::make_shared<ParityOptions>();
  CLI::App* parity = app.add_subcommand("parity", "run one file in two layouts, and compare losses and weights");
  parity->add_option("FILE", options->file, "the run file")->required();
  parity->add_option("OVERRIDES", options->overrides, "section.key=value, for both sides");
  parity->add_option("--a", options->a, "overrides of side a, as \"mesh.dp=1\"")->required();
  parity->add_option("--b", options->b, "overrides of side b, as \"mesh.dp=2\"")->required();
  parity->add_option("--program", options->program,
                     "the program of a model of your own, as \"./own_model\", which gets FILE and the overrides");
  parity->add_option("--tolerance", options->loss_tolerance, "largest relative difference of a step's loss")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
  parity
      ->add_option("--weight-tolerance", options->weight_tolerance,
                   "largest difference of a final weight, relative to its tensor")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
  parity->add_flag("--keep", options->keep, "keep the folder with both runs");
  parity->callback([options] {
    const int status = run_parity(*options);
    if (status != 0) throw CLI::RuntimeError(status);
  });
}

int run_parity(const ParityOptions& options) {
  const ScratchFolder scratch(options.keep);
  const fs::path& root = scratch.path();
  const Side a = run_side(options, root, "a", options.a, "record_routing");
  const bool replays = a.close > 0 || a.is_half_mixture;
  if (a.is_half_mixture)
    std::printf("in 16 bits layouts choose other experts for some tokens, so b takes those of a\n");
  else if (replays)
    std::printf("choices of experts that another rounding may change: %lld in a, so b takes those of a\n",
                static_cast<long long>(a.close));
  const Side b = run_side(options, root, "b", options.b, replays ? "replay_routing" : "");
  const Difference loss = loss_difference(a.losses, b.losses);
  const spec::RunFile run = spec::parse_run_file((a.folder / "config.toml").string());
  const Difference weight = weight_difference(resolve_checkpoint(a.folder), resolve_checkpoint(b.folder),
                                              run.optimizer.lr * static_cast<double>(run.train.steps));
  auto verdict = [](double value, double tolerance) { return value <= tolerance ? "within" : "EXCEEDS"; };
  std::printf("losses of %zu steps: largest relative difference %.3g at %s, %s %.3g\n", a.losses.size(), loss.relative,
              loss.where.empty() ? "every step" : loss.where.c_str(), verdict(loss.relative, options.loss_tolerance),
              options.loss_tolerance);
  std::printf("final weights: largest relative difference %.3g in %s, %s %.3g\n", weight.relative,
              weight.where.empty() ? "every tensor" : weight.where.c_str(),
              verdict(weight.relative, options.weight_tolerance), options.weight_tolerance);
  return loss.relative <= options.loss_tolerance && weight.relative <= options.weight_tolerance ? 0 : 1;
}

}  // namespace herd::cli
