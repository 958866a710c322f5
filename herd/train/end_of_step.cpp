#include "herd/train/end_of_step.h"

#include "herd/base/elapsed.h"

namespace herd::train {

EndOfStep all_reduce_end_of_step(const EndOfStep& mine, Communicator& comm) {
  const auto begin = std::chrono::steady_clock::now();
  std::vector<double> totals = {mine.loss_sum, static_cast<double>(mine.tokens), mine.stop ? 1.0 : 0.0,
                                mine.unsaved ? 1.0 : 0.0};
  totals.insert(totals.end(), mine.expert_load.begin(), mine.expert_load.end());
  comm.all_reduce(totals, {.name = "end of step"});
  const double waited_ms = us_since(begin) / 1e3;
  EndOfStep all = {totals[0], static_cast<int64_t>(totals[1]), totals[2] > 0, totals[3] > 0, {}, waited_ms};
  for (size_t i = 4; i < totals.size(); ++i) all.expert_load.push_back(static_cast<int64_t>(totals[i]));
  return all;
}

}  // namespace herd::train
