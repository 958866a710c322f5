// Defines what the text and the page of a plan both show.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "herd/draw/table.h"
#include "herd/planner/plan_report.h"

namespace herd::planner {

std::string headline(const Plan& plan);  // "gpt2-xl: gpt, 48 layers of width 1600, 1.56 B parameters, bf16"
draw::Table memory_rows(const Plan& plan);
std::string verdict(const Plan& plan);  // "does not fit: 32.8 GiB of 24 GiB a device, 137 %", "fits: ..", "needs .."
std::vector<std::pair<std::string, std::string>> cost_rows(const Plan& plan);
std::string method(const Plan& plan);  // how the figures came to be
draw::Table rewrite_rows(const Plan& plan);
std::string rewrite_remark(const Plan& plan);  // what the rows rest on, or what comes nearest; empty without programs
draw::Table suggestion_rows(const Plan& plan);

}  // namespace herd::planner
