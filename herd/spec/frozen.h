// Finds the parameters that are not trained: they have no gradient, no optimizer state, no reduction and no decay.
// model.frozen names them by patterns separated by spaces; "*" stands for any text, also for none.
//   "wte.weight h.0.* *.bias"
// Threads: pure.
#pragma once

#include <string>
#include <string_view>

#include "herd/spec/model_table.h"

namespace herd::spec {

// Tells whether one of the patterns matches; "none" matches nothing.
bool matches_any(std::string_view patterns, std::string_view parameter);
bool is_frozen(std::string_view patterns, std::string_view parameter);  // "none" freezes nothing

// Throws kBadConfig for a pattern that matches no parameter of `groups`, with the nearest names. `key` is that of the
// patterns.
void check_patterns(std::string_view key, const std::vector<ParameterGroupShape>& groups, const std::string& patterns);

// Returns the name of the group split off for the frozen parameters of `group`, where others of it are trained.
std::string frozen_group_name(std::string_view group);

// Marks groups that are wholly frozen. It splits groups that are partly frozen: the trained part stays in its place,
// the frozen part follows. Blocks before the first trained one get no backward pass and keep no graph; others compute
// no gradients of frozen matrices. Throws kBadConfig for a pattern that matches nothing, with the nearest names, and
// where nothing would be trained.
void freeze(ModelTable& table, const std::string& patterns);

}  // namespace herd::spec
