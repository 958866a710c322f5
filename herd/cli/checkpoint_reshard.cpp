#include "herd/cli/checkpoint_reshard.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "herd/base/units.h"
#include "herd/cli/progress_line.h"

namespace herd::cli {
namespace {

constexpr char kReshardHelp[] =
    R"help(Every tensor keeps its bits, and step, run file and notes stay: a run resumes from either with the same losses.
Training does not need it, for each rank reads its part from whichever shards hold it. It helps where each host should
get no more than its own file, or where one file is wanted.
Checksums are compared while reading; --out appears when it is whole, or not at all.
  herd checkpoint reshard runs/mine --ranks 8 --out for-8     shard-00000 .. shard-00007
  herd checkpoint reshard runs/mine --ranks 1 --out in-one    one file)help";

}  // namespace

std::string reshard_checkpoint(convert::ReshardOptions options) {
  convert::Resharded result;
  {
    ProgressLine line("reshard", true);
    options.progress = [&](int64_t done, int64_t total) { line.update(done, total); };
    result = convert::reshard(options);
  }
  return options.out.string() + ": step " + std::to_string(result.step) + ", " + std::to_string(result.files) +
         (result.files == 1 ? " file" : " files") + " as " + std::to_string(options.ranks) +
         (options.ranks == 1 ? " rank saves" : " ranks save") + " them, " +
         format_bytes(static_cast<double>(result.bytes)) + "\n";
}

void add_checkpoint_reshard_command(CLI::App& app) {
  auto options = std::make_shared<convert::ReshardOptions>();
  auto overwrite = std::make_shared<bool>(false);
  CLI::App* command = app.add_subcommand("reshard", "The shards that another number of ranks would have saved");
  command->add_option("CHECKPOINT", options->source, "a checkpoint, or a run's folder: its newest whole one")
      ->required();
  command->add_option("--ranks", options->ranks, "ranks to write a file for")->required();
  command->add_option("--out", options->out, "the folder to write")->required();
  command->add_flag("--overwrite", *overwrite, "replace a checkpoint that stands at --out");
  command->footer(kReshardHelp);
  command->callback([options, overwrite] {
    if (*overwrite) options->replace = Replace::kModels;
    std::fputs(reshard_checkpoint(*options).c_str(), stdout);
  });
}

}  // namespace herd::cli
