// Changes one op of rank 1 at a time, and expects the proof to find each change.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <utility>

#include "herd/program/program_names.h"
#include "tests/strategies/small_run.h"

namespace herd::strategies {

class OpMutants {
 public:
  // Changes op i; false: it leaves that one as it is.
  using Change = std::function<bool(std::vector<program::Op>& ops, size_t i)>;

  // REQUIRES steps that prove, of two ranks or more.
  OpMutants(std::vector<program::Program> steps, program::Expectation expected,
            std::function<bool(const program::Op&)> is_chosen)
      : steps_(std::move(steps)), expected_(std::move(expected)), is_chosen_(std::move(is_chosen)) {}

  void expect_found(const char* what, const Change& change) {
    for (size_t i = 0; i < steps_[0].ops.size(); ++i) {
      const program::Op& op = steps_[0].ops[i];
      if (!is_chosen_(op)) continue;
      auto mutant = steps_;
      if (!change(mutant[1].ops, i)) continue;
      ++count_;
      EXPECT_NE(first_finding(mutant, expected_), "") << what << ": " << describe(steps_[0], op);
    }
  }
  int count() const { return count_; }

 private:
  std::vector<program::Program> steps_;
  program::Expectation expected_;
  std::function<bool(const program::Op&)> is_chosen_;
  int count_ = 0;
};

}  // namespace herd::strategies
