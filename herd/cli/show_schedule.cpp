#include "herd/cli/show_schedule.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "herd/base/error.h"
#include "herd/cli/write_file.h"
#include "herd/collectives/choose.h"
#include "herd/draw/page.h"
#include "herd/draw/svg.h"
#include "herd/draw/table.h"
#include "herd/draw/timeline_picture.h"
#include "herd/schedule/draw_schedule.h"
#include "herd/schedule/schedule_names.h"
#include "herd/schedule/schedule_states.h"
#include "herd/schedule/schedule_text.h"

namespace herd::cli {
namespace {

std::string resources_html(const ScheduleTimes& times) {
  draw::Table table{{{"resource"}, {"busy", true}}, {}};
  for (const ResourceShare& share : times.resources) {
    char percent[16];
    std::snprintf(percent, sizeof percent, "%.0f %%", 100 * share.busy);
    table.rows.push_back({share.name, percent});
  }
  return draw::html_table(table);
}

std::string page_of(const std::vector<Schedule>& all, const ScheduleTimes& times, const std::string& text) {
  const sim::Timeline timeline = timeline_of(all, times);
  return draw::html_page(timeline.title, {{"Steps over time", "<figure>" + draw::timeline_svg(timeline) + "</figure>"},
                                          {"Shared resources", resources_html(times)},
                                          {"Steps", "<pre>" + draw::escape(text) + "</pre>\n"}});
}

int show_states(const std::vector<Schedule>& all, const ShowScheduleOptions& options) {
  const ScheduleStates states = states_of(all);
  if (!options.trace.empty())
    throw Error(Code::kBadConfig, "--states are tables, and --trace is of times\n  fix: one of both");
  if (!options.svg.empty()) write_file(options.svg, states_svg(states));
  if (!options.html.empty())
    write_file(options.html,
               draw::html_page(std::string(collective_name(states.collective)) + " by " + states.algorithm,
                               {{"", "<figure>" + states_svg(states) + "</figure>\n"}}));
  if (options.text || (options.svg.empty() && options.html.empty())) std::fputs(states_text(states).c_str(), stdout);
  return 0;
}

}  // namespace

int run_show_schedule(const ShowScheduleOptions& options) {
  const Topology topology = topology_of(options.collective);
  CollectiveRequest request = request_of(options.collective, topology);
  if (options.rank >= request.num_ranks) {
    throw Error(Code::kBadConfig,
                "--rank < --ranks, but " + std::to_string(options.rank) + " >= " + std::to_string(request.num_ranks));
  }
  const std::string algorithm = options.algorithm.empty() ? choose(request, topology).algorithm : options.algorithm;
  request = placed_on(request, topology);
  std::vector<Schedule> all;
  for (request.self = 0; request.self < request.num_ranks; ++request.self) {
    all.push_back(build_schedule(algorithm, request));
  }
  if (options.states) return show_states(all, options);
  std::string text;
  for (const Schedule& s : all) {
    if (options.rank < 0 || s.self == options.rank) text += (text.empty() ? "" : "\n") + to_text(s);
  }
  const bool files = !options.svg.empty() || !options.trace.empty() || !options.html.empty();
  if (options.text || !files) std::fputs(text.c_str(), stdout);
  if (!files) return 0;
  const ScheduleTimes times = time_schedules(all, topology);
  if (!options.svg.empty()) write_file(options.svg, draw::timeline_svg(timeline_of(all, times)));
  if (!options.trace.empty()) write_file(options.trace, draw::timeline_trace(timeline_of(all, times)));
  if (!options.html.empty()) write_file(options.html, page_of(all, times, text));
  return 0;
}

void add_show_schedule_command(CLI::App& show) {
  auto options = std::make_shared<ShowScheduleOptions>();
  CLI::App* command = show.add_subcommand("schedule", "The steps of a collective, rank by rank");
  add_collective_options(*command, options->collective);
  command->add_option("--algorithm", options->algorithm, "as herd explain lists them; else the chosen one");
  command->add_flag("--states", options->states,
                    "what each rank holds of each chunk, round by round, in place of the steps; also --svg and --html");
  command->add_option("--rank", options->rank, "the text of one rank; else of all");
  command->add_flag("--text", options->text, "steps as text (docs/formats/schedule.md); the default");
  command->add_option("--svg", options->svg, "write the predicted timeline as a picture");
  command->add_option("--trace", options->trace, "write it as a trace for ui.perfetto.dev");
  command->add_option("--html", options->html, "write a page with timeline, resources and steps");
  command->callback([options] {
    if (const int status = run_show_schedule(*options)) throw CLI::RuntimeError(status);
  });
}

}  // namespace herd::cli
