// Defines what one optimizer step did, as the step line shows it. Threads: plain data.
#pragma once

#include <cstdint>
#include <string>

#include "herd/storage/metrics.h"

namespace herd::train {

struct StepRecord {
  StepMetrics metrics;        // the part that metrics.jsonl keeps
  int64_t steps = 0;          // steps of the whole run
  int64_t device_budget = 0;  // bytes; 0 = none
  double left_s = 0;          // seconds that the rest of the run is expected to take
};

// Returns "step 120/2000  loss 4.8123  norm 0.91  lr 0.0003  25 % of 1 GiB  5321 tok/s  98.1 ms, est. 95.4 ms
// left 3 min 4 s", on one line that fits 120 columns, without what is not known. Pure.
std::string step_line(const StepRecord& record);

// Returns "step 120/2000  val_loss 4.9000", and each figure of an own chain after it. REQUIRES metrics.val_loss. Pure.
std::string validation_line(const StepRecord& record);

// Returns a text like "a rank computes at 70.6 GFLOP/s, 71 % of a large matmul's rate". Pure.
std::string beside_matmul(double gflops, double matmul_gflops);

}  // namespace herd::train
