#include "herd/cli/explain.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "herd/base/error.h"
#include "herd/base/units.h"
#include "herd/cli/measure.h"
#include "herd/cli/option_checks.h"
#include "herd/cli/progress_line.h"
#include "herd/cli/run_program.h"
#include "herd/collectives/aggregate_traffic.h"
#include "herd/collectives/choose.h"
#include "herd/draw/table.h"

namespace herd::cli {
namespace {

using Times = std::map<std::string_view, double>;  // measured microseconds, by algorithm

Times measure_all(const ExplainOptions& options, const CollectiveRequest& request, const Choice& choice) {
  Times measured;
  if (!options.measure) return measured;
  if (!options.collective.topology_file.empty()) {
    throw Error(Code::kBadConfig, "--measure is for this host, so not with --topology\n  fix: leave one of them out");
  }
  check_measurable(request);
  for (const Candidate& c : choice.candidates) {
    if (c.us <= 0) continue;
    if (const auto us = measure(request, c.algorithm.name, 0.5)) measured[c.algorithm.name] = *us;
  }
  return measured;
}

// Returns "ipc: no nccl: ranks 0 and 1 share a GPU ..", as ranks on this host's devices choose their engine; empty for
// buffers of the host. Throws kBadConfig where there is no such device.
std::string device_engine(const ExplainOptions& options, const CollectiveRequest& request) {
  if (options.device == "cpu") return "";
  if (!options.collective.topology_file.empty()) {
    throw Error(Code::kBadConfig,
                "--device asks this host's devices, so not with --topology\n  fix: leave one of them out");
  }
  const auto [status, output] =
      run_program({std::filesystem::read_symlink("/proc/self/exe"), "bench",
                   std::string(collective_name(request.collective)), "--ranks", std::to_string(request.num_ranks),
                   "--bytes", "4KiB", "--seconds", "0.01", "--device", options.device});
  const std::string before = "# device " + options.device + ", engine ";
  const size_t begin = output.find(before);
  if (begin != std::string::npos)
    return output.substr(begin + before.size(), output.find('\n', begin) - begin - before.size());
  const std::string prefix = "herd: kBadConfig: ";
  const size_t error = output.find(prefix);
  throw Error(Code::kBadConfig, error == std::string::npos ? output : output.substr(error + prefix.size()));
}

std::string as_json(const CollectiveRequest& request, const Topology& topology, const Choice& choice,
                    const Times& measured, const std::string& engine) {
  nlohmann::ordered_json object = {{"op", collective_name(request.collective)},
                                   {"ranks", request.num_ranks},
                                   {"bytes", request.bytes()},
                                   {"dtype", dtype_name(request.dtype)},
                                   {"topology", topology.name},
                                   {"algorithm", choice.algorithm},
                                   {"reason", choice.reason},
                                   {"candidates", nlohmann::ordered_json::array()}};
  if (!engine.empty()) object["device_engine"] = engine;
  for (const Candidate& c : choice.candidates) {
    nlohmann::ordered_json one = {{"algorithm", c.algorithm.name}, {"how", c.algorithm.description}};
    if (c.why_not.empty() || c.us > 0) {
      one.update({{"us", c.us},
                  {"bytes_sent", c.bytes_sent},
                  {"steps", c.rounds},
                  {"messages", c.messages},
                  {"bytes_by_distance", c.bytes_by_distance},
                  {"busiest", c.busiest}});
    }
    if (request.segment_bytes > 0 && c.algorithm.has_segments) one["segment_bytes"] = request.segment_bytes;
    if (!c.why_not.empty()) one["why_not"] = c.why_not;
    if (measured.contains(c.algorithm.name)) one["measured_us"] = measured.at(c.algorithm.name);
    object["candidates"].push_back(std::move(one));
  }
  return object.dump() + "\n";
}

// Returns the error of a prediction, in percent of the measured time.
std::string off_by(double predicted_us, double measured_us) {
  char text[32];
  std::snprintf(text, sizeof text, "%+.0f %%", 100 * (predicted_us / measured_us - 1));
  return text;
}

std::string tier_name(size_t distance, const Topology& topology) {
  if (distance == 0) return "in host";
  if (distance == 1) return topology.fabric == Fabric::kSwitch ? "between hosts" : "over links";
  return "above tier " + std::to_string(distance - 1);
}

std::string as_text(const CollectiveRequest& request, const Topology& topology, const Choice& choice,
                    const Times& measured) {
  std::string text = std::string(collective_name(request.collective)) + " of " +
                     format_bytes(static_cast<double>(request.bytes())) + " " + std::string(dtype_name(request.dtype)) +
                     " over " + std::to_string(request.num_ranks) + (request.num_ranks == 1 ? " rank, " : " ranks, ") +
                     topology.name + "\n\n";
  const bool single_host = topology.hosts.size() == 1;
  draw::Table table{{{"algorithm"}, {"predicted", true}}, {}};
  if (!measured.empty()) table.columns.insert(table.columns.end(), {{"measured", true}, {"off", true}});
  for (const char* name : {"steps", "sent per rank"}) table.columns.push_back({name, true});
  const size_t distances = single_host ? 0 : static_cast<size_t>(num_distances(topology));
  for (size_t distance = 0; distance < distances; ++distance) {
    table.columns.push_back({tier_name(distance, topology), true});
  }
  for (const char* name : {"messages", "busiest", "how"}) table.columns.push_back({name, name[0] == 'm'});
  std::vector<std::pair<std::string, std::string>> left_out;  // reasons, and the algorithms
  for (const Candidate& c : choice.candidates) {
    if (c.us <= 0 && !c.why_not.empty()) {
      const auto same =
          std::find_if(left_out.begin(), left_out.end(), [&](const auto& entry) { return entry.first == c.why_not; });
      if (same == left_out.end()) {
        left_out.push_back({c.why_not, std::string(c.algorithm.name)});
      } else {
        same->second += ", " + std::string(c.algorithm.name);
      }
      continue;
    }
    const auto found = measured.find(c.algorithm.name);
    std::vector<std::string> row = {std::string(c.algorithm.name), format_us(c.us)};
    if (found != measured.end()) {
      row.insert(row.end(), {format_us(found->second), off_by(c.us, found->second)});
    } else if (!measured.empty()) {
      row.insert(row.end(), {"", ""});
    }
    row.insert(row.end(), {std::to_string(c.rounds), format_bytes(static_cast<double>(c.bytes_sent))});
    for (size_t distance = 0; distance < distances; ++distance) {
      row.push_back(format_bytes(static_cast<double>(c.bytes_by_distance[distance])));
    }
    row.insert(row.end(), {std::to_string(c.messages), c.busiest});
    row.push_back(c.why_not.empty() ? std::string(c.algorithm.description) : c.why_not);
    table.rows.push_back(std::move(row));
  }
  text += draw::text_table(table) + "\n";
  for (const auto& [why, names] : left_out) text += "left out, " + why + ": " + names + "\n";
  if (request.segment_bytes > 0) {
    text += "segments of " + format_bytes(static_cast<double>(request.segment_bytes)) + ": " +
            names_with_segments(request.collective) + "; the others have none, and are as without --segment\n";
  }
  const bool remarks = !left_out.empty() || request.segment_bytes > 0;
  return text + (remarks ? "\n" : "") + "choice: " + choice.reason + "\n";
}

std::string all_workers_text(const CollectiveRequest& request, const Topology& topology) {
  const Host& host = topology.hosts[0];
  const bool wire = topology.hosts.size() > 1;
  const double rate = wire ? host.uplink.bytes_per_us : host.memory_bytes_per_us / 2;
  draw::Table table{{{"all workers together"}, {"sent", true}, {"equation"}, {"time", true}, {"herd's algorithm"}}, {}};
  for (const AggregateTrafficRow& row : aggregate_traffic(request.num_ranks, request.bytes(), rate)) {
    table.rows.push_back({std::string(row.pattern), format_bytes(row.total_bytes), std::string(row.total_equation),
                          format_us(row.us), std::string(row.algorithm.empty() ? "none" : row.algorithm)});
  }
  return "\n" + draw::text_table(table) + "\nN = " + std::to_string(request.num_ranks) +
         " workers, M = " + format_bytes(static_cast<double>(request.bytes())) + ", B = " + format_bytes(rate * 1e6) +
         "/s (" + (wire ? "the uplink" : "half of what memory reads and writes") + "), latencies left out\n";
}

}  // namespace

std::string explain(const ExplainOptions& options) {
  const Topology topology = topology_of(options.collective);
  const CollectiveRequest request = request_of(options.collective, topology);
  Tuning tuning;
  if (!options.tuning_file.empty()) tuning = read_tuning(options.tuning_file);
  const Choice choice = [&] {
    StatusLine status("herd explain");
    const auto report = [&](std::string_view algorithm) {
      status.update(std::string(algorithm) + " over " + std::to_string(request.num_ranks) + " ranks");
    };
    return choose(request, topology,
                  {.time_all = options.all, .count_rounds = true, .tuning = &tuning, .report = report});
  }();
  const Times measured = measure_all(options, request, choice);
  const std::string engine = device_engine(options, request);
  if (options.json) return as_json(request, topology, choice, measured, engine);
  std::string text = as_text(request, topology, choice, measured);
  if (!engine.empty()) text += "engine of buffers on " + options.device + ": " + engine + "\n";
  if (options.aggregate_traffic) {
    if (request.collective != Collective::kAllReduce) {
      throw Error(Code::kBadConfig, "--all-workers is about all_reduce, not " + options.collective.op);
    }
    text += all_workers_text(request, topology);
  }
  return text;
}

void add_explain_command(CLI::App& app) {
  auto options = std::make_shared<ExplainOptions>();
  CLI::App* command =
      app.add_subcommand("explain", "Every algorithm for a collective, its predicted time, the choice and why");
  add_collective_options(*command, options->collective);
  command->add_flag("--all", options->all, "time algorithms of messages inside a host, too");
  command->add_flag("--all-workers", options->aggregate_traffic,
                    "and what all ranks together send, as lectures count it");
  command->add_flag("--measure", options->measure, "and the time measured here, by herd bench");
  command->add_option("--tuning", options->tuning_file, "file of docs/formats/tuning.md, which overrides the model")
      ->check(not_empty());
  command
      ->add_option("--device", options->device,
                   "cuda: and how buffers on this host's GPUs move (nccl, ipc or staged), and why")
      ->check(CLI::IsMember({"cpu", "cuda"}))
      ->capture_default_str();
  command->add_flag("--json", options->json, "one JSON object");
  command->callback([options] { std::fputs(explain(*options).c_str(), stdout); });
}

}  // namespace herd::cli
