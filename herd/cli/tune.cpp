#include "herd/cli/tune.h"

#include <algorithm>
#include <cstdio>
#include <functional>
#include <map>
#include <optional>

#include "herd/base/error.h"
#include "herd/base/printable.h"
#include "herd/base/units.h"
#include "herd/cli/bench.h"
#include "herd/cli/bench_operation.h"
#include "herd/cli/measure.h"
#include "herd/cli/progress_line.h"
#include "herd/cli/write_file.h"
#include "herd/collectives/choose.h"
#include "herd/collectives/registry.h"
#include "herd/launch/cores.h"
#include "herd/launch/environment.h"
#include "herd/storage/file_kind.h"
#include "herd/topology/discover.h"
#include "herd/topology/presets.h"
#include "herd/topology/topology_text.h"

namespace herd::cli {
namespace {

constexpr int kRounds = 2;  // times that each algorithm is measured

// Reads the tuning that the file holds, if it was measured on this machine.
Tuning known_tuning(const std::string& path) {
  Tuning tuning;
  if (is_taken(path)) tuning = read_tuning(path);
  if (!tuning.machine.empty() && tuning.machine != machine_name()) {
    std::printf("%s was measured on \"%s\": it begins anew\n", path.c_str(), printable(tuning.machine).c_str());
    tuning = {};
  }
  tuning.machine = machine_name();
  return tuning;
}

CollectiveRequest request_of(const TuneOptions& options, int64_t bytes, const Topology& topology) {
  CollectiveRequest request;
  request.collective = parse_collective(options.op);
  request.num_ranks = topology.num_ranks();
  request.elements = whole_elements(options.op, bytes, request.dtype, request.num_ranks);
  request.in_place = bench_kind(options.op).in_place == InPlace::kAlways;
  request.same_host = topology.hosts.size() == 1;
  request.direct = request.same_host && options.symmetric;
  return placed_on(request, topology);
}

RankPlacement checked_placement(const CollectiveRequest& request) {
  if (const auto placement = placement_of(request)) return *placement;
  throw Error(Code::kBadConfig,
              "--tune is for hosts of equally many ranks, in blocks or cyclically, without switches or a torus above "
              "them, but the job's ranks are placed otherwise\n  fix: herd run -n N on each host, without --topology");
}

// Returns the microseconds that an algorithm takes, the same on all ranks; nothing if it was not measured.
using Stopwatch = std::function<std::optional<double>(const CollectiveRequest&, std::string_view, double seconds)>;

// Says what it measures, and prints the times, on the rank that has a status line.
std::optional<TunedSize> fastest(const TuneOptions& options, const CollectiveRequest& request, const Stopwatch& us_of,
                                 StatusLine* status) {
  // The algorithms take turns, so that a moment of load on the machine does not decide.
  std::map<std::string_view, double> least_us;
  const std::string what = options.op + " " + format_bytes(static_cast<double>(request.bytes()));
  for (int round = 0; round < kRounds; ++round) {
    for (const AlgorithmInfo& algorithm : algorithms(request.collective)) {
      if (!why_not(algorithm, request).empty()) continue;
      if (status != nullptr)
        status->update(what + ": " + std::string(algorithm.name) + ", turn " + std::to_string(round + 1) + " of " +
                       std::to_string(kRounds));
      const auto us = us_of(request, algorithm.name, options.seconds / kRounds);
      if (!us) continue;
      const auto [known, fresh] = least_us.emplace(algorithm.name, *us);
      if (!fresh) known->second = std::min(known->second, *us);
    }
  }
  std::optional<TunedSize> best;
  for (const AlgorithmInfo& algorithm : algorithms(request.collective)) {
    if (!least_us.contains(algorithm.name)) continue;
    const double us = least_us[algorithm.name];
    if (status != nullptr) {
      std::printf("%s: %s by %s\n", what.c_str(), format_us(us).c_str(), std::string(algorithm.name).c_str());
      std::fflush(stdout);
    }
    if (best && best->us <= us) continue;
    best = TunedSize{request.collective, checked_placement(request),  request.direct,
                     request.bytes(),    std::string(algorithm.name), us};
  }
  return best;
}

// Tunes on the rank that reads and writes the file: rank 0 of a job.
void tune_file(const TuneOptions& options, const Topology& topology, const Stopwatch& us_of) {
  Tuning tuning = known_tuning(options.file);
  StatusLine status("herd bench --tune");
  for (const int64_t bytes : options.bytes) {
    const auto best = fastest(options, request_of(options, bytes, topology), us_of, &status);
    if (best) tuning = with(std::move(tuning), *best);
  }
  write_file(options.file, to_text(tuning));
}

void tune_job(const TuneOptions& options) {
  Communicator comm = Communicator::create();
  const Topology topology = parse_topology(comm.topology());
  for (const int64_t bytes : options.bytes) checked_placement(request_of(options, bytes, topology));
  const Stopwatch us_of = [&](const CollectiveRequest& request, std::string_view algorithm, double seconds) {
    const BenchOptions one{
        .op = options.op, .algorithm = std::string(algorithm), .symmetric = request.direct, .seconds = seconds};
    const BenchResult result = bench(comm, one, request.bytes());
    check_right(result);
    return std::optional(result.us_median);
  };
  if (comm.rank() == 0) return tune_file(options, topology, us_of);
  for (const int64_t bytes : options.bytes) fastest(options, request_of(options, bytes, topology), us_of, nullptr);
}

}  // namespace

Tuning with(Tuning tuning, const TunedSize& size) {
  for (TunedSize& known : tuning.sizes) {
    if (known.collective != size.collective || known.placement != size.placement) continue;
    if (known.symmetric != size.symmetric || known.bytes != size.bytes) continue;
    known = size;
    return tuning;
  }
  tuning.sizes.push_back(size);
  return tuning;
}

int run_tune(const TuneOptions& options) {
  check_room(options.bytes, options.ranks);
  if (launch::read_environment().size > 1) {
    tune_job(options);
    return 0;
  }
  tune_file(options, one_host(options.ranks, launch::host_cores()),
            [](const CollectiveRequest& request, std::string_view algorithm, double seconds) {
              return measure(request, algorithm, seconds);
            });
  return 0;
}

}  // namespace herd::cli
