// herd plan --matrix [MODEL|FILE ...] [section.key=value ...] [--devices 16GB,80GB] [--ranks N] [--cluster FILE|NAME]
//   [--svg FILE] [--html FILE]
#pragma once

#include <string>
#include <vector>

#include "herd/planner/cluster.h"
#include "herd/planner/fit_matrix.h"

namespace herd::cli {

struct PlanMatrixOptions {
  std::vector<std::string> words = {};    // names of models, run files and overrides; no model = all known ones
  std::vector<std::string> devices = {};  // memory of a device, "80GB"
  int ranks = 1;
  planner::Cluster cluster = {};
  std::string svg = {}, html = {};
};

planner::FitMatrix make_matrix(const PlanMatrixOptions& options);  // throws herd::Error
int run_plan_matrix(const PlanMatrixOptions& options);

}  // namespace herd::cli
