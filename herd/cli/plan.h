// herd plan FILE.toml|MODEL [section.key=value ...] [--ranks N] [--cluster FILE|NAME] [--budget B] [--tokens T
// [--days D [--flops F]]] [--seconds S] [--equations] [--stages] [--json] [--html FILE]
// herd plan --matrix [FILE|MODEL ...]: plan_matrix.h
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "herd/planner/plan_report.h"

namespace CLI {
class App;
}

namespace herd::cli {

struct PlanOptions {
  std::string file;  // a run file, or the name of a known model
  std::vector<std::string> overrides = {};
  int ranks = 0;             // 0 = what the mesh states, and more if that does not fit
  std::string cluster = {};  // a file or the name of a known cluster; empty = this machine, rates assumed
  std::string budget = {};   // of a device; empty = memory.device_budget, else the cluster's
  double tokens = 0;         // of the whole training
  double days = 0;           // that it may take
  double flops = 0;          // FLOP/s that a device keeps up; 0 = as predicted
  double seconds = 20;       // limit of the search for what would make it fit
  bool equations = false;    // also what published equations say
  bool stages = false;       // also how a pipeline is cut
  bool json = false;
  std::string html = {};
  bool matrix = false;                                                           // models x devices in place of a plan
  std::vector<std::string> devices = {"16GB", "24GB", "40GB", "80GB", "141GB"};  // of the matrix
  std::string svg = {};                                                          // of the matrix
};

void add_plan_command(CLI::App& app);
planner::Plan make_plan(const PlanOptions& options);  // throws herd::Error
int run_plan(const PlanOptions& options);             // exit status: 0, also where it does not fit

}  // namespace herd::cli
