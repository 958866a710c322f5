// A plan as text, as one JSON object (docs/formats/plan.md) and as a page that loads nothing. Threads: pure.
#pragma once

#include <string>
#include <vector>

#include "herd/planner/paper_formulas.h"
#include "herd/planner/rewrites.h"

namespace herd::planner {

struct Plan {
  std::string name;  // of the run file or model
  spec::RunFile run;
  int ranks = 1;
  Cluster cluster;
  Budget budget;
  Prediction prediction;
  std::string choice;                   // what strategy.auto took; empty where nothing was left to herd
  Rewrites rewrites;                    // where it does not fit
  std::vector<Suggestion> suggestions;  // the same, of other techniques, other ranks or where no program can be built
  double tokens = 0;                    // of the whole training; 0 = not stated
  double days = 0;                      // that it may take; 0 = not stated
  double flops = 0;                     // FLOP/s that a device keeps up, recompute not counted; 0 = as predicted
  bool fits() const { return budget.holds(prediction); }
  double sustained_flops() const;  // `flops`, or those of the predicted step, of a device
  PaperFormulas paper_formulas() const;
  double devices_needed() const;  // 6PT / (FLOP/s * seconds); needs tokens and days
};

std::string plan_text(const Plan& plan);
// What published equations say of the run; the JSON and the page always have it.
std::string equations_text(const Plan& plan);
std::string plan_json(const Plan& plan);
std::string plan_page(const Plan& plan);

}  // namespace herd::planner
