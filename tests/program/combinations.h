// Steps of many combinations of strategies, some of them rewrites that stand only here: they show that the IR, its
// verifier and its slots carry host offload without a change.
#pragma once

#include <string>
#include <vector>

#include "herd/program/verify_program.h"

namespace herd::program::testing {

struct Combination {
  int layers = 2, micro_batches = 1, dp = 1, pp = 1, zero = 0;
  bool tied = false;
  int recompute = 0;  // every so many blocks; 0 = none
  bool offload = false;
  int64_t bucket = 1;
  std::string order = "1f1b";  // of the pipeline
  std::string text() const;
};

struct Compiled {
  std::vector<Program> programs;
  Expectation expected;
};

Compiled compile(const Combination& combination);

}  // namespace herd::program::testing
