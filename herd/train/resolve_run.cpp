#include "herd/train/resolve_run.h"

#include <chrono>
#include <cstdint>
#include <optional>
#include <sstream>
#include <vector>

#include "herd/comm/same_on_all_ranks.h"
#include "herd/planner/gradient_algorithm.h"
#include "herd/planner/stage_search.h"
#include "herd/spec/build_model_table.h"
#include "herd/spec/pipeline_order.h"
#include "herd/strategies/strategy_table.h"
#include "herd/strategies/techniques.h"
#include "herd/topology/topology_text.h"
#include "herd/train/shared_error.h"

namespace herd::train {
namespace {

// Holds what rank 0 broadcasts: a run file and a line about it, or an error.
struct Verdict {
  int64_t code = -1;  // herd::Code; -1 = no error
  std::string config, text;
};

// Rank 0 searches by building and simulating steps, which takes seconds, or minutes where steps are long.
constexpr std::chrono::minutes kSearchDeadline{10};

std::string broadcast_from_root(std::string text, Communicator& comm) {
  std::vector<int64_t> size = {static_cast<int64_t>(text.size())};
  comm.broadcast(size, Rank{0}, {.name = "resolved run"});
  std::vector<uint8_t> bytes(text.begin(), text.end());
  bytes.resize(static_cast<size_t>(size[0]));
  if (!bytes.empty()) comm.broadcast(bytes, Rank{0}, {.name = "resolved run"});
  return {bytes.begin(), bytes.end()};
}

Verdict choose(const spec::RunFile& run, const Communicator& comm) {
  const int ranks = comm.size();
  planner::Cluster machine;
  machine.topology = parse_topology(comm.topology());
  if (run.device.kind != "cpu") machine.device = planner::assumed_device();
  const planner::Budget budget{run.memory.device_budget, run.memory.host_budget};
  try {
    const planner::ResolvedRun resolved = planner::resolve(run, ranks, machine, budget);
    spec::Layout layout = strategies::trainable_layout(resolved.run, ranks);
    planner::check_gradient_algorithm(resolved.run, layout, machine.topology);
    if (!run.strategy.automatic) {  // one that herd chose fits already
      const spec::ModelTable table = spec::program_table(resolved.run, layout.micro_batch);
      layout = planner::with_stage_cut(resolved.run, table, std::move(layout));
      std::vector<program::Program> steps;
      for (const int rank : strategies::ranks_of_stages(layout))
        steps.push_back(strategies::compile_step(resolved.run, table, layout, rank));
      strategies::check_budgets(steps, resolved.run);
    }
    return {.config = to_toml(resolved.run), .text = resolved.summary};
  } catch (const Error& error) {
    std::string text = error.message();
    if (error.code() == Code::kOverBudget && !run.strategy.automatic)
      text += planner::advice(planner::variants_that_fit(run, ranks, machine, budget), budget);
    return {.code = static_cast<int64_t>(error.code()), .config = "", .text = text};
  }
}

// Each rank reads the file of an order itself. If the files differed, messages would reach the wrong passes.
void check_order_file(const spec::RunFile& run, Communicator& comm) {
  const std::string file = spec::order_file_of(run);
  if (run.mesh.pp == 1 || file.empty()) return;
  std::istringstream text(to_text(spec::load_pipeline_order(file)));
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  comm::check_same_on_all_ranks(comm, file + " line", lines, "one file for all ranks: copy it to every host");
}

}  // namespace

planner::ResolvedRun resolve_run(const spec::RunFile& run, Communicator& comm) {
  strategies::trainable_layout(run, comm.size());  // refuses on every rank what none supports
  check_order_file(run, comm);
  Verdict verdict;
  if (comm.rank() == 0) verdict = choose(run, comm);
  std::vector<int64_t> code = {verdict.code};
  comm.broadcast(code, Rank{0}, {.name = "resolved run", .deadline = kSearchDeadline});
  verdict.config = broadcast_from_root(std::move(verdict.config), comm);
  verdict.text = broadcast_from_root(std::move(verdict.text), comm);
  if (code[0] >= 0) throw SharedError(static_cast<Code>(code[0]), verdict.text);
  planner::ResolvedRun resolved{spec::parse_run_text(verdict.config, "the resolved run file"), verdict.text};
  resolved.run.chain = run.chain;
  return resolved;
}

}  // namespace herd::train
