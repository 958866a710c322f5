// Writes report.html of a run: losses, speed, memory predicted against measured, the timeline of one step, and facts of
// the run. It is self-contained, drawn from metrics.jsonl and what rank 0 knows. Threads: pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "herd/program/expert_traffic.h"
#include "herd/program/memory_use.h"
#include "herd/program/tier_traffic.h"
#include "herd/sim/timeline.h"
#include "herd/storage/metrics.h"

namespace herd::train {

struct RunReport {
  std::string title;                                            // name of the run
  std::vector<StepMetrics> metrics;                             // metrics of all steps so far
  std::vector<std::pair<std::string, std::string>> facts = {};  // machine, ranks, algorithm, ..: name and value
  std::vector<program::OpMemory> predicted_memory = {}, measured_memory = {};  // memory of rank 0; empty = not known
  std::vector<program::TierTraffic> predicted_traffic = {}, measured_traffic = {};  // of rank 0; empty = not known
  std::vector<program::ExpertTraffic> predicted_expert_traffic = {}, measured_expert_traffic = {};  // likewise
  int64_t device_budget = 0;                                                                        // bytes, 0 = none
  int64_t first_expert_layer = 0;  // the model's first layer with experts; layers before it have none
  std::optional<sim::Timeline> predicted_step = {};
  double predicted_step_ms = 0;  // prediction before the first step since the run was started or resumed; 0 = not known
  std::optional<sim::Timeline> measured_step = {};
  std::string config = {};  // the run file, resolved
};

std::string run_report_html(const RunReport& report);

}  // namespace herd::train
