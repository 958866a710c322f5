#include "herd/collectives/tuning.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <sstream>

#include "herd/base/error.h"
#include "herd/base/regular_file.h"
#include "herd/base/units.h"
#include "herd/collectives/registry.h"
#include "herd/schedule/schedule_names.h"

namespace herd {
namespace {

constexpr int kMaxLines = 10000;
constexpr size_t kMaxLineLength = 400, kMaxFileBytes = 1 << 20;

[[noreturn]] void fail(int line, const std::string& rule) {
  throw Error(Code::kCorruptFile, "tuning, line " + std::to_string(line) + ": " + rule);
}

template <typename T>
T number(const std::string& word, int line) {
  T value{};
  const auto [end, problem] = std::from_chars(word.data(), word.data() + word.size(), value);
  const bool is_complete = !word.empty() && problem == std::errc{} && end == word.data() + word.size();
  if (!is_complete || !(value >= 0) || !std::isfinite(static_cast<double>(value)))
    fail(line, "a number >= 0 stands here, not \"" + word.substr(0, 40) + "\"");
  return value;
}

// Returns the larger of two sizes over the smaller; 1 is added to both, since a size may be 0.
double size_ratio(int64_t a, int64_t b) {
  const double low = static_cast<double>(std::min(a, b)) + 1, high = static_cast<double>(std::max(a, b)) + 1;
  return high / low;
}

// Parses "4" (the ranks of one host), or "2x2" or "2x2-cyclic" (hosts x ranks on each).
RankPlacement parse_placement(const std::string& word, int line) {
  RankPlacement placement;
  const size_t cross = word.find('x'), dash = word.find('-', cross == std::string::npos ? 0 : cross);
  placement.cyclic = dash != std::string::npos;
  if (cross != std::string::npos) placement.hosts = number<int>(word.substr(0, cross), line);
  const size_t ranks = cross == std::string::npos ? 0 : cross + 1;
  placement.ranks = number<int>(word.substr(ranks, dash == std::string::npos ? dash : dash - ranks), line);
  if (placement.ranks < 1 || placement.hosts < 1 || to_text(placement) != word) {
    fail(line, "ranks are placed as 4, 2x2 or 2x2-cyclic, not \"" + word.substr(0, 40) + "\"");
  }
  return placement;
}

TunedSize parse_size(std::istringstream& words, int line) {
  std::string collective, placement, memory, bytes, algorithm, us, more;
  if (!(words >> collective >> placement >> memory >> bytes >> algorithm >> us) || words >> more) {
    fail(line, "a line is: COLLECTIVE PLACEMENT symmetric|ordinary BYTES ALGORITHM MICROSECONDS");
  }
  TunedSize size;
  try {
    size.collective = parse_collective(collective);
  } catch (const Error& error) {
    fail(line, error.message());
  }
  if (memory != "symmetric" && memory != "ordinary")
    fail(line, "memory is symmetric or ordinary, not \"" + memory + "\"");
  size.placement = parse_placement(placement, line);
  size.symmetric = memory == "symmetric";
  if (size.symmetric && size.placement.hosts > 1) fail(line, "memory is ordinary on several hosts");
  size.bytes = number<int64_t>(bytes, line);
  const auto candidates = algorithms(size.collective);
  const std::string_view name = canonical_name(size.collective, algorithm);
  const auto has_name = [&](const AlgorithmInfo& info) { return info.name == name; };
  if (std::none_of(candidates.begin(), candidates.end(), has_name)) {
    fail(line, "no algorithm of " + collective + " is called \"" + algorithm.substr(0, 40) + "\"");
  }
  size.algorithm = name;
  size.us = number<double>(us, line);
  return size;
}

}  // namespace

std::optional<RankPlacement> placement_of(const CollectiveRequest& request) {
  const int n = request.num_ranks;
  if (request.same_host) return RankPlacement{1, n};
  if (request.hosts.empty() || !request.grid.empty()) return std::nullopt;
  const int hosts = 1 + *std::max_element(request.hosts.begin(), request.hosts.end());
  if (n % hosts != 0) return std::nullopt;
  for (const bool cyclic : {false, true}) {
    const RankPlacement placement{hosts, n / hosts, cyclic};
    const auto host_of = [&](Rank rank) { return cyclic ? rank % hosts : rank / placement.ranks; };
    Rank rank = 0;
    while (rank < n && request.hosts[static_cast<size_t>(rank)] == host_of(rank)) ++rank;
    if (rank == n) return placement;
  }
  return std::nullopt;
}

std::string to_text(const RankPlacement& placement) {
  if (placement.hosts == 1) return std::to_string(placement.ranks);
  const bool cyclic = placement.cyclic && placement.ranks > 1;  // one rank per host is both in blocks and cyclic
  return std::to_string(placement.hosts) + "x" + std::to_string(placement.ranks) + (cyclic ? "-cyclic" : "");
}

std::optional<TunedSize> find_tuned(const Tuning& tuning, const CollectiveRequest& request) {
  constexpr double kMaxRatio = 4;  // between the measured size and the requested one
  const std::optional<RankPlacement> placement = placement_of(request);
  if (!placement || !request.counts.empty()) return std::nullopt;
  const TunedSize* best = nullptr;
  for (const TunedSize& size : tuning.sizes) {
    if (size.collective != request.collective || size.placement != *placement) continue;
    if (size.symmetric != (request.same_host && request.direct)) continue;
    const double distance = size_ratio(size.bytes, request.bytes());
    if (distance > kMaxRatio + 1e-9) continue;
    const double best_distance = best == nullptr ? kMaxRatio + 1 : size_ratio(best->bytes, request.bytes());
    if (distance < best_distance || (distance == best_distance && size.bytes < best->bytes)) best = &size;
  }
  return best == nullptr ? std::nullopt : std::optional<TunedSize>(*best);
}

std::string to_text(const Tuning& tuning) {
  std::string text = "herd-tuning 2\n";
  if (!tuning.machine.empty()) text += "machine " + tuning.machine + "\n";
  for (const TunedSize& size : tuning.sizes) {
    text += std::string(collective_name(size.collective)) + " " + to_text(size.placement) +
            (size.symmetric ? " symmetric " : " ordinary ") + std::to_string(size.bytes) + " " + size.algorithm + " " +
            format_number(size.us) + "\n";
  }
  return text;
}

Tuning parse_tuning(std::string_view text) {
  std::istringstream lines{std::string(text)};
  std::string line;
  // Version 1 has the same lines, all for ranks of one host.
  if (!std::getline(lines, line) || (line != "herd-tuning 2" && line != "herd-tuning 1")) {
    fail(1, "the file begins with \"herd-tuning 2\"");
  }
  Tuning tuning;
  for (int line_number = 2; std::getline(lines, line); ++line_number) {
    if (line_number > kMaxLines) fail(line_number, "a file has at most " + std::to_string(kMaxLines) + " lines");
    if (line.size() > kMaxLineLength) {
      fail(line_number, "a line has at most " + std::to_string(kMaxLineLength) + " characters");
    }
    if (line.empty() || line[0] == '#') continue;
    if (line.starts_with("machine ")) {
      if (!tuning.machine.empty()) fail(line_number, "the machine stands in the file once");
      tuning.machine = line.substr(8);
      continue;
    }
    std::istringstream words(line);
    tuning.sizes.push_back(parse_size(words, line_number));
  }
  return tuning;
}

Tuning read_tuning(const std::string& path) {
  const std::optional<std::string> text = read_regular_file(path, kMaxFileBytes + 1);
  if (!text)
    throw Error(Code::kBadConfig,
                "tuning file " + path + " is no regular file that can be read\n  fix: herd bench OP --tune " + path);
  try {
    if (text->size() > kMaxFileBytes) fail(1, "a file has at most " + std::to_string(kMaxFileBytes) + " bytes");
    return parse_tuning(*text);
  } catch (const Error& error) {
    throw Error(error.code(), path + ": " + error.message() + "\n  fix: remove it, or herd bench OP --tune " + path);
  }
}

}  // namespace herd
