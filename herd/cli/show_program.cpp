#include "herd/cli/show_program.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>

#include "herd/base/error.h"
#include "herd/base/units.h"
#include "herd/cli/read_run_file.h"
#include "herd/cli/write_file.h"
#include "herd/draw/timeline_picture.h"
#include "herd/launch/cores.h"
#include "herd/planner/rewrites.h"
#include "herd/program/draw_program.h"
#include "herd/program/program_names.h"
#include "herd/program/program_text.h"
#include "herd/strategies/strategy_table.h"
#include "herd/strategies/techniques.h"

namespace herd::cli {
int run_show_program(const ShowProgramOptions& options) {
  const spec::RunFile stated = read_run_file(options.file, options.overrides);
  strategies::resolve(stated, options.ranks);
  const planner::Cluster cluster = planner::with_ranks(planner::small_server(launch::usable_cores()), options.ranks);
  const planner::ResolvedRun resolved =
      planner::resolve(stated, options.ranks, cluster, {stated.memory.device_budget, stated.memory.host_budget});
  const spec::RunFile& run = resolved.run;
  const spec::Layout layout = strategies::resolve(run, options.ranks);
  if (options.rank < 0 || options.rank >= options.ranks) {
    throw Error(Code::kBadConfig, "--rank must be in [0, " + std::to_string(options.ranks) + "), got " +
                                      std::to_string(options.rank) + "\n  fix: --rank 0");
  }
  const spec::ModelTable model = spec::program_table(run, layout.micro_batch);
  const std::vector<program::Program> steps = strategies::compile_and_verify(run, model, layout);
  const program::Program& step = steps[static_cast<size_t>(options.rank)];
  const bool files = !options.trace.empty() || !options.html.empty() || !options.svg.empty();
  if (options.text || !files) std::fputs(to_text(step, {.dependencies = options.dependencies}).c_str(), stdout);

  const program::Simulation simulation =
      planner::simulate_on(steps, model, cluster, planner::calibration_of(cluster, run, layout), steps.size(),
                           static_cast<size_t>(options.rank));
  std::fprintf(stderr, "%s\n%s parameters, %zu ops, proved on all ranks\npredicted: %s a step, device peak %s",
               spec::summary(layout).c_str(), format_count(static_cast<double>(model.parameters())).c_str(),
               step.ops.size(), format_us(simulation.step_us).c_str(),
               format_bytes(static_cast<double>(simulation.device_peak.bytes)).c_str());
  if (simulation.device_peak.op >= 0) {
    const program::Op& at = step.ops[static_cast<size_t>(simulation.device_peak.op)];
    std::fprintf(stderr, " at %s", describe(step, at).c_str());
  }
  std::fprintf(stderr, "\n%s", memory_table(simulation.device_peak).c_str());
  if (!options.trace.empty()) write_file(options.trace, draw::timeline_trace(simulation.timeline));
  if (!options.html.empty()) write_file(options.html, program_page(step, simulation));
  if (!options.svg.empty()) write_file(options.svg, draw::timeline_svg(simulation.timeline));
  return 0;
}

void add_show_program_command(CLI::App& show) {
  auto options = std::make_shared<ShowProgramOptions>();
  CLI::App* command =
      show.add_subcommand("program", "The training step of a run, op by op, with predicted time and memory");
  command->add_option("file", options->file, "run file")->required();
  command->add_option("overrides", options->overrides, "section.key=value, as for herd train");
  command->add_option("--ranks", options->ranks, "processes that train together")->capture_default_str();
  command->add_option("--rank", options->rank, "whose step")->capture_default_str();
  command->add_flag("--text", options->text, "ops as text (docs/formats/program.md); the default");
  command->add_flag("--dependencies", options->dependencies, "and what each op waits for");
  command->add_option("--trace", options->trace, "write the predicted timeline as a trace for ui.perfetto.dev");
  command->add_option("--html", options->html, "write a page with timeline, memory and ops");
  command->add_option("--svg", options->svg, "write the predicted timeline as a picture");
  command->callback([options] {
    if (const int status = run_show_program(*options)) throw CLI::RuntimeError(status);
  });
}

}  // namespace herd::cli
