#include "herd/cli/tune.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <optional>

#include "herd/base/units.h"
#include "herd/cli/bench_operation.h"
#include "herd/cli/measure.h"
#include "herd/cli/write_file.h"
#include "herd/collectives/registry.h"
#include "herd/topology/probe.h"

namespace herd::cli {
namespace {

constexpr int kRounds = 2;

// What is known already, if it is of this machine.
Tuning known_tuning(const std::string& path) {
  Tuning tuning;
  if (std::filesystem::exists(path)) tuning = read_tuning(path);
  if (!tuning.machine.empty() && tuning.machine != machine_name()) {
    std::printf("%s was measured on \"%s\": it begins anew\n", path.c_str(), tuning.machine.c_str());
    tuning = {};
  }
  tuning.machine = machine_name();
  return tuning;
}

std::optional<TunedSize> fastest(const TuneOptions& options, int64_t bytes) {
  CollectiveRequest request;
  request.collective = parse_collective(options.op);
  request.num_ranks = options.ranks;
  request.elements = whole_elements(options.op, bytes, request.dtype, options.ranks);
  request.in_place = bench_kind(options.op).in_place == InPlace::kAlways;
  request.same_host = true;
  request.direct = options.symmetric;
  // In turns, so that a moment at which the machine was busy does not decide.
  std::map<std::string_view, double> us_of;
  for (int round = 0; round < kRounds; ++round) {
    for (const AlgorithmInfo& algorithm : algorithms(request.collective)) {
      if (!why_not(algorithm, request).empty()) continue;
      const auto measured = measure(request, algorithm.name, options.seconds / kRounds);
      if (!measured) continue;
      const auto [known, fresh] = us_of.emplace(algorithm.name, measured->us);
      if (!fresh) known->second = std::min(known->second, measured->us);
    }
  }
  std::optional<TunedSize> best;
  for (const AlgorithmInfo& algorithm : algorithms(request.collective)) {
    if (!us_of.contains(algorithm.name)) continue;
    const double us = us_of[algorithm.name];
    std::printf("%s %s: %s by %s\n", options.op.c_str(), format_bytes(static_cast<double>(bytes)).c_str(),
                format_us(us).c_str(), std::string(algorithm.name).c_str());
    if (best && best->us <= us) continue;
    best = TunedSize{request.collective, request.num_ranks,           options.symmetric,
                     request.bytes(),    std::string(algorithm.name), us};
  }
  return best;
}

}  // namespace

Tuning with(Tuning tuning, const TunedSize& size) {
  for (TunedSize& known : tuning.sizes) {
    if (known.collective != size.collective || known.num_ranks != size.num_ranks) continue;
    if (known.symmetric != size.symmetric || known.bytes != size.bytes) continue;
    known = size;
    return tuning;
  }
  tuning.sizes.push_back(size);
  return tuning;
}

int run_tune(const TuneOptions& options) {
  Tuning tuning = known_tuning(options.file);
  for (const int64_t bytes : options.bytes) {
    if (const auto best = fastest(options, bytes)) tuning = with(std::move(tuning), *best);
  }
  write_file(options.file, to_text(tuning));
  return 0;
}

}  // namespace herd::cli
