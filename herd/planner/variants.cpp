#include <algorithm>

#include "herd/planner/variants_internal.h"
#include "herd/strategies/techniques.h"

namespace herd::planner {
namespace {

using strategies::Alternatives;

// A key, and the rows that have values for it.
struct Dimension {
  const spec::Key* key;
  std::vector<const Alternatives*> rows;
};

template <class Takes>
std::vector<Dimension> dimensions(const Takes& takes) {
  std::vector<Dimension> out;
  for (const strategies::Technique& row : strategies::techniques()) {
    for (const Alternatives& alternatives : row.alternatives) {
      const spec::Key* key = &spec::run_key(alternatives.key);
      if (!takes(*key, alternatives)) continue;
      const auto known = std::ranges::find(out, key, &Dimension::key);
      (known == out.end() ? out.emplace_back(Dimension{key, {}}) : *known).rows.push_back(&alternatives);
    }
  }
  return out;
}

bool is_layout(const spec::Key& key) { return key.section == "mesh"; }

// Values of a dimension may depend on those before it.
void walk(const std::vector<Dimension>& all, size_t at, const spec::RunFile& run, const strategies::RankCounts& ranks,
          const VisitRun& visit) {
  if (at == all.size()) return visit(run);
  const spec::Key& key = *all[at].key;
  std::vector<spec::KeyValue> tried = {value_of(key, run)};
  for (const Alternatives* row : all[at].rows) {
    for (spec::KeyValue& value : row->values(run, ranks)) {
      if (std::ranges::count(tried, value) == 0) tried.push_back(std::move(value));
    }
  }
  for (const spec::KeyValue& value : tried) {
    spec::RunFile changed = run;
    set_value(key, changed, value);
    walk(all, at + 1, changed, ranks, visit);
  }
}

}  // namespace

void each_layout(const spec::RunFile& run, const strategies::RankCounts& ranks, const VisitRun& visit) {
  const auto layouts = dimensions([](const spec::Key& key, const Alternatives&) { return is_layout(key); });
  walk(layouts, 0, run, ranks, [&](const spec::RunFile& changed) {
    spec::RunFile adapted = changed;
    for (const strategies::Technique& row : strategies::techniques()) {
      if (row.adapt != nullptr) row.adapt(adapted);
    }
    visit(adapted);
  });
}

void each_variant(const spec::RunFile& run, const strategies::RankCounts& ranks, bool automatic_only,
                  const VisitRun& visit) {
  const auto keys = dimensions([&](const spec::Key& key, const Alternatives& alternatives) {
    return !is_layout(key) && (alternatives.automatic || !automatic_only);
  });
  walk(keys, 0, run, ranks, visit);
}

void each_result_change(
    const spec::RunFile& run, const strategies::RankCounts& ranks,
    const std::function<void(const spec::RunFile& changed, std::string_view result_change)>& visit) {
  for (const strategies::Technique& row : strategies::techniques()) {
    for (const Alternatives& alternatives : row.alternatives) {
      if (alternatives.result_change.empty()) continue;
      const spec::Key& key = spec::run_key(alternatives.key);
      for (const spec::KeyValue& value : alternatives.values(run, ranks)) {
        if (value == value_of(key, run)) continue;
        spec::RunFile changed = run;
        set_value(key, changed, value);
        visit(changed, alternatives.result_change);
      }
    }
  }
}

bool only_automatic(const std::vector<std::string>& changes) {
  const auto automatic = dimensions([](const spec::Key&, const Alternatives& row) { return row.automatic; });
  return std::ranges::all_of(changes, [&](const std::string& change) {
    return std::ranges::any_of(automatic,
                               [&](const Dimension& one) { return change.starts_with(one.key->full_name() + "="); });
  });
}

}  // namespace herd::planner
