// What one optimizer step did, as the step line shows it.
#pragma once

#include <cstdint>
#include <string>

#include "herd/storage/metrics.h"

namespace herd::train {

struct StepRecord {
  StepMetrics metrics;        // what metrics.jsonl keeps
  int64_t steps = 0;          // of the whole run
  int64_t device_budget = 0;  // bytes; 0 = none
  double gflops = 0;          // GFLOP/s of this rank
  double peak_gflops = 0;     // what a matmul reaches here, GFLOP/s
  double left_s = 0;          // expected
};

// "step 120/2000 | loss 4.8123 | norm 0.91 | lr 3.0e-04 | 312 MiB, 31 % of 1.00 GiB | 5.3 k tokens/s | 42 GFLOP/s,
// 48 % of matmul | 98.1 ms, predicted 95.4 ms | left 4 min 12 s", on one line. Pure.
std::string step_line(const StepRecord& record);

}  // namespace herd::train
