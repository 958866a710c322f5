// Whose fault is a step that takes longer than predicted? A prediction is made of passes over the blocks that were
// timed before the first step; the same passes, timed again between steps, say how fast the machine is now beside then.
// A pace is now over then, of the slowest rank: 1.18 = the machine takes 1.18 times as long. What the next step is
// predicted to take follows it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "herd/train/block_passes.h"

namespace herd::train {

class MachinePace {
 public:
  // `every`: steps between two looks; 0 = none, spec::kAuto = so many that looks take 1 % of the predicted time of
  // steps, and fewer at first: looks follow the steps 1, 2, 4, 8 and so on until they are that far apart, since the
  // passes before the first step may have met a slow or a fast moment. None either where no step was predicted (0).
  // Borrows `passes`, whose figures were taken.
  MachinePace(BlockPasses& passes, int64_t every, double predicted_step_us);

  // Whether a look follows the step, `steps_done` after the run was started or resumed; the last one has one, too. The
  // same on all ranks.
  bool due(int64_t steps_done, bool last) const;
  double look();  // one pass, and its pace. Collective; the same on all ranks. REQUIRES no step in flight

  bool looked() const { return !paces_.empty(); }
  double recent() const;   // of the last looks, so that one hiccup does not count; 1 before the first
  double overall() const;  // of all

  // Of the next step: what was predicted before the first one, at the recent pace; 0 where nothing was.
  double predicted_us() const { return predicted_us_ * recent(); }

  // "predicted at the machine's pace: 304 ms x 1.18 = 359 ms a step, over 13 looks; measured 362 ms, 101 %".
  // REQUIRES looked()
  std::string summary(double median_step_us) const;

 private:
  BlockPasses& passes_;
  double predicted_us_;
  bool soon_;  // the first looks follow each other closely
  int64_t every_;
  std::vector<double> paces_;
};

}  // namespace herd::train
