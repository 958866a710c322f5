// Defines what the text and the page of a plan both show.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "herd/draw/table.h"
#include "herd/planner/plan_report.h"

namespace herd::planner {

std::string headline(const Plan& plan);  // returns "gpt2-xl: gpt, 48 layers of width 1600, 1.56 B parameters, bf16"
draw::Table memory_rows(const Plan& plan);
// Returns "does not fit: 32.8 GiB of 24 GiB a device, 137 %", "fits: ..", "needs ..".
std::string verdict(const Plan& plan);
std::vector<std::pair<std::string, std::string>> cost_rows(const Plan& plan);
std::string method(const Plan& plan);  // says how the figures were computed
draw::Table variant_rows(const Plan& plan, const std::vector<Variant>& variants);
// Says what the rows rest on, or what comes nearest; empty without programs.
std::string variant_remark(const Plan& plan);
draw::Table suggestion_rows(const Plan& plan);
// Says that nothing fits, and what was not tried; REQUIRES neither variants that fit nor suggestions.
std::string nothing_fits(const Plan& plan);
// Says where the search stopped; empty where it looked at everything.
std::string search_remark(const Plan& plan);

}  // namespace herd::planner
