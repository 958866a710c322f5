#include "herd/cli/show.h"

#include <CLI/CLI.hpp>

#include "herd/cli/show_layer.h"
#include "herd/cli/show_order.h"
#include "herd/cli/show_overlap.h"
#include "herd/cli/show_program.h"
#include "herd/cli/show_schedule.h"

namespace herd::cli {

void add_show_command(CLI::App& app) {
  CLI::App* show = app.add_subcommand(
      "show", "A collective's schedule, a training step, a pipeline's order or a layer's tensors, as text or picture");
  show->require_subcommand(1);
  // The add_show_x_command(*show) lines stand in alphabetical order.
  add_show_layer_command(*show);
  add_show_order_command(*show);
  add_show_overlap_command(*show);
  add_show_program_command(*show);
  add_show_schedule_command(*show);
}

}  // namespace herd::cli
