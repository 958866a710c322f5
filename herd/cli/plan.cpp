#include "herd/cli/plan.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <sstream>

#include "herd/base/error.h"
#include "herd/base/units.h"
#include "herd/cli/known_devices.h"
#include "herd/cli/known_models.h"
#include "herd/cli/option_checks.h"
#include "herd/cli/plan_matrix.h"
#include "herd/cli/progress_line.h"
#include "herd/cli/read_run_file.h"
#include "herd/cli/trainer_process.h"
#include "herd/cli/write_file.h"
#include "herd/draw/table.h"
#include "herd/launch/cores.h"
#include "herd/planner/model_sizes.h"
#include "herd/planner/stage_table.h"
#include "herd/spec/build_model_table.h"
#include "herd/storage/file_kind.h"
#include "herd/strategies/priority.h"
#include "herd/topology/topology.h"

namespace herd::cli {
namespace {

constexpr char kPlanHelp[] =
    "The answer comes without a device: the training step is built as a program and simulated, as herd train predicts "
    "it; what no program is built for yet is answered by equations, and said so.\n"
    R"(
  herd plan gpt3-175b --ranks 64 --cluster a100-80gb       a known model on known machines
  herd plan run.toml --ranks 2 --budget 2GiB               your run file, with a budget
  herd plan llama3-8b strategy.zero=3 --cluster a100-80gb  what if?
  herd plan gpt3-175b --tokens 300e9 --days 30 --flops 160e12   how many devices does that need?
  herd plan run.toml --cluster runs/NAME/cluster.toml      with the rates that a run of herd train measured
  herd plan --models                                       models, clusters, devices and links that herd knows
  herd plan --matrix --ranks 64 --cluster a100-80gb        which of them fit which devices, at which ZeRO stage)";

planner::Cluster read_cluster(const std::string& words) {
  if (words.empty()) return planner::small_server(launch::usable_cores());
  std::vector<std::string> names;
  if (!is_file(words)) {
    const planner::DeviceTable devices = known_devices();
    if (devices.device(words.substr(0, words.find(':'))) != nullptr) return planner::cluster_of_devices(devices, words);
    for (const planner::KnownDevice& device : devices.devices) names.push_back(device.name);
  }
  const auto path = find_file(words, "clusters", names);
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return planner::parse_cluster(text.str(), path.string());
}

planner::Budget budget_of(const PlanOptions& options, const spec::RunFile& run, const planner::Cluster& cluster) {
  planner::Budget budget{run.memory.device_budget, run.memory.host_budget};
  if (budget.device == 0) budget.device = cluster.device.memory_bytes;
  if (budget.host == 0) budget.host = cluster.host_memory_bytes / std::max(1, cluster.topology.hosts.at(0).ranks);
  if (!options.budget.empty()) budget.device = parse_bytes(options.budget);
  return budget;
}

void list_known() {
  draw::Table table{{{"model"}, {"is"}}, {}};
  for (const KnownFile& known : known_files("models")) table.rows.push_back({known.name, known.about});
  std::fputs((draw::text_table(table) + "\n").c_str(), stdout);
  table = {{{"cluster"}, {"is"}}, {}};
  for (const KnownFile& known : known_files("clusters")) table.rows.push_back({known.name, known.about});
  std::fputs((draw::text_table(table) + "\n").c_str(), stdout);
  const planner::DeviceTable devices = known_devices();
  std::fputs((draw::text_table(planner::device_rows(devices)) + "\n").c_str(), stdout);
  std::fputs(draw::text_table(planner::link_rows(devices)).c_str(), stdout);
}

void list_sizes() {
  std::vector<int64_t> exact;
  for (const planner::PublishedSize& size : planner::published_sizes()) {
    const auto path = find_file(std::string(size.preset), "models");
    exact.push_back(spec::model_table(read_run_file(path.string()), 1).parameters());
  }
  std::fputs(planner::model_sizes_text(exact).c_str(), stdout);
}

int run_matrix(const PlanOptions& options) {
  if (options.json || options.equations || options.stages || options.tokens > 0 || !options.budget.empty())
    throw Error(Code::kBadConfig,
                "--matrix is a table of its own, without --json, --equations, --stages, --tokens and --budget\n"
                "  fix: --devices in place of --budget, or one run at a time");
  PlanMatrixOptions matrix{.words = options.overrides,
                           .devices = options.devices,
                           .ranks = options.ranks,
                           .cluster = read_cluster(options.cluster),
                           .svg = options.svg,
                           .html = options.html};
  if (!options.file.empty()) matrix.words.insert(matrix.words.begin(), options.file);
  if (matrix.ranks == 0) matrix.ranks = matrix.cluster.topology.hosts.at(0).ranks;
  return run_plan_matrix(matrix);
}

}  // namespace

planner::Plan make_plan(const PlanOptions& options) {
  const std::filesystem::path path = find_file(options.file, "models");
  planner::Plan plan;
  plan.name = path.stem();
  plan.run = read_run_file(path.string(), options.overrides);
  plan.ranks = options.ranks > 0 ? options.ranks : ranks_of_mesh(plan.run);
  const planner::Cluster cluster = read_cluster(options.cluster);
  plan.cluster = planner::with_ranks(cluster, plan.ranks);
  plan.budget = budget_of(options, plan.run, cluster);
  if (!options.budget.empty()) plan.run.memory.device_budget = plan.budget.device;  // as a run of it would state
  StatusLine status("herd plan");
  const auto report = [&](const std::string& doing) { status.update(doing); };
  plan.search_seconds = options.seconds;
  planner::SearchLimit choice(options.seconds, report);
  planner::ResolvedRun resolved = planner::resolve(plan.run, plan.ranks, cluster, plan.budget, &choice);
  plan.not_looked_at = choice.left_out();
  plan.run = std::move(resolved.run);
  plan.automatic_choice = std::move(resolved.summary);
  status.update("the run as it is");
  plan.prediction = planner::predict(plan.run, plan.ranks, cluster);
  if (strategies::has_priority(plan.run, plan.prediction.layout)) {
    spec::RunFile fifo = plan.run;
    fifo.strategy.schedule = "fifo";
    plan.fifo_step_us = planner::predict(fifo, plan.ranks, cluster).step_us;
  }
  plan.tokens = options.tokens;
  plan.days = options.days;
  plan.flops = options.flops;
  if (!plan.fits()) {
    planner::SearchLimit limit(options.seconds, report);
    plan.variants = planner::variants_that_fit(plan.run, plan.ranks, cluster, plan.budget, &limit);
    limit.allow_until(1);
    plan.suggestions =
        planner::suggest_changes(plan.run, plan.ranks, cluster,
                                 {.budget = plan.budget,
                                  .time_scale = planner::time_scale(plan.run, plan.ranks, cluster, plan.prediction),
                                  .skip_automatic_keys = plan.variants.built > 0,
                                  .more_ranks = options.ranks == 0,
                                  .limit = &limit});
    plan.not_looked_at.insert(plan.not_looked_at.end(), limit.left_out().begin(), limit.left_out().end());
  }
  return plan;
}

int run_plan(const PlanOptions& options) {
  const planner::Plan plan = make_plan(options);
  std::fputs((options.json ? plan_json(plan) : plan_text(plan)).c_str(), stdout);
  if (options.equations && !options.json) std::fputs(("\n" + equations_text(plan)).c_str(), stdout);
  if (options.stages && !options.json)
    std::fputs(("\n" + planner::stages_text(plan.run, plan.prediction.layout, plan.cluster)).c_str(), stdout);
  if (options.html.empty()) return 0;
  write_file(options.html, plan_page(plan), stderr);
  return 0;
}

void add_plan_command(CLI::App& app) {
  auto options = std::make_shared<PlanOptions>();
  auto models = std::make_shared<bool>(false), sizes = std::make_shared<bool>(false);
  CLI::App* command = app.add_subcommand("plan", "Will a run fit, how fast is it, and what would make it fit?");
  command->footer(kPlanHelp);
  command->add_option("file", options->file, "run file, or the name of a known model");
  command->add_option("overrides", options->overrides, "section.key=value, as for herd train");
  command
      ->add_option("--ranks", options->ranks,
                   "processes that train together; default: what [mesh] states, and more if that does not fit")
      ->check(CLI::Range(1, kMaxRanks));
  command
      ->add_option("--cluster", options->cluster,
                   "file or name of the machines (docs/formats/cluster.md), or of a device, h200 or h200:100gbit; "
                   "default: this machine, rates assumed")
      ->check(not_empty());
  command
      ->add_option("--budget", options->budget,
                   "memory of a rank's device, 80GiB; default: memory.device_budget, else the cluster's")
      ->check(not_empty());
  CLI::Option* tokens =
      command->add_option("--tokens", options->tokens, "tokens of the whole training, 300e9: how many days it takes");
  CLI::Option* days = command->add_option("--days", options->days, "it may take so many: how many devices that needs");
  command
      ->add_option("--flops", options->flops,
                   "FLOP/s that each device keeps up, 160e12, for --days; default: what this run is predicted to")
      ->needs(days)
      ->check(positive_number("160e12"));
  tokens->check(positive_number("300e9"));
  days->needs(tokens)->check(positive_number("30"));
  command
      ->add_option("--seconds", options->seconds,
                   "time to look for what would make it fit; then the best so far counts, and what is left out is said")
      ->check(number_from_zero("20"))
      ->capture_default_str();
  command->add_flag("--equations", options->equations,
                    "what published equations say too: model states, activations of a layer, traffic");
  command->add_flag(
      "--stages", options->stages,
      "how a pipeline is cut: each stage's blocks, time, memory and what it sends on, and the order over time");
  command->add_flag("--json", options->json, "one JSON object (docs/formats/plan.md)");
  command->add_option("--html", options->html, "write a page with bars, timeline and tables")->check(not_empty());
  CLI::Option* matrix = command->add_flag(
      "--matrix", options->matrix,
      "models x devices: what fits where, at which ZeRO stage; of all known models, or of those named");
  command->add_option("--devices", options->devices, "memory of the matrix's devices, or their names")
      ->delimiter(',')
      ->needs(matrix)
      ->capture_default_str();
  command->add_option("--svg", options->svg, "write the matrix as a picture")->needs(matrix)->check(not_empty());
  command->add_flag("--models", *models, "list the models, clusters, devices and links that herd knows");
  command->add_flag("--sizes", *sizes, "well-known models as lectures count them, beside herd's");
  command->callback([options, models, sizes] {
    if (*models) return list_known();
    if (*sizes) return list_sizes();
    if (options->matrix) {
      if (const int status = run_matrix(*options)) throw CLI::RuntimeError(status);
      return;
    }
    if (options->file.empty())
      throw Error(Code::kBadConfig,
                  "herd plan needs a run file or a model\n  fix: herd plan gpt2, or herd plan --models");
    if (const int status = run_plan(*options)) throw CLI::RuntimeError(status);
  });
}

}  // namespace herd::cli
