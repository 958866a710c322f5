#include "herd/cli/show_layer.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "herd/cli/known_models.h"
#include "herd/cli/read_run_file.h"
#include "herd/cli/trainer_process.h"
#include "herd/cli/write_file.h"
#include "herd/draw/page.h"
#include "herd/planner/layer_tensors.h"
#include "herd/topology/topology.h"

namespace herd::cli {

int run_show_layer(const ShowLayerOptions& options) {
  const std::filesystem::path path = find_file(options.file, "models");
  const spec::RunFile run = read_run_file(path.string(), options.overrides);
  const spec::Layout layout = spec::resolve_mesh(run, options.ranks > 0 ? options.ranks : ranks_of_mesh(run));
  const planner::LayerTensors layer = planner::layer_tensors_of(path.stem(), run, layout);
  if (!options.svg.empty()) write_file(options.svg, layer_svg(layer));
  if (!options.html.empty())
    write_file(options.html,
               draw::html_page("What a layer keeps", {{"", "<figure>" + layer_svg(layer) + "</figure>\n"}}));
  if (options.text || (options.svg.empty() && options.html.empty())) std::fputs(layer_text(layer).c_str(), stdout);
  return 0;
}

void add_show_layer_command(CLI::App& show) {
  auto options = std::make_shared<ShowLayerOptions>();
  CLI::App* command =
      show.add_subcommand("layer", "What a layer keeps for backward, tensor by tensor, beside published equations");
  command->add_option("file", options->file, "run file, or the name of a known model")->required();
  command->add_option("overrides", options->overrides, "section.key=value, as for herd train");
  command->add_option("--ranks", options->ranks, "processes that train together; default: what [mesh] states")
      ->check(CLI::Range(1, kMaxRanks));
  command->add_flag("--text", options->text, "a table; the default");
  command->add_option("--svg", options->svg, "write it as a picture");
  command->add_option("--html", options->html, "write it as a page");
  command->callback([options] {
    if (const int status = run_show_layer(*options)) throw CLI::RuntimeError(status);
  });
}

}  // namespace herd::cli
