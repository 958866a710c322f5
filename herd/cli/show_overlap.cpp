#include "herd/cli/show_overlap.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "herd/cli/write_file.h"
#include "herd/draw/timeline_picture.h"

namespace herd::cli {
namespace {

constexpr char kShowOverlapHelp[] = R"(
A layer's forward takes a unit of time, its backward two, and the sum of its gradient over the link --units.

  herd show overlap fifo                      each gradient as soon as backward has it
  herd show overlap priority --credit 2       what the next forward needs first comes first
  herd show overlap ideal                     passes and sums never wait for each other: a bound

With weights on the host (strategy.offload = "window") the link copies those of a layer in --units:

  herd show overlap serial                    with no copy beside a pass
  herd show overlap window                    each of --micro-batches by itself
  herd show overlap layer_major               all of them through a layer before the next
  herd show overlap direct_host               and the first and the last layer read on the host
  herd show overlap files                     with weights in files: files, host, device)";

}  // namespace

int run_show_overlap(const ShowOverlapOptions& options) {
  if (options.svg.empty())
    std::fputs(strategies::overlap_picture(options.overlap).c_str(), stdout);
  else
    write_file(options.svg, draw::timeline_svg(strategies::overlap_of(options.overlap).timeline));
  return 0;
}

void add_show_overlap_command(CLI::App& show) {
  auto options = std::make_shared<ShowOverlapOptions>();
  CLI::App* command =
      show.add_subcommand("overlap",
                          "How a link overlaps with passes: sums of gradients, by strategy.schedule, or copies of "
                          "weights, by strategy.order and strategy.direct_host");
  command->footer(kShowOverlapHelp);
  command
      ->add_option("schedule", options->overlap.schedule,
                   "fifo, priority or ideal; serial, window, layer_major, direct_host or files")
      ->required();
  command->add_option("--layers", options->overlap.layers, "of the chain")->capture_default_str();
  command
      ->add_option("--units", options->overlap.units,
                   "that the sum of a layer's gradient takes, or the copy of its weights")
      ->capture_default_str();
  command->add_option("--credit", options->overlap.credit, "of priority, in partitions of a unit")
      ->capture_default_str();
  command->add_option("--micro-batches", options->overlap.micro_batches, "of copies of weights")->capture_default_str();
  command->add_option("--svg", options->svg, "write it as a picture");
  command->callback([options] {
    if (const int status = run_show_overlap(*options)) throw CLI::RuntimeError(status);
  });
}

}  // namespace herd::cli
