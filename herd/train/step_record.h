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
  double gflops = 0;          // GFLOP/s of this rank
  double peak_gflops = 0;     // rate of a large matmul here, GFLOP/s
  double left_s = 0;          // seconds that the rest of the run is expected to take
};

// Returns "step 120/2000 | loss 4.8123 | norm 0.912 | lr 3.00e-04 | 256 MiB, 25 % of 1 GiB | 5321 tokens/s | 42.0
// GFLOP/s, 50 % of matmul | 98.1 ms, predicted 95.4 ms | val_loss 4.9000 | left 3 min 4 s", on one line, without what
// is not known. Pure.
std::string step_line(const StepRecord& record);

}  // namespace herd::train
