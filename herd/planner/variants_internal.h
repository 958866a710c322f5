// Walks over the runs that techniques offer in place of a run (strategies/technique.h), one dimension for each key:
// layouts first, then the other keys of each layout.   Threads: pure.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "herd/strategies/technique.h"

namespace herd::planner {

using VisitRun = std::function<void(const spec::RunFile& changed)>;

// Returns the run with each value of the keys of [mesh] that equations know, its own first, whether they cover the
// ranks or not. It adapts what depends on the layout.
void each_layout(const spec::RunFile& run, const strategies::RankCounts& ranks, const VisitRun& visit);

// Returns the run as it is, then with each other combination of values of all other keys that equations know, or of the
// automatic ones alone.
void each_variant(const spec::RunFile& run, const strategies::RankCounts& ranks, bool automatic_only,
                  const VisitRun& visit);

// Returns the run with each value of which no equation knows, one at a time.
void each_without_equations(const spec::RunFile& run, const strategies::RankCounts& ranks, const VisitRun& visit);

// Returns the run with each value that changes results (Alternatives::result_change) in place of its own, and says how.
void each_result_change(const spec::RunFile& run, const strategies::RankCounts& ranks,
                        const std::function<void(const spec::RunFile& changed, std::string_view result_change)>& visit);

// Tells whether changes, as differences() lists them, are of automatic keys alone.
bool only_automatic(const std::vector<std::string>& changes);

}  // namespace herd::planner
