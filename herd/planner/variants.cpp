#include <algorithm>

#include "herd/planner/variants_internal.h"
#include "herd/strategies/techniques.h"

namespace herd::planner {
namespace {

using strategies::Alternatives;

// Holds a key of the run file, and the alternatives that list values for it.
struct Dimension {
  const spec::Key* key;
  std::vector<const Alternatives*> rows;
};

// Returns the keys of all techniques' alternatives for which accepts(technique, key, alternatives) is true.
template <class Accepts>
std::vector<Dimension> dimensions(const Accepts& accepts) {
  std::vector<Dimension> out;
  for (const strategies::Technique& row : strategies::techniques()) {
    for (const Alternatives& alternatives : row.alternatives) {
      const spec::Key* key = &spec::run_key(alternatives.key);
      if (!accepts(row, *key, alternatives)) continue;
      const auto existing = std::ranges::find(out, key, &Dimension::key);
      (existing == out.end() ? out.emplace_back(Dimension{key, {}}) : *existing).rows.push_back(&alternatives);
    }
  }
  return out;
}

bool is_layout(const spec::Key& key) { return key.section == "mesh"; }

// Sets what depends on the layout as techniques allow it.
spec::RunFile adapted(spec::RunFile run) {
  for (const strategies::Technique& row : strategies::techniques()) {
    if (row.adapt != nullptr) row.adapt(run);
  }
  return run;
}

// Visits the run with each value of these alternatives other than its own.
void visit_values(const Alternatives& alternatives, const spec::RunFile& run, const strategies::RankCounts& ranks,
                  const VisitRun& visit) {
  const spec::Key& key = spec::run_key(alternatives.key);
  for (const spec::KeyValue& value : alternatives.values(run, ranks)) {
    if (value == value_of(key, run)) continue;
    spec::RunFile changed = run;
    set_value(key, changed, value);
    visit(changed);
  }
}

// Visits every combination of values from dimension `at` on. The values of a dimension may depend on those before it.
void visit_combinations(const std::vector<Dimension>& all, size_t at, const spec::RunFile& run,
                        const strategies::RankCounts& ranks, const VisitRun& visit) {
  if (at == all.size()) return visit(run);
  const spec::Key& key = *all[at].key;
  std::vector<spec::KeyValue> values = {value_of(key, run)};
  for (const Alternatives* row : all[at].rows) {
    for (spec::KeyValue& value : row->values(run, ranks)) {
      if (std::ranges::count(values, value) == 0) values.push_back(std::move(value));
    }
  }
  for (const spec::KeyValue& value : values) {
    spec::RunFile changed = run;
    set_value(key, changed, value);
    visit_combinations(all, at + 1, changed, ranks, visit);
  }
}

}  // namespace

void each_layout(const spec::RunFile& run, const strategies::RankCounts& ranks, const VisitRun& visit) {
  const auto layouts = dimensions([](const strategies::Technique& row, const spec::Key& key, const Alternatives&) {
    return is_layout(key) && row.in_equations;
  });
  visit_combinations(layouts, 0, run, ranks, [&](const spec::RunFile& changed) { visit(adapted(changed)); });
}

void each_variant(const spec::RunFile& run, const strategies::RankCounts& ranks, bool automatic_only,
                  const VisitRun& visit) {
  const auto keys =
      dimensions([&](const strategies::Technique& row, const spec::Key& key, const Alternatives& alternatives) {
        return !is_layout(key) && (alternatives.automatic || (row.in_equations && !automatic_only));
      });
  visit_combinations(keys, 0, run, ranks, visit);
}

void each_without_equations(const spec::RunFile& run, const strategies::RankCounts& ranks, const VisitRun& visit) {
  for (const strategies::Technique& row : strategies::techniques()) {
    for (const Alternatives& alternatives : row.alternatives) {
      if (row.in_equations || alternatives.automatic || !alternatives.result_change.empty()) continue;
      visit_values(alternatives, run, ranks, [&](const spec::RunFile& changed) { visit(adapted(changed)); });
    }
  }
}

void each_result_change(
    const spec::RunFile& run, const strategies::RankCounts& ranks,
    const std::function<void(const spec::RunFile& changed, std::string_view result_change)>& visit) {
  for (const strategies::Technique& row : strategies::techniques()) {
    for (const Alternatives& alternatives : row.alternatives) {
      if (alternatives.result_change.empty()) continue;
      visit_values(alternatives, run, ranks,
                   [&](const spec::RunFile& changed) { visit(changed, alternatives.result_change); });
    }
  }
}

bool only_automatic(const std::vector<std::string>& changes) {
  const auto automatic =
      dimensions([](const strategies::Technique&, const spec::Key&, const Alternatives& row) { return row.automatic; });
  return std::ranges::all_of(changes, [&](const std::string& change) {
    return std::ranges::any_of(
        automatic, [&](const Dimension& dimension) { return change.starts_with(dimension.key->full_name() + "="); });
  });
}

}  // namespace herd::planner
