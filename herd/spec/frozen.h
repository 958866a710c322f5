// Parameters that are not trained: no gradient, no optimizer state, no reduction, no decay. model.frozen says which, by
// patterns of their names, separated by spaces; "*" stands for any text, also for none.
//   "wte.weight h.0.* *.bias"
// Threads: pure.
#pragma once

#include <string>
#include <string_view>

#include "herd/spec/model_table.h"

namespace herd::spec {

bool is_frozen(std::string_view patterns, std::string_view parameter);  // "none" = nothing is

// The name of the group that a group's frozen parameters form where others of it are trained.
std::string frozen_group_name(std::string_view group);

// Marks groups that are frozen whole, and splits those that are so in part: the trained part stays in its place, the
// frozen one follows. Blocks below the first that has anything to train get no backward pass and keep no graph; others
// compute no gradients of frozen matrices. Throws kBadConfig for a pattern that matches nothing, with the nearest
// names, and where nothing would be trained.
void freeze(ModelTable& table, const std::string& patterns);

}  // namespace herd::spec
