#include "herd/planner/suggestions.h"

#include <algorithm>

#include "herd/base/error.h"
#include "herd/planner/differences_internal.h"
#include "herd/planner/partitioned_model_internal.h"
#include "herd/planner/variants_internal.h"

namespace herd::planner {
namespace {

constexpr int kMaxSuggestedRanks = 16384;  // ranks of a suggestion at most

// Says whether the mesh covers the ranks and the batch has a sample for each.
bool has_work(const spec::RunFile& run, int ranks) {
  try {
    const spec::Layout layout = spec::resolve_mesh(run, ranks);
    return layout.data_ranks() <= layout.batch;
  } catch (const Error& error) {
    if (error.code() != Code::kBadConfig) throw;
    return false;
  }
}

double device_seconds(const Suggestion& suggestion) { return suggestion.prediction.step_us * suggestion.ranks / 1e6; }

size_t num_changes(const Suggestion& suggestion, int ranks) {
  return suggestion.changes.size() + (suggestion.ranks == ranks ? 0 : 1);
}

// Returns the cheapest suggestion of each number of changes, unless fewer changes cost no more. The cheapest that this
// version can train is always included.
std::vector<Suggestion> best_of(std::vector<Suggestion> all, int ranks) {
  std::stable_sort(all.begin(), all.end(), [](const Suggestion& a, const Suggestion& b) {
    return device_seconds(a) != device_seconds(b) ? device_seconds(a) < device_seconds(b)
                                                  : a.changes.size() < b.changes.size();
  });
  std::vector<Suggestion> out;
  size_t fewest = SIZE_MAX;
  bool has_trainable = false;
  for (Suggestion& suggestion : all) {
    const size_t changes = num_changes(suggestion, ranks);
    const bool first_trainable = suggestion.unsupported.empty() && !has_trainable;
    if (changes >= fewest && !first_trainable) continue;
    fewest = std::min(fewest, changes);
    has_trainable = has_trainable || suggestion.unsupported.empty();
    out.push_back(std::move(suggestion));
  }
  return out;
}

}  // namespace

bool Budget::holds(const Prediction& prediction) const {
  return (device == 0 || prediction.device_bound <= static_cast<double>(device)) &&
         (host == 0 || prediction.host.total() <= static_cast<double>(host));
}

double time_scale(const spec::RunFile& run, int ranks, const Cluster& cluster, const Prediction& prediction) {
  if (!prediction.simulated || beyond_equations(run, prediction.layout)) return 1;
  CollectiveCostModel::LineCache line_cache;
  return prediction.step_us / predict_by_equations(run, ranks, cluster, line_cache).step_us;
}

std::vector<Suggestion> suggest_changes(const spec::RunFile& stated, int ranks, const Cluster& cluster,
                                        const Search& search) {
  spec::RunFile run = stated;
  run.memory.host_budget = search.budget.host;  // beyond which techniques go to files
  CollectiveCostModel::LineCache line_cache;
  std::vector<Suggestion> fitting;
  for (int n = ranks; n <= std::max(ranks, kMaxSuggestedRanks) && fitting.empty(); n *= 2) {
    if (n > ranks && search.limit != nullptr && search.limit->is_over()) {
      search.limit->leave_out("layouts of " + std::to_string(n) + " ranks and more");
      break;
    }
    const Cluster sized_cluster = with_ranks(cluster, n);
    const strategies::RankCounts all{n, sized_cluster.topology.hosts[0].ranks};
    const auto consider = [&](const spec::RunFile& changed) {
      try {
        if (search.skip_automatic_keys && n == ranks && only_automatic(differences(run, changed))) return;
        if (!search.budget.holds(memory_by_equations(changed, n, sized_cluster))) return;
        Prediction prediction = predict_by_equations(changed, n, sized_cluster, line_cache);
        prediction.step_us *= search.time_scale;
        fitting.push_back({differences(run, changed), n, std::move(prediction), not_built(changed)});
      } catch (const Error& error) {
        if (error.code() != Code::kBadConfig) throw;  // the model does not allow this layout
      }
    };
    std::vector<spec::RunFile> layouts;
    each_layout(run, all, [&](const spec::RunFile& layout) {
      if (has_work(layout, n)) layouts.push_back(layout);
    });
    const std::string what = "layouts of " + std::to_string(n) + (n == 1 ? " rank" : " ranks") + " by equations";
    for (size_t i = 0; i < layouts.size(); ++i) {
      if (search.limit != nullptr && !search.limit->allows(what, i, layouts.size())) break;
      each_variant(layouts[i], all, false, consider);
    }
    if (!search.more_ranks) break;
  }
  return best_of(std::move(fitting), ranks);
}

}  // namespace herd::planner
