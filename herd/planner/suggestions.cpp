#include "herd/planner/suggestions.h"

#include <algorithm>

#include "herd/base/error.h"
#include "herd/planner/differences_internal.h"
#include "herd/planner/partitioned_model_internal.h"

namespace herd::planner {
namespace {

constexpr int kMostRanks = 16384;

// One way to change each of the keys that decide about memory.
class Variants {
 public:
  Variants(const spec::RunFile& run, int ranks, int ranks_of_host) : run_(run), ranks_(ranks) {
    const auto& model = run.model;
    for (int64_t tp = 1; tp <= std::max<int64_t>(run.mesh.tp, ranks_of_host); tp *= 2) {
      const bool shared = model.kv_heads % tp == 0 || tp % model.kv_heads == 0;
      if (ranks % tp == 0 && model.heads % tp == 0 && shared && model.ffn % tp == 0) tensor_.push_back(tp);
    }
    for (int64_t pp = 1; pp <= std::min<int64_t>(ranks, model.layers) && pp <= 128; pp *= 2) pipeline_.push_back(pp);
    keep(tensor_, run.mesh.tp);
    keep(pipeline_, run.mesh.pp);
    for (int64_t stage = run.strategy.zero; stage <= 3; ++stage) zero_.push_back(stage);
    for (int64_t size = run.train.micro_batch; size >= 1; size /= 2) micro_batch_.push_back(size);
    recompute_ = {run.strategy.recompute};
    if (run.strategy.recompute == "none" && model.dropout > 0) recompute_.push_back("selective");
    if (run.strategy.recompute != "full") recompute_.push_back("full");
    precision_ = {run.strategy.precision};
    if (run.strategy.precision == "fp32") precision_.push_back("bf16");
    offload_ = {run.strategy.offload};
    if (run.strategy.offload == "none") offload_.push_back("states");
  }

  template <class Visit>
  void each(const Visit& visit) const {
    for (const int64_t tp : tensor_) {
      for (const int64_t pp : pipeline_) {
        if (ranks_ % (tp * pp) != 0) continue;
        for (const int64_t zero : zero_) {
          if (zero > run_.strategy.zero && ranks_ / (tp * pp) == 1) continue;
          for (const int64_t micro_batch : micro_batch_) rest(tp, pp, zero, micro_batch, visit);
        }
      }
    }
  }

 private:
  static void keep(std::vector<int64_t>& values, int64_t own) {
    if (std::find(values.begin(), values.end(), own) == values.end()) values.push_back(own);
  }

  template <class Visit>
  void rest(int64_t tp, int64_t pp, int64_t zero, int64_t micro_batch, const Visit& visit) const {
    for (const std::string& recompute : recompute_) {
      for (const std::string& precision : precision_) {
        for (const std::string& offload : offload_) {
          spec::RunFile changed = run_;
          changed.mesh.tp = tp;
          changed.mesh.pp = pp;
          if (pp > 1 || tp == 1) changed.strategy.interleave_micro_batches = 1;
          changed.mesh.dp = 0;
          changed.strategy.zero = zero;
          changed.train.micro_batch = micro_batch;
          changed.strategy.recompute = recompute;
          changed.strategy.precision = precision;
          changed.strategy.offload = offload;
          visit(changed);
        }
      }
    }
  }

  const spec::RunFile& run_;
  int ranks_;
  std::vector<int64_t> tensor_, pipeline_, zero_, micro_batch_;
  std::vector<std::string> recompute_, precision_, offload_;
};

// Whether rewrites.h looks at it.
bool only_rewrites(const std::vector<std::string>& changes) {
  return std::all_of(changes.begin(), changes.end(), [](const std::string& change) {
    return change.starts_with("strategy.zero=") || change.starts_with("strategy.recompute=") ||
           change.starts_with("train.micro_batch=");
  });
}

double device_seconds(const Suggestion& suggestion) { return suggestion.prediction.step_us * suggestion.ranks / 1e6; }

size_t num_changes(const Suggestion& suggestion, int ranks) {
  return suggestion.changes.size() + (suggestion.ranks == ranks ? 0 : 1);
}

// Of each number of changes the cheapest, unless fewer changes cost no more; and the cheapest that can be trained.
std::vector<Suggestion> best_of(std::vector<Suggestion> all, int ranks) {
  std::stable_sort(all.begin(), all.end(), [](const Suggestion& a, const Suggestion& b) {
    return device_seconds(a) != device_seconds(b) ? device_seconds(a) < device_seconds(b)
                                                  : a.changes.size() < b.changes.size();
  });
  std::vector<Suggestion> out;
  size_t fewest = SIZE_MAX;
  bool runs = false;
  for (Suggestion& suggestion : all) {
    const size_t changes = num_changes(suggestion, ranks);
    const bool first_that_runs = suggestion.not_built.empty() && !runs;
    if (changes >= fewest && !first_that_runs) continue;
    fewest = std::min(fewest, changes);
    runs = runs || suggestion.not_built.empty();
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
  if (!prediction.simulated || !has_known_order(run, prediction.layout)) return 1;
  CollectiveCostModel::LineCache memory;
  return prediction.step_us / predict_by_equations(run, ranks, cluster, memory).step_us;
}

std::vector<Suggestion> suggest_changes(const spec::RunFile& run, int ranks, const Cluster& cluster,
                                        const Search& search) {
  CollectiveCostModel::LineCache memory;
  std::vector<Suggestion> fitting;
  for (int n = ranks; n <= std::max(ranks, kMostRanks) && fitting.empty(); n *= 2) {
    const Cluster used = with_ranks(cluster, n);
    Variants(run, n, used.topology.hosts[0].ranks).each([&](const spec::RunFile& changed) {
      try {
        const spec::Layout layout = spec::resolve_mesh(changed, n);
        if (layout.data_ranks() > layout.batch) return;  // ranks that would stand idle
        if (search.other_techniques && n == ranks && only_rewrites(differences(run, changed))) return;
        if (!search.budget.holds(memory_by_equations(changed, n, used))) return;
        Prediction prediction = predict_by_equations(changed, n, used, memory);
        prediction.step_us *= search.time_scale;
        fitting.push_back({differences(run, changed), n, std::move(prediction), not_built(changed)});
      } catch (const Error& error) {
        if (error.code() != Code::kBadConfig) throw;  // a layout that the model does not allow
      }
    });
    if (!search.more_ranks) break;
  }
  return best_of(std::move(fitting), ranks);
}

}  // namespace herd::planner
