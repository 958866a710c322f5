// Writes a plan as text, as one JSON object (docs/formats/plan.md) and as a page that loads nothing. Threads: pure.
#pragma once

#include <string>
#include <vector>

#include "herd/planner/paper_formulas.h"
#include "herd/planner/rewrites.h"

namespace herd::planner {

struct Plan {
  std::string name;  // name of the run file or model
  spec::RunFile run;
  int ranks = 1;
  Cluster cluster;
  Budget budget;
  Prediction prediction;
  std::string choice;  // what strategy.auto took; empty where herd had nothing to choose
  Rewrites rewrites;   // found where the run does not fit
  // These are found where it does not fit: other techniques, other ranks, or runs that no program can be built for.
  std::vector<Suggestion> suggestions;
  double tokens = 0;  // tokens of the whole training; 0 = not stated
  double days = 0;    // days that the training may take; 0 = not stated
  double flops = 0;   // FLOP/s that a device sustains, without recompute; 0 = as predicted
  bool fits() const { return budget.holds(prediction); }
  double sustained_flops() const;  // returns `flops`, or those of the predicted step, per device
  PaperFormulas paper_formulas() const;
  double devices_needed() const;  // returns 6PT / (FLOP/s * seconds); REQUIRES tokens and days
};

std::string plan_text(const Plan& plan);
// Writes what published equations say of the run; the JSON and the page always contain it.
std::string equations_text(const Plan& plan);
std::string plan_json(const Plan& plan);
std::string plan_page(const Plan& plan);

}  // namespace herd::planner
