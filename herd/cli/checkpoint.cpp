#include "herd/cli/checkpoint.h"

#include <CLI/CLI.hpp>

#include "herd/cli/checkpoint_convert.h"
#include "herd/cli/checkpoint_inspect.h"
#include "herd/cli/checkpoint_reshard.h"

namespace herd::cli {
namespace {

constexpr char kCheckpointHelp[] =
    R"help(Training needs no conversion between numbers of ranks, stages of ZeRO or precisions: any run resumes from any
checkpoint of its model. These commands look into checkpoints, and carry them to other programs.
  herd checkpoint inspect runs/mine --verify
  herd checkpoint convert runs/mine --to gpt2 --out gpt2-mine          for Hugging Face's transformers
  herd checkpoint convert gpt2 --to herd --out gpt2-herd               and back; then model.weights=gpt2-herd
  herd checkpoint convert runs/mine --dtype bf16 --out mine-bf16       weights alone, half the bytes
  herd checkpoint reshard runs/mine --ranks 8 --out for-8              a file for each of 8 ranks)help";

}  // namespace

void add_checkpoint_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("checkpoint", "Look into checkpoints, convert and reshard them");
  command->require_subcommand(1);
  command->footer(kCheckpointHelp);
  add_checkpoint_inspect_command(*command);
  add_checkpoint_convert_command(*command);
  add_checkpoint_reshard_command(*command);
}

}  // namespace herd::cli
