// Writes a plan as text, as one JSON object (docs/formats/plan.md) and as a self-contained HTML page. Threads: pure.
#pragma once

#include <string>
#include <vector>

#include "herd/planner/paper_formulas.h"
#include "herd/planner/variants_that_fit.h"

namespace herd::planner {

struct Plan {
  std::string name;  // name of the run file or model
  spec::RunFile run;
  int ranks = 1;
  Cluster cluster;
  Budget budget;
  Prediction prediction;
  double fifo_step_us = 0;       // of the same run with strategy.schedule = "fifo"; 0 where that is what it has
  std::string automatic_choice;  // what strategy.auto took; empty where herd had nothing to choose
  // Changed runs whose programs herd has built and predicted; herd plan searches them where the run does not fit.
  Variants variants;
  // Changes that equations find where the run does not fit: other techniques, more ranks, and settings for which no
  // program can be built.
  std::vector<Suggestion> suggestions;
  double search_seconds = 0;               // limit of the search
  std::vector<std::string> not_looked_at;  // what the search left out because its time was over
  double tokens = 0;                       // tokens of the whole training; 0 = not stated
  double days = 0;                         // days that the training may take; 0 = not stated
  double flops = 0;  // model FLOP/s that a device sustains, recompute not counted; 0 = as predicted
  bool fits() const { return budget.holds(prediction); }
  double sustained_flops() const;  // returns FLOP/s of a device: `flops`, or as predicted
  PaperFormulas paper_formulas() const;
  double devices_needed() const;  // returns 6 * parameters * tokens / (FLOP/s * seconds)
};

std::string plan_text(const Plan& plan);
// Writes what published equations say of the run; the JSON and the page always contain it.
std::string equations_text(const Plan& plan);
std::string plan_json(const Plan& plan);
std::string plan_page(const Plan& plan);  // returns a self-contained HTML page

}  // namespace herd::planner
