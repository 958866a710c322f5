// Finds the name in a list that is nearest to a misspelt one, for error messages. Threads: pure.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace herd::spec {

// Counts the insertions, deletions, replacements and swaps of neighbours that turn a into b (optimal string alignment).
int edit_distance(std::string_view a, std::string_view b);

// Returns the name at the smallest distance (the first of equals); empty if `names` is.
std::string nearest_name(std::string_view wrong, std::span<const std::string> names);

}  // namespace herd::spec
