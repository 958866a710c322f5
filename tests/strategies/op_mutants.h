// Changes one op at a time, and expects the proof to find each change: OpMutants on rank 1, expect_mutants_found() on
// one rank and on two, expect_other_parts_found() with ops on parts.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
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

// Moves op i behind the next one that reads what it writes; false: none does.
inline bool move_after_use(std::vector<program::Op>& ops, size_t i) {
  const program::Value value = ops[i].writes[0];
  const auto op = ops.begin() + static_cast<std::ptrdiff_t>(i);
  const auto use = std::find_if(op + 1, ops.end(),
                                [&](const program::Op& other) { return std::ranges::count(other.reads, value) > 0; });
  if (use == ops.end()) return false;
  std::rotate(op, op + 1, use + 1);
  return true;
}

// Changes op i of one rank, and of two ranks alike, for each i. REQUIRES steps that prove, of two ranks or more.
inline void expect_mutants_found(const std::vector<program::Program>& steps, const program::Expectation& expected,
                                 const char* what, const OpMutants::Change& change) {
  int mutants = 0;
  for (const size_t changed_ranks : {1u, 2u}) {
    for (size_t i = 0; i < steps[0].ops.size(); ++i) {
      auto mutant = steps;
      bool changed = false;
      for (size_t r = 0; r < changed_ranks; ++r) changed = change(mutant[r].ops, i) || changed;
      if (!changed) continue;
      ++mutants;
      EXPECT_NE(first_finding(mutant, expected), "")
          << what << " on " << changed_ranks << " ranks: " << describe(steps[0], steps[0].ops[i]);
    }
  }
  EXPECT_GT(mutants, 0) << what;
}

// Does so for each op on a part of a value, with another part of it, none, a part of another cut, and all of it.
inline void expect_other_parts_found(const std::vector<program::Program>& steps, const program::Expectation& expected) {
  const auto expect_found = [&](const char* what, const std::function<void(program::Op&)>& change) {
    expect_mutants_found(steps, expected, what, [&](std::vector<program::Op>& ops, size_t i) {
      if (i >= ops.size() || ops[i].parts == 1) return false;
      change(ops[i]);
      return true;
    });
  };
  expect_found("a part for another", [](program::Op& op) { op.part = (op.part + 1) % op.parts; });
  expect_found("a part that is none", [](program::Op& op) { op.part = op.parts; });
  expect_found("a cut into other parts", [](program::Op& op) { ++op.parts; });
  expect_found("the whole for a part", [](program::Op& op) { op.part = 0, op.parts = 1; });
}

}  // namespace herd::strategies
