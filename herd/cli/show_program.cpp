#include "herd/cli/show_program.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>

#include "herd/base/error.h"
#include "herd/base/units.h"
#include "herd/cli/read_run_file.h"
#include "herd/cli/write_file.h"
#include "herd/draw/page.h"
#include "herd/draw/timeline_picture.h"
#include "herd/launch/cores.h"
#include "herd/planner/stage_search.h"
#include "herd/planner/variants_that_fit.h"
#include "herd/program/draw_program.h"
#include "herd/program/program_cells.h"
#include "herd/program/program_names.h"
#include "herd/program/program_text.h"
#include "herd/spec/build_model_table.h"
#include "herd/spec/generation_table.h"
#include "herd/strategies/compile_generation.h"
#include "herd/strategies/strategy_table.h"
#include "herd/strategies/techniques.h"

namespace herd::cli {
namespace {

void check_rank(int rank, int ranks) {
  if (rank >= 0 && rank < ranks) return;
  throw Error(Code::kBadConfig, "--rank must be in [0, " + std::to_string(ranks) + "), got " + std::to_string(rank) +
                                    "\n  fix: --rank 0");
}

// Holds the programs of all ranks, and what they are simulated with.
struct Shown {
  spec::RunFile run = {};
  spec::Layout layout = {};
  planner::Cluster cluster = {};
  spec::ModelTable model = {};
  std::vector<program::Program> programs = {};
};

planner::Cluster server_of(int ranks) {
  return planner::with_ranks(planner::small_server(launch::usable_cores()), ranks);
}

Shown training_step(const ShowProgramOptions& options) {
  const spec::RunFile stated = read_run_file(options.file, options.overrides);
  strategies::trainable_layout(stated, options.ranks);
  Shown out{.cluster = server_of(options.ranks)};
  out.run =
      planner::resolve(stated, options.ranks, out.cluster, {stated.memory.device_budget, stated.memory.host_budget})
          .run;
  out.layout = strategies::trainable_layout(out.run, options.ranks);
  out.model = spec::program_table(out.run, out.layout.micro_batch);
  out.layout = planner::with_stage_cut(out.run, out.model, std::move(out.layout));
  out.cluster = server_of(out.layout.world_size);
  check_rank(options.rank, out.layout.world_size);
  out.programs = strategies::compile_and_verify(out.run, out.model, out.layout);
  return out;
}

// Compiles the pass over a prompt as long as the context, or over one token.
Shown generation_pass(const ShowProgramOptions& options) {
  const bool prompt = options.pass == "prompt";
  if (!prompt && options.pass != "token") {
    throw Error(Code::kBadConfig, "there is no pass \"" + options.pass + "\"\n  fix: --pass prompt or --pass token");
  }
  const spec::RunFile stated = read_run_file(options.file, options.overrides);
  const int ranks = static_cast<int>(stated.mesh.tp);
  Shown out{.run = strategies::generation_run(stated), .cluster = server_of(ranks)};
  out.run.mesh.tp = ranks;
  out.layout = strategies::trainable_layout(out.run, ranks);
  check_rank(options.rank, ranks);
  out.model = spec::generation_table(out.run, 1, prompt ? out.run.model.context : 1);
  for (const auto& both : strategies::compile_generation(out.run, out.layout, out.run.model.context))
    out.programs.push_back(prompt ? both.prompt : both.token);
  return out;
}

int show_cells(const Shown& shown, const ShowProgramOptions& options) {
  const program::ProgramCells cells = program::cells_of(shown.programs, shown.model);
  if (!options.trace.empty())
    throw Error(Code::kBadConfig, "--cells are a table, and --trace is of times\n  fix: one of both");
  if (!options.svg.empty()) write_file(options.svg, cells_svg(cells));
  if (!options.html.empty())
    write_file(options.html, draw::html_page("Who keeps what", {{spec::summary(shown.layout),
                                                                 "<figure>" + cells_svg(cells) + "</figure>\n"}}));
  if (options.text || (options.svg.empty() && options.html.empty())) std::fputs(cells_text(cells).c_str(), stdout);
  return 0;
}

}  // namespace

int run_show_program(const ShowProgramOptions& options) {
  if (options.cells)
    return show_cells(options.pass.empty() ? training_step(options) : generation_pass(options), options);
  const auto [run, layout, cluster, model, steps] =
      options.pass.empty() ? training_step(options) : generation_pass(options);
  const program::Program& step = steps[static_cast<size_t>(options.rank)];
  const bool files = !options.trace.empty() || !options.html.empty() || !options.svg.empty();
  if (options.text || !files) std::fputs(to_text(step, {.dependencies = options.dependencies}).c_str(), stdout);

  const program::Simulation simulation =
      planner::simulate_on(steps, model, cluster, planner::calibration_of(cluster, run, layout), steps.size(),
                           static_cast<size_t>(options.rank));
  std::fprintf(stderr, "%s\n%s parameters, %zu ops, proved on all ranks\npredicted: %s a %s, device peak %s",
               spec::summary(layout).c_str(), format_count(static_cast<double>(model.parameters())).c_str(),
               step.ops.size(), format_us(simulation.step_us).c_str(), options.pass.empty() ? "step" : "pass",
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
  command->add_option("--pass", options->pass,
                      "prompt or token: in place of the step, the pass that continues texts, of mesh.tp ranks");
  command->add_flag("--cells", options->cells,
                    "what each rank keeps of each layer's weights, gradients and states, in place of the ops; also "
                    "--svg and --html");
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
