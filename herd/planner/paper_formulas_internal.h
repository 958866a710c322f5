// Defines how the text, the page and the JSON of a plan show what published equations say.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "herd/draw/table.h"
#include "herd/planner/paper_formulas.h"

namespace herd::planner {

struct PaperTable {
  std::string title;
  draw::Table table;
};
std::vector<PaperTable> paper_tables(const PaperFormulas& formulas);

nlohmann::ordered_json paper_json(const PaperFormulas& formulas);

// Returns the mark of a row that herd trains, or that it doesn't.
inline std::string in_herd(bool built) { return built ? "yes" : "not run by herd yet"; }

// Returns "none", "selective" or "full", as strategy.recompute has them.
const char* name_of(spec::RecomputeKind recompute);

}  // namespace herd::planner
