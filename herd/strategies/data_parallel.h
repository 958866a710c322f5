// Data parallel over one axis of n ranks: each rank works on its own samples, and gradients are summed over the axis.
//   Each rank sends 2(n-1)/n * gradient bytes (ring or direct all-reduce), and needs no extra memory.
//   A group's gradient is complete after the last op of the step that adds to it. Complete groups fill a bucket, in the
//   order in which they complete; a bucket is reduced, as one op on lane reduce, as soon as it holds `bucket_bytes`,
//   and what is left after the last backward. Experts that ranks share are summed over the ranks that hold the same
//   ones (expert_parallel.h), in buckets of their own.
// Source: Li et al. 2020, arXiv:2006.15704, section 3.2.
#pragma once

#include <cstdint>
#include <set>

#include "herd/strategies/technique.h"

namespace herd::strategies {

class DataParallel final : public Strategy {
 public:
  // Throws kBadConfig if bucket_bytes < 1. The gradients of groups `of_experts` are summed over expert_axis; kNoAxis =
  // they are not.
  DataParallel(int axis, int64_t bucket_bytes, int expert_axis = kNoAxis, std::set<int> of_experts = {});
  std::string name() const override;
  program::Program rewrite(program::Program step) const override;

 private:
  int axis_;
  int64_t bucket_bytes_;
  int expert_axis_;
  std::set<int> of_experts_;
};

Technique data_parallel_row();  // returns its row in the table of techniques.h

}  // namespace herd::strategies
