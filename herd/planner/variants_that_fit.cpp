#include "herd/planner/variants_that_fit.h"

#include <algorithm>
#include <cstdio>
#include <set>

#include "herd/base/error.h"
#include "herd/base/units.h"
#include "herd/planner/differences_internal.h"
#include "herd/planner/stage_search.h"
#include "herd/planner/variants_internal.h"
#include "herd/program/memory_bound.h"
#include "herd/spec/build_model_table.h"
#include "herd/strategies/strategy_table.h"
#include "herd/strategies/techniques.h"
#include "herd/strategies/zero1.h"

namespace herd::planner {
namespace {

constexpr double kEqualTimeRatio = 1.01;  // steps within this factor count as equally fast
constexpr double kShorter = 0.9995;       // a step within this factor counts as no shorter
constexpr size_t kMaxShown = 4;           // variants that are shown at most
constexpr size_t kMaxBases = 16;          // smallest candidates that get one more technique each

// Holds a changed run whose memory is known, but not its time.
struct Candidate {
  spec::RunFile run;
  std::vector<std::string> changes;
  spec::Layout layout;
  int64_t device = 0, host = 0;  // bytes; numbers that are "auto" have their smallest values
};

// Holds a number of a technique that the run sets to "auto"; `applies` says whether the run uses the number.
struct UnsetNumber {
  const spec::Key* key;
  const strategies::AutoNumber* number;
  bool applies;
};

std::vector<UnsetNumber> unset_numbers(const spec::RunFile& run, const spec::Layout& layout) {
  std::vector<UnsetNumber> out;
  for (const strategies::Technique& row : strategies::techniques()) {
    for (const strategies::AutoNumber& number : row.auto_numbers) {
      const spec::Key& key = spec::run_key(number.key);
      if (value_of(key, run) == spec::KeyValue(spec::kAuto))
        out.push_back({&key, &number, number.applies(run, layout)});
    }
  }
  return out;
}

bool fits(const Candidate& one, const Budget& budget) {
  return (budget.device == 0 || one.device <= budget.device) && (budget.host == 0 || one.host <= budget.host);
}

// Returns the steps of one rank of each stage.
std::vector<program::Program> steps_of_stages(const spec::RunFile& run, const spec::ModelTable& model,
                                              const spec::Layout& layout) {
  std::vector<program::Program> steps;
  for (const int rank : strategies::ranks_of_stages(layout))
    steps.push_back(strategies::compile_step(run, model, layout, rank));
  return steps;
}

int64_t max_bytes(const std::vector<program::Program>& steps, program::Tier tier) {
  int64_t most = 0;
  for (const program::Program& step : steps) most = std::max(most, peak_bound(step, tier, steps).bytes);
  return most;
}

// Finds the variants of a run that fit.
class Candidates {
 public:
  Candidates(const spec::RunFile& run, int ranks, const Cluster& cluster, const Budget& budget, SearchLimit* limit)
      : run_(run),
        ranks_(ranks),
        cluster_(cluster),
        budget_(budget),
        own_layout_(spec::resolve_mesh(run, ranks)),
        limit_(limit) {}

  Variants run() {
    Variants out;
    const std::vector<Candidate> all = candidates();
    out.built = static_cast<int>(all.size());
    if (all.empty()) return out;
    out.unchanged = predict_variant(all[0].run, all[0].layout).prediction;
    std::vector<const Candidate*> small;
    for (const Candidate& one : all) {
      if (fits(one, budget_)) small.push_back(&one);
    }
    std::vector<Variant> fitting;
    give_time_until(kPredicting);
    for (size_t i = 0; i < small.size() && may_go_on("predictions of runs that fit", i, small.size()); ++i)
      fitting.push_back(predict_variant(small[i]->run, small[i]->layout));
    give_time_until(kProving);
    out.fitting = within_budget(cheapest_first(std::move(fitting)));
    if (!out.fitting.empty() && limit_ != nullptr) limit_->has_result();
    if (out.fitting.empty()) {
      const auto least = std::min_element(all.begin(), all.end(),
                                          [](const Candidate& a, const Candidate& b) { return a.device < b.device; });
      out.least_memory = Variant{least->changes, least->run, {}};
      out.least_memory->prediction.device_bound = static_cast<double>(least->device);
      out.least_memory->prediction.host.buffers = static_cast<double>(least->host);
      out.by_one_more = by_one_more(all);
    }
    out.with_other_results = with_other_results();
    return out;
  }

 private:
  // Shares of a limited time after which the search has built programs, predicted and proved them.
  static constexpr double kBuilding = 0.35, kPredicting = 0.6, kProving = 0.7, kOneMore = 0.85;

  void give_time_until(double share) const {
    if (limit_ != nullptr) limit_->allow_until(share);
  }
  bool may_go_on(const std::string& what, size_t index, size_t count) const {
    return limit_ == nullptr || limit_->allows(what, index, count);
  }

  strategies::RankCounts ranks() const { return {ranks_, cluster_.topology.hosts[0].ranks}; }

  // Gives the smallest of all candidates one more key each (each_without_equations), and returns what fits.
  std::vector<Variant> by_one_more(std::vector<Candidate> bases) const {
    std::ranges::stable_sort(bases, {}, &Candidate::device);
    bases.resize(std::min(bases.size(), kMaxBases));
    std::vector<spec::RunFile> runs;
    for (const Candidate& base : bases)
      each_without_equations(base.run, ranks(), [&](const spec::RunFile& changed) { runs.push_back(changed); });
    give_time_until(kOneMore);
    std::vector<Variant> fitting;
    for (size_t i = 0; i < runs.size() && may_go_on("programs with one more technique", i, runs.size()); ++i) {
      const std::optional<Candidate> one = build_candidate(runs[i]);
      if (one && fits(*one, budget_)) fitting.push_back(predict_variant(one->run, one->layout));
    }
    return within_budget(cheapest_first(std::move(fitting)));
  }

  std::vector<Variant> with_other_results() const {
    std::vector<std::pair<spec::RunFile, std::string_view>> all;
    each_result_change(run_, ranks(), [&](const spec::RunFile& changed, std::string_view result_change) {
      all.emplace_back(changed, result_change);
    });
    std::vector<Variant> out;
    if (limit_ != nullptr && limit_->is_over() && !all.empty()) {
      limit_->leave_out("runs with other results");
      return out;
    }
    for (size_t i = 0; i < all.size() && may_go_on("runs with other results", i, all.size()); ++i) {
      const std::optional<Candidate> one = build_candidate(all[i].first);
      if (!one) continue;
      out.push_back(predict_variant(all[i].first, one->layout));
      out.back().result_change = all[i].second;
    }
    return out;
  }

  // Returns the run as it is and its variants; nothing if the run's own program can't be built.
  std::vector<Candidate> candidates() const {
    std::vector<spec::RunFile> all;
    each_variant(run_, ranks(), true, [&](const spec::RunFile& changed) { all.push_back(changed); });
    std::vector<Candidate> out;
    give_time_until(kBuilding);
    for (size_t i = 0; i < all.size() && may_go_on("programs of changed runs", i, all.size()); ++i) {
      std::optional<Candidate> one = build_candidate(all[i]);
      if (one) out.push_back(std::move(*one));
      if (out.empty()) break;
    }
    return out;
  }

  std::optional<Candidate> build_candidate(spec::RunFile changed) const {
    // A run that this version can train gets no variant that it can't.
    if (not_built(run_).empty() && !not_built(changed).empty()) return std::nullopt;
    Candidate out{.run = changed, .changes = differences(run_, changed), .layout = {}};
    std::vector<program::Program> steps;
    try {
      out.layout = spec::resolve_mesh(changed, ranks_);
      if (!why_no_program(changed, out.layout).empty()) return std::nullopt;
      const auto model = spec::program_table(changed, out.layout.micro_batch, cluster_.device.kernels());
      for (const UnsetNumber& one : unset_numbers(changed, out.layout)) {
        const bool saves = one.number->saves_host_memory;
        if (one.number->values == nullptr && (one.applies || !saves))
          set_value(*one.key, changed, saves ? one.number->max_value(model) : static_cast<int64_t>(one.key->min));
      }
      out.layout = with_stage_cut(changed, model, std::move(out.layout), cluster_.device.kernels());
      steps = steps_of_stages(changed, model, out.layout);
    } catch (const Error& error) {
      const bool of_run = out.changes.empty();
      if (error.code() != Code::kBadConfig || of_run) throw;
      return std::nullopt;  // the change conflicts with another setting, or makes too many micro-batches
    }
    out.device = max_bytes(steps, program::Tier::kDevice);
    out.host = max_bytes(steps, program::Tier::kHost);
    return out;
  }

  Variant predict_variant(const spec::RunFile& changed, const spec::Layout& layout) const {
    const Cluster cluster = with_micro_batch(cluster_, run_, own_layout_, layout);
    spec::RunFile resolved = with_numbers(changed, ranks_, cluster, budget_, limit_);
    Prediction prediction = predict_extrapolated(resolved, ranks_, cluster);
    return {differences(run_, changed), std::move(resolved), std::move(prediction)};
  }

  // Sorts by step time, and equally fast variants by fewer changes, then by memory. Drops a variant if one before it
  // has no more changes and takes no more memory.
  static std::vector<Variant> cheapest_first(std::vector<Variant> all) {
    const auto by_time = [](const Variant& a, const Variant& b) { return a.prediction.step_us < b.prediction.step_us; };
    std::stable_sort(all.begin(), all.end(), by_time);
    const double max_us = all.empty() ? 0 : kEqualTimeRatio * all[0].prediction.step_us;
    const auto end =
        std::find_if(all.begin(), all.end(), [&](const Variant& one) { return one.prediction.step_us > max_us; });
    std::stable_sort(all.begin(), end, [](const Variant& a, const Variant& b) {
      return a.changes.size() != b.changes.size() ? a.changes.size() < b.changes.size()
                                                  : a.prediction.device_bound < b.prediction.device_bound;
    });
    std::vector<Variant> out;
    for (Variant& one : all) {
      const bool dominated = std::any_of(out.begin(), out.end(), [&](const Variant& earlier) {
        return earlier.changes.size() <= one.changes.size() &&
               earlier.prediction.device_bound <= one.prediction.device_bound;
      });
      if (!dominated) out.push_back(std::move(one));
    }
    return out;
  }

  // Returns the variants whose programs fit on every rank, since ranks may hold different shards.
  std::vector<Variant> within_budget(std::vector<Variant> all) const {
    std::vector<Variant> out;
    for (size_t i = 0; i < all.size() && out.size() < kMaxShown && may_go_on("proofs of runs that fit", i, all.size());
         ++i) {
      Variant& one = all[i];
      spec::RunFile limited = one.run;
      limited.memory.device_budget = budget_.device;
      limited.memory.host_budget = budget_.host;
      const spec::Layout& layout = one.prediction.layout;
      try {
        strategies::programs_of_run(limited,
                                    spec::program_table(limited, layout.micro_batch, cluster_.device.kernels()), layout,
                                    strategies::ranks_of_stages(layout));
        out.push_back(std::move(one));
      } catch (const Error& error) {
        if (error.code() != Code::kOverBudget) throw;
      }
    }
    return out;
  }

  const spec::RunFile& run_;
  const int ranks_;
  const Cluster cluster_;
  const Budget budget_;
  const spec::Layout own_layout_;
  SearchLimit* const limit_;
};

// Returns the largest number in [0, most] that `fits`. REQUIRES that 0 fits, and that below `most` a number fits if a
// larger one does.
template <class Fits>
int64_t largest_that_fits(int64_t most, const Fits& fits) {
  if (fits(most)) return most;
  int64_t fitting = 0;
  while (most - fitting > 1) {
    const int64_t middle = (fitting + most) / 2;
    (fits(middle) ? fitting : most) = middle;
  }
  return fitting;
}

// Chooses the numbers of a run that are "auto", which spend memory to save time.
class AutoNumbers {
 public:
  AutoNumbers(spec::RunFile run, int ranks, const Cluster& cluster, SearchLimit* limit)
      : run_(std::move(run)),
        ranks_(ranks),
        cluster_(cluster),
        limit_(limit),
        layout_(spec::resolve_mesh(run_, ranks)),
        model_(spec::program_table(run_, layout_.micro_batch, cluster.device.kernels())) {
    layout_ = with_stage_cut(run_, model_, std::move(layout_), cluster.device.kernels());
  }

  const spec::ModelTable& model() const { return model_; }
  int64_t bytes(program::Tier tier = program::Tier::kDevice) const {
    return max_bytes(steps_of_stages(run_, model_, layout_), tier);
  }
  const spec::RunFile& run() const { return run_; }

  // Sets the key to the smallest number whose step takes at most 1 % longer than with the largest number that fits.
  // The largest number is at most `most`, and its step takes at most `allowed` bytes; 0 = any. The key's minimum always
  // counts as fitting. Where the time of the search is over, it takes the best of the numbers that it has tried.
  void choose_smallest(const spec::Key& key, int64_t most, int64_t allowed) {
    const auto step_us = [&](int64_t value) {
      set_value(key, run_, value);
      return predict_extrapolated(run_, ranks_, cluster_).step_us;
    };
    const auto least = static_cast<int64_t>(key.min);
    most = least + largest_that_fits(std::max<int64_t>(0, most - least), [&](int64_t more) {
             if (allowed == 0) return true;
             set_value(key, run_, least + more);
             return may_try(key) && bytes() <= allowed;
           });
    set_value(key, run_, most);
    if (most == least || !may_try(key)) return;
    const double max_us = kEqualTimeRatio * step_us(most);
    const int64_t fewer =
        largest_that_fits(most - least, [&](int64_t less) { return may_try(key) && step_us(most - less) <= max_us; });
    set_value(key, run_, most - fewer);
  }

  // Sets the key to the smallest number whose step takes at most `allowed` bytes of the host; 0 = any.
  void choose_smallest_of_host(const spec::Key& key, int64_t most, int64_t allowed) {
    const auto least = static_cast<int64_t>(key.min);
    const int64_t fewer = largest_that_fits(most - least, [&](int64_t less) {
      set_value(key, run_, most - less);
      return allowed == 0 || (may_try(key) && bytes(program::Tier::kHost) <= allowed);
    });
    set_value(key, run_, most - fewer);
  }

  // Sets the key to the smallest of `values` whose step takes at most 1 % longer than with the best of them, or of
  // those that there is time for.
  void choose_among(const spec::Key& key, const std::vector<int64_t>& values) {
    std::vector<double> step_us;
    for (const int64_t value : values) {
      if (!step_us.empty() && !may_try(key)) break;
      set_value(key, run_, value);
      step_us.push_back(predict_extrapolated(run_, ranks_, cluster_).step_us);
    }
    const double max_us = kEqualTimeRatio * *std::min_element(step_us.begin(), step_us.end());
    const auto chosen = std::find_if(step_us.begin(), step_us.end(), [&](double us) { return us <= max_us; });
    set_value(key, run_, values[static_cast<size_t>(chosen - step_us.begin())]);
  }

  // Sets strategy.direct_host to the layers at both ends of the chain with which the step is shortest: as long as one
  // more makes it shorter, the one that does so most. None where the device has memory of its own: how often its
  // kernels read a weight over the link is not known.
  void choose_direct_blocks() {
    const spec::Key& key = spec::run_key("strategy.direct_host");
    run_.strategy.direct_host = "none";
    if (cluster_.device.has_own_device || strategies::zero_stage(run_, layout_) == 3) return;
    const int last = model_.blocks.back().layer;
    std::set<int> candidates, chosen;
    for (const int layer : {0, 1, 2, last - 2, last - 1, last}) candidates.insert(std::clamp(layer, 0, last));
    double best_us = predict_extrapolated(run_, ranks_, cluster_).step_us;
    while (!candidates.empty() && may_try(key)) {
      int best = -1;
      const std::string before = run_.strategy.direct_host;
      for (const int layer : candidates) {
        std::set<int> more = chosen;
        more.insert(layer);
        run_.strategy.direct_host = names_of_layers(more);
        const double us = predict_extrapolated(run_, ranks_, cluster_).step_us;
        if (us < kShorter * best_us) best_us = us, best = layer;
      }
      if (best >= 0) chosen.insert(best), candidates.erase(best);
      run_.strategy.direct_host = best >= 0 ? names_of_layers(chosen) : before;
      if (best < 0) return;
    }
  }

 private:
  // Returns the names of the blocks of these layers that have weights.
  std::string names_of_layers(const std::set<int>& layers) const {
    std::string out;
    for (const spec::BlockShape& block : model_.blocks) {
      if (layers.contains(block.layer) && !block.groups.empty()) out += (out.empty() ? "" : " ") + block.name;
    }
    return out;
  }

  // Tells whether there is time for another value of the key, and notes where there is not.
  bool may_try(const spec::Key& key) const {
    if (limit_ == nullptr || !limit_->is_over()) return true;
    limit_->leave_out("values of " + key.full_name());
    return false;
  }

  spec::RunFile run_;
  const int ranks_;
  const Cluster& cluster_;
  SearchLimit* const limit_;
  spec::Layout layout_;  // with the stages of the run whose numbers are the smallest
  const spec::ModelTable model_;
};

std::string text_of(const Variant& variant, const Prediction& today) {
  const Prediction& p = variant.prediction;
  char share[32];
  std::snprintf(share, sizeof share, "%.0f %%", 100 * p.step_us / today.step_us);
  std::string out;
  for (const std::string& change : variant.changes) out += (out.empty() ? "" : " ") + change;
  if (out.empty()) out = "the run as it is";
  return out + ": " + format_bytes(p.device_bound) + " at its peak, a step of " + format_us(p.step_us) +
         " predicted, " + share + " of today's";
}

// Returns " strategy.prefetch=1 strategy.keep_whole=4": the numbers that were "auto" and that apply.
std::string numbers_text(const spec::RunFile& stated, const spec::RunFile& resolved, int ranks) {
  std::string out;
  for (const UnsetNumber& one : unset_numbers(stated, spec::resolve_mesh(resolved, ranks))) {
    if (one.number->applies(resolved, spec::resolve_mesh(resolved, ranks)))
      out += " " + one.key->full_name() + "=" + value_toml(*one.key, resolved);
  }
  if (stated.strategy.direct_host == "auto")
    out += " strategy.direct_host=" + value_toml(spec::run_key("strategy.direct_host"), resolved);
  return out;
}

// Returns the run with the ranks of each host, where a secondary shard or the memory of relays between hosts
// (strategies/expert_parallel.h) needs their number and the run leaves it open.
spec::RunFile with_ranks_per_host(spec::RunFile run, int ranks, const Cluster& cluster) {
  if ((!run.strategy.secondary_shard && run.mesh.ep == 1) || run.mesh.ranks_per_host > 0) return run;
  const Topology topology = with_ranks(cluster, ranks).topology;
  const std::vector<Host>& hosts = topology.hosts;
  const bool in_order = topology.placement.empty() &&
                        std::ranges::all_of(hosts, [&](const Host& host) { return host.ranks == hosts[0].ranks; });
  if (!run.strategy.secondary_shard && (!in_order || hosts.size() == 1)) return run;
  if (!in_order)
    throw Error(Code::kBadConfig,
                "strategy.secondary_shard keeps as many neighbouring ranks together on each host, and these hosts have "
                "different ranks\n  fix: as many ranks on each host, or strategy.secondary_shard = false");
  run.mesh.ranks_per_host = hosts[0].ranks;
  return run;
}

}  // namespace

Variants variants_that_fit(const spec::RunFile& run, int ranks, const Cluster& cluster, const Budget& budget,
                           SearchLimit* limit) {
  return Candidates(run, ranks, with_ranks(cluster, ranks), budget, limit).run();
}

std::string advice(const Variants& variants, const Budget& budget) {
  const Prediction& today = variants.unchanged;
  std::string out;
  if (variants.built == 0) return out;
  const std::string tried = std::to_string(variants.built) + " programs were built";
  if (!variants.fitting.empty()) {
    out = "\nwhat fits with the same numbers, cheapest first (" + tried +
          "; today's step: " + format_us(today.step_us) + " predicted):";
    for (const Variant& one : variants.fitting) out += "\n  " + text_of(one, today);
    out += "\n  strategy.auto=true takes the first";
  } else if (variants.least_memory) {
    const Prediction& p = variants.least_memory->prediction;
    std::string changes;
    for (const std::string& change : variants.least_memory->changes) changes += " " + change;
    const double missing = budget.device > 0 ? p.device_bound - static_cast<double>(budget.device) : 0;
    out = "\nnothing fits with the same numbers: of " + std::to_string(variants.built) + " programs the nearest is" +
          (changes.empty() ? " the run as it is" : changes) + ": " + format_bytes(p.device_bound) + " of device memory";
    if (missing > 0) out += ", " + format_bytes(missing) + " too much";
    const double host = p.host.total() - static_cast<double>(budget.host);
    if (budget.host > 0 && host > 0) out += "; " + format_bytes(host) + " too much of host memory";
    if (!variants.by_one_more.empty()) out += "\nwhat fits with one more technique, cheapest first:";
    for (const Variant& one : variants.by_one_more) out += "\n  " + text_of(one, today);
  }
  for (const Variant& one : variants.with_other_results) {
    const Prediction& p = one.prediction;
    out += "\n  " + one.changes.at(0) + (budget.holds(p) ? " fits" : " does not fit") + " without other changes (" +
           format_bytes(p.device_bound) + ", " + format_us(p.step_us) + "), but " + std::string(one.result_change);
  }
  return out;
}

spec::RunFile with_numbers(spec::RunFile run, int ranks, const Cluster& cluster, const Budget& budget,
                           SearchLimit* limit) {
  const spec::Layout layout = spec::resolve_mesh(run, ranks);
  std::vector<UnsetNumber> unset = unset_numbers(run, layout);
  const bool has_program = why_no_program(run, layout).empty();
  for (UnsetNumber& one : unset) {
    one.applies = one.applies && has_program;
    const bool starts_at_min = one.applies && one.number->values == nullptr;
    set_value(*one.key, run, starts_at_min ? static_cast<int64_t>(one.key->min) : one.number->value_if_inapplicable);
  }
  std::erase_if(unset, [](const UnsetNumber& one) { return !one.applies; });
  const bool chooses_blocks = run.strategy.direct_host == "auto";
  if (chooses_blocks) run.strategy.direct_host = "none";
  if (unset.empty() && !chooses_blocks) return run;
  AutoNumbers search(std::move(run), ranks, cluster, limit);
  std::ranges::stable_partition(unset, [](const UnsetNumber& one) { return one.number->saves_host_memory; });
  for (const UnsetNumber& one : unset) {
    if (one.number->saves_host_memory) {
      search.choose_smallest_of_host(*one.key, one.number->max_value(search.model()), budget.host);
      continue;
    }
    if (one.number->values != nullptr) {
      search.choose_among(*one.key, one.number->values(search.model()));
      continue;
    }
    const bool no_extra_memory = one.number->no_memory_without_budget && budget.device == 0;
    search.choose_smallest(*one.key, one.number->max_value(search.model()),
                           no_extra_memory ? search.bytes() : budget.device);
  }
  if (chooses_blocks && has_program) search.choose_direct_blocks();
  return search.run();
}

ResolvedRun resolve(const spec::RunFile& stated, int ranks, const Cluster& machines, const Budget& budget,
                    SearchLimit* limit) {
  const Cluster cluster = without_measurements(machines);
  const spec::RunFile run = with_ranks_per_host(stated, ranks, cluster);
  if (!run.strategy.automatic) {
    const spec::RunFile resolved = with_numbers(run, ranks, cluster, budget, limit);
    const std::string numbers = numbers_text(run, resolved, ranks);
    return {resolved, numbers.empty() ? "" : "left to herd:" + numbers};
  }
  const Variants variants = variants_that_fit(run, ranks, cluster, budget, limit);
  if (variants.built == 0) {
    throw Error(Code::kBadConfig, "strategy.auto chooses among programs, but " +
                                      why_no_program(run, spec::resolve_mesh(run, ranks)) +
                                      "\n  fix: strategy.auto = false");
  }
  if (variants.fitting.empty()) {
    throw Error(Code::kOverBudget, "strategy.auto found nothing that fits " +
                                       format_bytes(static_cast<double>(budget.device)) + " of device memory" +
                                       advice(variants, budget));
  }
  const spec::RunFile& taken = variants.fitting[0].run;
  const std::string numbers = numbers_text(run, taken, ranks);
  ResolvedRun out{taken, "strategy.auto: " + text_of(variants.fitting[0], variants.unchanged) +
                             (numbers.empty() ? "" : ", with" + numbers)};
  out.run.strategy.automatic = false;
  return out;
}

}  // namespace herd::planner
