// How the text, the page and the JSON of a plan show what published equations say.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "herd/draw/table.h"
#include "herd/planner/published.h"

namespace herd::planner {

struct PublishedTable {
  std::string title;
  draw::Table table;
};
std::vector<PublishedTable> published_tables(const Published& published);

nlohmann::ordered_json published_json(const Published& published);

// Of a row that herd trains, and of one that it doesn't.
inline std::string in_herd(bool built) { return built ? "yes" : "not run by herd yet"; }

const char* name_of(spec::Recompute recompute);  // "none", "selective", "full": as strategy.recompute has them

}  // namespace herd::planner
