// What each rewrite wrote, broken in every place in the same few ways: no mutant may prove.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <tuple>

#include "herd/program/collective_message.h"
#include "herd/program/program_names.h"
#include "tests/strategies/small_run.h"

namespace herd::strategies {
namespace {

using program::Lane;
using program::Op;
using program::OpKind;
using program::Program;
using program::Value;
using program::ValueKind;

struct Case {
  std::string rewrite;
  spec::RunFile run;
  int ranks;
};

spec::RunFile run_of(int64_t micro_batches, int ranks, int zero, const std::string& recompute = "none",
                     bool tied = false) {
  spec::RunFile run = small_run(2, recompute, ranks * micro_batches, tied);
  run.strategy.zero = zero;
  run.strategy.bucket = 4096;
  return run;
}

// The last rewrite that each of these needs is the one that it stands for; clipping is part of all.
std::vector<Case> cases() {
  std::vector<Case> out = {{"micro-batches", run_of(3, 1, 0), 1},
                           {"recompute", run_of(2, 1, 0, "full", true), 1},
                           {"data parallel", run_of(2, 3, 0, "none", true), 3},
                           {"ZeRO-1", run_of(2, 2, 1), 2},
                           {"ZeRO-2", run_of(2, 2, 2, "none", true), 2},
                           {"ZeRO-3", run_of(2, 2, 3, "every:2"), 2},
                           {"ZeRO-3, groups kept whole", run_of(2, 3, 3), 3}};
  out.back().run.strategy.keep_whole = 2;
  for (const int zero : {1, 2, 3}) {
    Case hybrid{"replicas of ZeRO-" + std::to_string(zero), run_of(2, 4, zero), 4};
    hybrid.run.mesh.fsdp = 2;
    out.push_back(std::move(hybrid));
  }
  return out;
}

using Steps = std::vector<Program>;

bool communicates(const Op& op) { return op.axis != kNoAxis; }

// All mutants of one kind, by what was done: those that prove, and how many there were.
struct Outcome {
  int mutants = 0;
  std::vector<std::string> proved;
};

class Mutator {
 public:
  explicit Mutator(const Case& c, int one_in = 1)
      : steps_(steps_of(c.run, c.ranks)), expected_(expectation_of(c.run, c.ranks)), one_in_(one_in) {
    EXPECT_EQ(first_finding(steps_, expected_), "") << c.rewrite;
  }

  const std::vector<Op>& ops() const { return steps_[0].ops; }

  // The same change to all ranks, whose programs are alike op by op, or to the last of them alone.
  Outcome each(const std::function<bool(const Op&)>& applies, bool all_ranks,
               const std::function<bool(std::vector<Op>&, size_t)>& change) const {
    Outcome out;
    int seen = 0;
    for (size_t i = 0; i < ops().size(); ++i) {
      if (!applies(ops()[i])) continue;
      std::vector<std::vector<Op>> changed_ops;  // of each rank from the first changed one on
      bool changed = false;
      for (size_t rank = all_ranks ? 0 : steps_.size() - 1; rank < steps_.size(); ++rank)
        changed = change(changed_ops.emplace_back(steps_[rank].ops), i) || changed;
      if (!changed || seen++ % one_in_ != 0) continue;
      Steps mutant = steps_;
      for (size_t last = mutant.size(); !changed_ops.empty(); changed_ops.pop_back())
        mutant[--last].ops = std::move(changed_ops.back());
      ++out.mutants;
      if (first_finding(mutant, expected_).empty()) out.proved.push_back(describe(steps_[0], ops()[i]));
    }
    return out;
  }

 private:
  Steps steps_;
  program::Expectation expected_;
  int one_in_;  // so many mutants of a kind, the first among them
};

// Whether a release says no more than later ops do: each value is written again in the step, which ends it too.
bool ends_anyway(const std::vector<Op>& ops, size_t i) {
  return ops[i].kind == OpKind::kRelease && std::ranges::all_of(ops[i].writes, [&](const Value& value) {
           return std::any_of(ops.begin() + static_cast<long>(i) + 1, ops.end(), [&](const Op& later) {
             return later.kind != OpKind::kRelease && std::ranges::count(later.writes, value) > 0;
           });
         });
}

bool drop(std::vector<Op>& ops, size_t i) {
  if (ends_anyway(ops, i)) return false;
  ops.erase(ops.begin() + static_cast<long>(i));
  return true;
}

bool twice(std::vector<Op>& ops, size_t i) {
  const Op copy = ops[i];
  ops.insert(ops.begin() + static_cast<long>(i), copy);
  return true;
}

// A release before the last op that reads what it releases.
bool too_early(std::vector<Op>& ops, size_t i) {
  const Op release = ops[i];
  for (size_t use = i; use-- > 0;) {
    const auto& reads = ops[use].reads;
    if (std::find(reads.begin(), reads.end(), release.writes[0]) == reads.end()) continue;
    ops.erase(ops.begin() + static_cast<long>(i));
    ops.insert(ops.begin() + static_cast<long>(use), release);
    return true;
  }
  return false;
}

// A collective in the place of the next one of its axis.
bool swap_with_next(std::vector<Op>& ops, size_t i) {
  for (size_t next = i + 1; next < ops.size(); ++next) {
    if (ops[next].axis != ops[i].axis) continue;
    std::swap(ops[i], ops[next]);
    return true;
  }
  return false;
}

// A collective of several values without the last of them.
bool one_short(std::vector<Op>& ops, size_t i) {
  Op& op = ops[i];
  const size_t n = op.writes.size();
  if (n < 2) return false;
  op.writes.pop_back();
  if (op.reads.size() == 2 * n) op.reads.pop_back();
  op.reads.erase(op.reads.begin() + static_cast<long>(n) - 1);
  return true;
}

TEST(Mutants, OfEveryRewriteAreFound) {
  const auto any = [](const Op&) { return true; };
  const auto releases = [](const Op& op) { return op.kind == OpKind::kRelease; };
  for (const Case& c : cases()) {
    const Mutator mutator(c, one_in(1, 97));
    const auto expect_found = [&](const std::string& what, const Outcome& outcome, bool needed) {
      EXPECT_THAT(outcome.proved, testing::IsEmpty()) << c.rewrite << ": " << what;
      EXPECT_GE(outcome.mutants, needed ? 1 : 0) << c.rewrite << ": " << what;
      testing::Test::RecordProperty(c.rewrite + ": " + what, outcome.mutants);
    };
    const bool alone = c.ranks == 1;
    expect_found("an op is missing", mutator.each(any, true, drop), true);
    expect_found("an op is there twice", mutator.each(any, true, twice), true);
    expect_found("a release too early", mutator.each(releases, true, too_early), true);
    if (alone) continue;
    expect_found("an op is missing on one rank", mutator.each(any, false, drop), true);
    expect_found("a collective is there twice on one rank", mutator.each(communicates, false, twice), true);
    expect_found("a release too early on one rank", mutator.each(releases, false, too_early), true);
    expect_found("collectives in another order on one rank", mutator.each(communicates, false, swap_with_next), true);
    expect_found("a collective without one of its values", mutator.each(communicates, true, one_short), false);
  }
}

// Ranks of a pipeline have programs of their own, so each is broken by itself; a send may also go astray, and what one
// stage keeps from the others may be left out or counted twice.
TEST(Mutants, OfThePipelineAreFound) {
  for (const auto& [order, zero, stages] : std::vector<std::tuple<std::string, int, int>>{{"1f1b", 0, 2},
                                                                                          {"gpipe", 1, 2},
                                                                                          {"1f1b", 2, 3},
                                                                                          {"1f1b", 3, 2},
                                                                                          {"zero_bubble_h1", 0, 3},
                                                                                          {"zero_bubble_h1", 2, 2},
                                                                                          {"interleaved", 0, 2},
                                                                                          {"zero_bubble_v", 1, 2}}) {
    const int dp = zero > 0 ? 2 : 1;
    spec::RunFile run = run_of(3, dp, zero, zero == 3 ? "full" : "none", true);
    run.mesh.pp = stages;
    run.strategy.pipeline = order;
    const Steps steps = steps_of(run, dp * stages);
    const program::Expectation expected = expectation_of(run, dp * stages);
    ASSERT_EQ(first_finding(steps, expected), "");
    int mutants = 0;
    const auto expect_found = [&](const char* what, const auto& applies, const auto& change) {
      for (size_t rank = 0; rank < steps.size(); rank += static_cast<size_t>(dp)) {  // one of each stage
        for (size_t i = 0; i < steps[rank].ops.size(); ++i) {
          if (!applies(steps[rank].ops[i])) continue;
          std::vector<Op> changed = steps[rank].ops;
          if (!change(changed, i)) continue;
          if (mutants++ % one_in(1, 97) != 0) continue;
          Steps mutant = steps;
          mutant[rank].ops = std::move(changed);
          EXPECT_NE(first_finding(mutant, expected), "") << order << " zero " << zero << ", rank " << rank << ": "
                                                         << what << ": " << describe(steps[rank], steps[rank].ops[i]);
        }
      }
    };
    const auto any = [](const Op&) { return true; };
    const auto message = [](const Op& op) { return op.kind == OpKind::kSend || op.kind == OpKind::kReceive; };
    expect_found("an op is missing", any, drop);
    expect_found("an op is there twice", any, twice);
    expect_found("another place on the axis", message, [&](std::vector<Op>& ops, size_t i) {
      ops[i].peer = (ops[i].peer + 1) % stages;
      return true;
    });
    expect_found("another micro-batch", message, [&](std::vector<Op>& ops, size_t i) {
      auto& values = ops[i].kind == OpKind::kSend ? ops[i].reads : ops[i].writes;
      values[0].micro_batch = (values[0].micro_batch + 1) % 3;
      return true;
    });
    expect_found("in the place of the next message", message, [&](std::vector<Op>& ops, size_t i) {
      for (size_t next = i + 1; next < ops.size(); ++next) {
        if (ops[next].kind != ops[i].kind || ops[next].peer != ops[i].peer) continue;
        std::swap(ops[i], ops[next]);
        return true;
      }
      return false;
    });
    EXPECT_GT(mutants, 100);
  }
}

// Hybrid shards have two axes to mistake for each other, and a reduction that may come too early.
TEST(Mutants, OfReplicasAreFound) {
  for (const int zero : {1, 2, 3}) {
    spec::RunFile run = run_of(3, 4, zero);
    run.mesh.fsdp = 2;
    const Mutator mutator({"replicas", run, 4});
    const auto gradient = [](const Op& op) { return is_collective(op) && op.writes[0].kind == ValueKind::kGradient; };
    const Mesh mesh = trainable_layout(run, 4).mesh;
    const int copies = mesh.find("dp"), shards = mesh.find("fsdp");
    const auto among_copies = [&](const Op& op) { return gradient(op) && op.axis == copies; };
    const auto other_axis = [&](std::vector<Op>& ops, size_t i) {
      ops[i].axis = ops[i].axis == copies ? shards : copies;
      return true;
    };
    // Before the op that completes the shard, so that what that one adds stays this copy's own.
    const auto before_complete = [](std::vector<Op>& ops, size_t i) {
      for (size_t other = i; other-- > 0;) {
        if (ops[other].kind != OpKind::kReduceScatter || ops[other].writes != ops[i].writes) continue;
        std::rotate(ops.begin() + static_cast<long>(other), ops.begin() + static_cast<long>(i),
                    ops.begin() + static_cast<long>(i) + 1);
        return true;
      }
      return false;
    };
    // After every reduce-scatter that adds to the shard, so that the sum of the earlier ones is summed again.
    const auto each_time = [](std::vector<Op>& ops, size_t i) {
      for (size_t other = 0; other < i; ++other) {
        if (ops[other].kind != OpKind::kReduceScatter || ops[other].writes != ops[i].writes) continue;
        const Op copy = ops[i];
        ops.insert(ops.begin() + static_cast<long>(other) + 1, copy);
        return true;
      }
      return false;
    };
    const auto found = [&](const Outcome& outcome, int least, const char* what) {
      EXPECT_THAT(outcome.proved, testing::IsEmpty()) << what << " zero " << zero;
      EXPECT_GE(outcome.mutants, least) << what << " zero " << zero;
    };
    const int groups = zero == 1 ? 2 : 4;  // reduced in buckets, or each on its own
    found(mutator.each(among_copies, true, drop), groups, "no sum among copies");
    found(mutator.each(among_copies, true, twice), groups, "two sums among copies");
    found(mutator.each(among_copies, false, swap_with_next), groups - 1, "another order of groups on one rank");
    found(mutator.each(gradient, true, other_axis), groups, "a sum over the wrong axis");
    found(mutator.each(gradient, false, other_axis), groups, "a sum over the wrong axis on one rank");
    found(mutator.each(among_copies, true, before_complete), groups, "a sum before the shard is complete");
    found(mutator.each(among_copies, true, each_time), groups, "a sum for each micro-batch");
  }
}

}  // namespace
}  // namespace herd::strategies
