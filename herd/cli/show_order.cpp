#include "herd/cli/show_order.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "herd/base/error.h"
#include "herd/cli/write_file.h"
#include "herd/draw/svg.h"
#include "herd/draw/timeline_picture.h"
#include "herd/strategies/order_picture.h"
#include "herd/strategies/pipeline_orders.h"

namespace herd::cli {
namespace {

constexpr char kShowOrderHelp[] = R"(
A forward takes a unit of time, a backward two, or one for each of its halves, and messages none.

  herd show order 1f1b --ranks 4 --micro-batches 8          when each rank does what, and how long it is idle
  herd show order zero_bubble_v --ranks 4                   two stages on each rank, the second in lower case
  herd show order interleaved --stages-per-rank 3 --text    as a file to change: strategy.pipeline = "file:PATH"
  herd show order file:my_order.txt                         checks it, too)";

spec::PipelineOrder order_of(const ShowOrderOptions& options) {
  spec::RunFile run;
  run.strategy.pipeline = options.order;
  if (options.stages_per_rank > 0) run.strategy.stages_per_rank = options.stages_per_rank;
  if (const std::string file = spec::order_file_of(run); !file.empty()) {
    const spec::PipelineOrder order = spec::load_pipeline_order(file);
    const auto same = [](int option, int value) { return option == 0 || option == value; };
    if (same(options.ranks, order.ranks) && same(options.micro_batches, order.micro_batches) &&
        same(options.stages_per_rank, order.stages_per_rank))
      return order;
    throw Error(Code::kBadConfig, file + " is of " + std::to_string(order.ranks) + " ranks, " +
                                      std::to_string(order.stages_per_rank) + " stages each and " +
                                      std::to_string(order.micro_batches) +
                                      " micro-batches, and no option changes that\n  fix: leave the options out");
  }
  return strategies::pipeline_order(options.order, spec::pipeline_form(run), options.ranks > 0 ? options.ranks : 4,
                                    options.micro_batches > 0 ? options.micro_batches : 8);
}

}  // namespace

int run_show_order(const ShowOrderOptions& options) {
  const spec::PipelineOrder order = order_of(options);
  if (options.text || options.svg.empty())
    std::fputs((options.text ? to_text(order) : strategies::order_picture(order)).c_str(), stdout);
  if (!options.svg.empty()) write_file(options.svg, draw::timeline_svg(strategies::order_timeline(order)));
  return 0;
}

void add_show_order_command(CLI::App& show) {
  auto options = std::make_shared<ShowOrderOptions>();
  CLI::App* command = show.add_subcommand("order", "In which sequence the ranks of a pipeline run their passes");
  command->footer(kShowOrderHelp);
  command->add_option("order", options->order, "as strategy.pipeline names it, or file:PATH")->required();
  const auto positive = CLI::Range(1, 65536);
  command->add_option("--ranks", options->ranks, "along the pipeline; 4")->check(positive);
  command->add_option("--micro-batches", options->micro_batches, "of a step; 8")->check(positive);
  command->add_option("--stages-per-rank", options->stages_per_rank, "of interleaved; else what the order has")
      ->check(positive);
  command->add_flag("--text", options->text, "as a file's text (docs/formats/pipeline_order.md)");
  command->add_option("--svg", options->svg, "write it as a picture");
  command->callback([options] {
    if (const int status = run_show_order(*options)) throw CLI::RuntimeError(status);
  });
}

}  // namespace herd::cli
