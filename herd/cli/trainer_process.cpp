#include "herd/cli/trainer_process.h"

#include <algorithm>
#include <filesystem>
#include <numeric>

#include "herd/base/error.h"
#include "herd/base/units.h"
#include "herd/data/packed_samples.h"
#include "herd/data/sample_source.h"
#include "herd/data/token_file.h"
#include "herd/launch/cores.h"
#include "herd/planner/stage_search.h"
#include "herd/planner/variants_that_fit.h"
#include "herd/spec/build_model_table.h"
#include "herd/spec/layout.h"
#include "herd/spec/masked_tokens.h"
#include "herd/storage/file_kind.h"
#include "herd/strategies/strategy_table.h"
#include "herd/strategies/techniques.h"
#include "herd/topology/topology.h"

namespace herd::cli {

std::string trainer_path() {
  const auto path = std::filesystem::read_symlink("/proc/self/exe").parent_path() / "herd-trainer";
  if (!is_taken(path))
    throw Error(Code::kBadConfig, "this build has no herd-trainer: " + path.string() +
                                      " is not there\n  fix: configure with libtorch (HERD_TORCH=ON), and build it");
  return path;
}

int ranks_of_mesh(const spec::RunFile& run) {
  const auto& mesh = run.mesh;
  int64_t ranks = 1;
  std::string product;
  // Without mesh.dp, as many data ranks as mesh.ep needs.
  const int64_t data = mesh.dp > 0 ? mesh.dp : mesh.ep / std::gcd(mesh.ep, mesh.fsdp * mesh.cp);
  for (const int64_t size : {data, mesh.fsdp, mesh.tp, mesh.pp, mesh.cp}) {
    product += (product.empty() ? "" : " * ") + std::to_string(size);
    ranks = size > kMaxRanks / ranks ? kMaxRanks + 1 : ranks * size;
    if (ranks > kMaxRanks) break;
  }
  if (const int64_t servers = run.strategy.dedicated_servers; servers > 0) {
    ranks += servers;
    product += " + " + std::to_string(servers);
  }
  if (ranks <= kMaxRanks) return static_cast<int>(ranks);
  throw Error(Code::kBadConfig, "the mesh's axes (dp * fsdp * tp * pp * cp) multiply to the ranks, at most " +
                                    std::to_string(kMaxRanks) + ", but " + product + " is more already" +
                                    "\n  fix: smaller axes");
}

namespace {

// Lists what would fit by equations: techniques that strategy.auto does not choose, or that this version can't run yet.
std::string by_equations(const spec::RunFile& run, int ranks, const planner::Cluster& machine,
                         const planner::Budget& budget) {
  std::string out;
  for (const planner::Suggestion& suggestion :
       planner::suggest_changes(run, ranks, machine, {.budget = budget, .skip_automatic_keys = true})) {
    out += out.empty() ? "\nwhat would fit by equations, cheapest first:" : "";
    out += "\n ";
    for (const std::string& change : suggestion.changes) out += " " + change;
    out += ": " + format_bytes(suggestion.prediction.device_bound) + ", a step of " +
           format_us(suggestion.prediction.step_us) + " predicted" +
           (suggestion.unsupported.empty() ? "" : " (not in this version)");
  }
  return out;
}

}  // namespace

void check_before_start(const spec::RunFile& run, int ranks) {
  strategies::trainable_layout(run, ranks);
  const planner::Cluster machine = planner::small_server(launch::usable_cores());
  const planner::Budget budget{run.memory.device_budget, run.memory.host_budget};
  const planner::ResolvedRun resolved =
      planner::resolve(run, ranks, machine, budget);  // the trainer may choose otherwise
  spec::Layout layout = strategies::trainable_layout(resolved.run, ranks);
  try {
    const spec::ModelTable table = spec::program_table(resolved.run, layout.micro_batch);
    layout = planner::with_stage_cut(resolved.run, table, std::move(layout));
    strategies::programs_of_run(resolved.run, table, layout, strategies::ranks_of_stages(layout));
  } catch (const Error& error) {
    if (error.code() != Code::kOverBudget) throw;
    const planner::Variants variants = planner::variants_that_fit(run, ranks, machine, budget);
    throw Error(error.code(), error.message() + advice(variants, budget) +
                                  (variants.fitting.empty() ? by_equations(run, ranks, machine, budget) : "") +
                                  "\n  herd plan says more");
  }
  if (run.data.kind != "tokens") return;
  const std::filesystem::path folder = run.data.path;
  const auto open = [&](Split split) {
    if (run.data.packs_documents())
      open_documents(folder, split, run.model.context, 0);
    else
      open_tokens(folder, split, run.model.context, 0);
  };
  open(Split::kTrain);
  if (run.train.eval_every > 0) open(Split::kValidation);
  const TokenFile tokens(folder / "train.tokens");
  tokens.require_vocabulary(run.model.vocab);
  if (run.model.is_bert()) spec::mask_token(run, tokens.vocabulary());  // throws where the model has none
}

}  // namespace herd::cli
