#include "herd/cli/explain.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "herd/base/units.h"
#include "herd/collectives/choose.h"
#include "herd/draw/table.h"

namespace herd::cli {
namespace {

std::string as_json(const CollectiveRequest& request, const Topology& topology, const Choice& choice) {
  nlohmann::ordered_json object = {{"op", collective_name(request.collective)},
                                   {"ranks", request.num_ranks},
                                   {"bytes", request.bytes()},
                                   {"dtype", dtype_name(request.dtype)},
                                   {"topology", topology.name},
                                   {"algorithm", choice.algorithm},
                                   {"reason", choice.reason},
                                   {"candidates", nlohmann::ordered_json::array()}};
  for (const Candidate& c : choice.candidates) {
    nlohmann::ordered_json one = {{"algorithm", c.algorithm.name}};
    if (c.why_not.empty()) {
      one.update({{"us", c.us}, {"bytes_sent", c.bytes_sent}, {"messages", c.messages}, {"busiest", c.busiest}});
    } else {
      one["why_not"] = c.why_not;
    }
    object["candidates"].push_back(std::move(one));
  }
  return object.dump() + "\n";
}

std::string as_text(const CollectiveRequest& request, const Topology& topology, const Choice& choice) {
  std::string text = std::string(collective_name(request.collective)) + " of " +
                     format_bytes(static_cast<double>(request.bytes())) + " " + std::string(dtype_name(request.dtype)) +
                     " over " + std::to_string(request.num_ranks) + (request.num_ranks == 1 ? " rank, " : " ranks, ") +
                     topology.name + "\n\n";
  draw::Table table{
      {{"algorithm"}, {"predicted", true}, {"sent per rank", true}, {"messages", true}, {"busiest"}, {"how"}}, {}};
  for (const Candidate& c : choice.candidates) {
    const std::string name(c.algorithm.name), how(c.algorithm.description);
    if (c.why_not.empty()) {
      table.rows.push_back({name, format_us(c.us), format_bytes(static_cast<double>(c.bytes_sent)),
                            std::to_string(c.messages), c.busiest, how});
    } else {
      table.rows.push_back({name, "-", "", "", "", c.why_not});
    }
  }
  return text + draw::text_table(table) + "\nchoice: " + choice.reason + "\n";
}

}  // namespace

std::string explain(const ExplainOptions& options) {
  const Topology topology = topology_of(options.collective);
  const CollectiveRequest request = request_of(options.collective, topology);
  const Choice choice = choose(request, topology);
  return options.json ? as_json(request, topology, choice) : as_text(request, topology, choice);
}

void add_explain_command(CLI::App& app) {
  auto options = std::make_shared<ExplainOptions>();
  CLI::App* command =
      app.add_subcommand("explain", "Every algorithm for a collective, its predicted time, the choice and why");
  add_collective_options(*command, options->collective);
  command->add_flag("--json", options->json, "one JSON object");
  command->callback([options] { std::fputs(explain(*options).c_str(), stdout); });
}

}  // namespace herd::cli
