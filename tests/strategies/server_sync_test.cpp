// Parameter servers as a rewrite: it proves with what it goes with, refuses the rest, and mutants of it are found.
#include "herd/strategies/server_sync.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <vector>

#include "herd/program/collective_message.h"
#include "herd/program/memory_bound.h"
#include "herd/program/program_names.h"
#include "herd/program/program_text.h"
#include "tests/golden.h"
#include "tests/strategies/op_mutants.h"
#include "tests/strategies/small_run.h"
#include "tests/support/expect_error.h"

namespace herd::strategies {
namespace {

using program::Op;
using program::OpKind;
using program::Program;
using program::Value;
using program::ValueKind;

spec::RunFile served_run(int dp, int64_t servers = 0, const char* recompute = "none", int64_t micro_batches = 2) {
  spec::RunFile run = small_run(2, recompute, micro_batches * dp, true);
  run.strategy.sync = "server";
  run.strategy.servers = servers;
  run.optimizer.clip = 0;
  return run;
}

spec::RunFile ahead_run(int dp, int64_t staleness, int64_t servers = 0) {
  spec::RunFile run = served_run(dp, servers);
  run.strategy.sync = "server_async";
  run.strategy.staleness = staleness;
  return run;
}

// Ranks of their own serve; the run has them beside `dp` ranks that train.
spec::RunFile dedicated_run(int dp, int64_t dedicated, int64_t staleness = 0) {
  spec::RunFile run = ahead_run(dp, staleness);
  run.strategy.dedicated_servers = dedicated;
  return run;
}

program::Expectation served_expectation(const spec::RunFile& run, int ranks) {
  program::Expectation expected = expectation_of(run, ranks);
  expected.proof.clipped = false;
  expected.proof.shard_axis = trainable_layout(run, ranks).data_axis;
  const spec::Layout layout = trainable_layout(run, ranks);
  expected.proof.num_servers = layout.dedicated_servers > 0 ? 0 : num_servers(run, layout);
  expected.proof.dedicated_servers = layout.dedicated_servers;
  expected.proof.staleness = staleness(run, trainable_layout(run, ranks));
  return expected;
}

TEST(ServerSync, Proves_WithWhatItGoesWith) {
  for (const int dp : {2, 3}) {
    for (const char* recompute : {"none", "full", "selective"}) {
      for (const int64_t micro_batches : {1, 3}) {
        for (const int64_t servers : {0, 1, 2}) {
          const auto steps = steps_of(served_run(dp, servers, recompute, micro_batches), dp);
          EXPECT_EQ(program::parse_program(to_text(steps.back())), steps.back());
        }
      }
    }
  }
  spec::RunFile frozen = served_run(2);
  frozen.model.frozen = "h.1.*";
  steps_of(frozen, 2);
}

TEST(ServerSync, ProvesWhereRanksRunAhead_AndSaysHowFar) {
  for (const int dp : {2, 3}) {
    for (const int64_t staleness : {-1, 1, 2, 8}) {
      for (const int64_t servers : {0, 1}) {
        const spec::RunFile run = ahead_run(dp, staleness, servers);
        const auto steps = steps_of(run, dp);
        EXPECT_EQ(first_finding(steps, served_expectation(run, dp)), "");
        EXPECT_EQ(program::parse_program(to_text(steps.back())), steps.back());
        EXPECT_THAT(to_text(steps[0]),
                    testing::HasSubstr(staleness < 0 ? " on dp without bound "
                                                     : " on dp within " + std::to_string(staleness) + " "));
      }
    }
    EXPECT_EQ(steps_of(ahead_run(dp, 0), dp), steps_of(served_run(dp), dp)) << "a staleness of 0 is synchronous";
  }
  EXPECT_EQ(steps_of(ahead_run(1, 2), 1), steps_of(served_run(1), 1)) << "one rank updates by itself";
}

// No rank that trains keeps states then, nor room for gradients of others. One such rank pushes, too.
TEST(ServerSync, ProvesWithDedicatedServers_OfWhichNoProgramSpeaks) {
  for (const int dp : {1, 2, 3}) {
    for (const int dedicated : {1, 2, 5}) {
      for (const int64_t staleness : {0, 2, -1}) {
        const spec::RunFile run = dedicated_run(dp, dedicated, staleness);
        const auto steps = steps_of(run, dp + dedicated);
        ASSERT_EQ(steps.size(), static_cast<size_t>(dp));
        EXPECT_EQ(program::parse_program(to_text(steps.back())), steps.back());
        EXPECT_THAT(to_text(steps[0]), testing::HasSubstr("at " + std::to_string(dedicated) + " server"));
        int64_t kept = 0, sent = 0, gradients = 0;
        for (const auto& [value, info] : steps[0].values) {
          if (value.kind == ValueKind::kState || value.kind == ValueKind::kPushed) kept += info.bytes;
          if (value.kind == ValueKind::kGradient) gradients += info.bytes;
        }
        for (const Op& op : steps[0].ops) {
          if (is_served(op)) sent += served_bytes_sent(steps[0], op);
        }
        EXPECT_EQ(kept, 0);
        EXPECT_EQ(sent, gradients);
      }
    }
  }
  EXPECT_NE(first_finding(steps_of(dedicated_run(2, 2), 4), served_expectation(dedicated_run(2, 1), 3)), "");
  EXPECT_NE(first_finding(steps_of(dedicated_run(2, 2), 4), served_expectation(served_run(2), 2)), "");
  EXPECT_NE(first_finding(steps_of(served_run(2), 2), served_expectation(dedicated_run(2, 2), 4)), "");
}

TEST(ServerSync, RefusesDedicatedServersThatCanNotBe) {
  EXPECT_ERROR(steps_of(dedicated_run(2, 3), 3), Code::kBadConfig,
               "strategy.dedicated_servers = 3 of 3 ranks leaves none to train", "fix: --ranks 4");
  spec::RunFile both = dedicated_run(2, 1);
  both.strategy.servers = 1;
  EXPECT_ERROR(spec::parse_run_text(to_toml(both), "test"), Code::kBadConfig,
               "strategy.dedicated_servers = 1 serve in place of ranks that train", "fix: strategy.servers = 0");
  spec::RunFile nobody = dedicated_run(2, 1);
  nobody.strategy.sync = "all_reduce";
  EXPECT_ERROR(spec::parse_run_text(to_toml(nobody), "test"), Code::kBadConfig,
               "strategy.dedicated_servers = 1 has nobody to serve", "fix: strategy.sync = \"server\"");
  for (const char* axis : {"tp", "pp", "cp"}) {
    spec::RunFile cut = dedicated_run(2, 1);
    (axis == std::string("tp") ? cut.mesh.tp : axis == std::string("pp") ? cut.mesh.pp : cut.mesh.cp) = 2;
    EXPECT_ERROR(steps_of(cut, 5), Code::kBadConfig, "does not go with mesh." + std::string(axis) + " = 2",
                 "fix: mesh." + std::string(axis) + " = 1");
  }
}

// Of n ranks that train and k servers, each of these holds M/k of weights, 2M/k of AdamW's states and n * M/k of
// pushes.
TEST(ServerSync, RefusesServersThatHoldMoreThanTheHostHas) {
  spec::RunFile run = dedicated_run(3, 2);
  const int64_t elements = spec::program_table(run, 1).parameters(), bytes = elements * 4 * (1 + 2 + 3) / 2;
  run.memory.host_budget = bytes;
  steps_of(run, 5);
  run.memory.host_budget = bytes - 1;
  EXPECT_ERROR(steps_of(run, 5), Code::kOverBudget, "a dedicated server holds weights, states and the gradients of 3",
               "fix: strategy.dedicated_servers = 3");
}

// A proof on few ranks stands for many, with as many servers.
TEST(ServerSync, IsProvedOnAQuotient) {
  for (const auto& [servers, dedicated] : {std::pair{0, 3}, {3, 0}}) {
    spec::RunFile run = dedicated_run(512, dedicated);
    run.strategy.servers = servers;
    const spec::Layout layout = trainable_layout(run, 512 + dedicated);
    const Quotient quotient = quotient_of(run, layout);
    EXPECT_EQ(trainable_layout(quotient.run, quotient.ranks).world_size, 2);
    EXPECT_EQ(programs_of_run(run, spec::program_table(run, 1), layout, {511}).size(), 1u);
  }
}

// A version may lie in [t - s, t] in step t. What the pulls of a program allow must be what the run states.
TEST(ServerSync, FindsWeightsThatMayBeOlderThanStated) {
  for (const int64_t stated : {-1, 0, 1, 2}) {
    for (const int64_t programmed : {-1, 0, 1, 2}) {
      const std::string found =
          first_finding(steps_of(ahead_run(2, programmed), 2), served_expectation(ahead_run(2, stated), 2));
      if (stated == programmed)
        EXPECT_EQ(found, "");
      else
        EXPECT_THAT(found, testing::HasSubstr("but the staleness of the run is")) << stated << ", " << programmed;
    }
  }
}

TEST(ServerSync, RefusesABoundThatNothingKeeps) {
  for (const char* sync : {"server", "all_reduce"}) {
    spec::RunFile run = ahead_run(2, 2);
    run.strategy.sync = sync;
    EXPECT_ERROR(steps_of(run, 2), Code::kBadConfig,
                 "strategy.staleness = 2 does not go with strategy.sync = \"" + std::string(sync) + "\"",
                 "fix: strategy.sync = \"server_async\"");
    run.strategy.staleness = 0;
    steps_of(run, 2);
  }
}

TEST(ServerSync, IsReadByPeople) {
  testing_support::expect_golden("tests/strategies/golden/server_dp2.txt", to_text(steps_of(served_run(2), 2)[0]));
}

TEST(ServerSync, LeavesTheStepAsItIs_WhereNoRanksShareIt) {
  spec::RunFile plain = served_run(1);
  plain.strategy.sync = "all_reduce";
  EXPECT_EQ(steps_of(served_run(1), 1), steps_of(plain, 1));
}

// Of M bytes of gradients of n ranks each of k servers keeps M/k of weights and of each state, and has room for n *
// M/k. A worker moves 2M, a server 2n * M/k; what a rank gives to itself moves nothing. Source: Jiang et al. 2020, "A
// Unified Architecture for Accelerating Distributed DNN Training in Heterogeneous GPU/CPU Clusters", OSDI (BytePS).
TEST(ServerSync, KeepsAndSendsTheBytesOfItsEquations) {
  for (const int n : {2, 3, 4}) {
    for (int k = 1; k <= n; ++k) {
      const spec::RunFile run = served_run(n, k);
      const auto groups = static_cast<double>(spec::program_table(run, 1).groups.size());
      const auto steps = steps_of(run, n);
      for (int rank = 0; rank < n; ++rank) {
        const Program& step = steps[static_cast<size_t>(rank)];
        double gradients = 0, pushed = 0, served = 0, sent = 0;
        for (const auto& [value, info] : step.values) {
          const auto bytes = static_cast<double>(info.bytes);
          if (value.kind == ValueKind::kGradient) gradients += bytes;
          if (value.kind == ValueKind::kPushed) pushed += bytes;
          if (value.kind == ValueKind::kState) served += bytes;
        }
        for (const Op& op : step.ops) {
          if (is_served(op)) sent += static_cast<double>(served_bytes_sent(step, op));
        }
        const bool serves = rank < k;
        const double share = serves ? gradients / k : 0;
        EXPECT_NEAR(pushed, n * share, groups);
        EXPECT_NEAR(served, 3 * share, groups);
        EXPECT_NEAR(sent, gradients - share + (n - 1) * share, 2 * n * groups) << n << " ranks, " << k << " servers";
        EXPECT_EQ(static_cast<double>(peak_bound(step, program::Tier::kHost).bytes),
                  pushed + served + 16 * step.micro_batches);
      }
    }
  }
}

// The device holds no more; the host has the weights once more, and copies of few gradients at a time.
TEST(ServerSync, CopiesToAndFromADevice) {
  for (spec::RunFile run : {served_run(2), served_run(3, 1), dedicated_run(2, 1), ahead_run(2, 3)}) {
    const int ranks = static_cast<int>(run.train.batch) / 2;
    const auto world = ranks + static_cast<int>(run.strategy.dedicated_servers);
    const auto on_cpu = steps_of(run, world);
    run.device.kind = "cuda";
    const auto steps = steps_of(run, world);
    EXPECT_EQ(program::parse_program(to_text(steps[0])), steps[0]);
    EXPECT_EQ(first_finding(steps, served_expectation(run, world)), "");
    int64_t weights = 0, gradients = 0;
    for (const auto& [value, info] : steps[0].values) {
      if (value.tier == program::Tier::kHost) continue;
      weights += value.kind == ValueKind::kWeight ? info.bytes : 0;
      gradients += value.kind == ValueKind::kGradient ? info.bytes : 0;
    }
    const auto on_host = [](const std::vector<Program>& of) {
      return peak_bound(of[0], program::Tier::kHost, of).bytes;
    };
    EXPECT_GT(on_host(steps) - on_host(on_cpu), weights);
    EXPECT_LT(on_host(steps) - on_host(on_cpu), weights + gradients);
    for (size_t i = 0; i < steps[0].ops.size(); ++i) {
      const OpKind kind = steps[0].ops[i].kind;
      if (kind != OpKind::kEvict && kind != OpKind::kFetch) continue;
      auto mutant = steps;
      mutant[0].ops.erase(mutant[0].ops.begin() + static_cast<long>(i));
      EXPECT_NE(first_finding(mutant, served_expectation(run, world)), "") << describe(steps[0], steps[0].ops[i]);
    }
  }
}

TEST(ServerSync, RefusesWhatDoesNotGoWithIt_AndSaysWhatToSet) {
  const auto expect_refused = [](const std::function<void(spec::RunFile&)>& change, int ranks, const std::string& rule,
                                 const std::string& fix) {
    spec::RunFile run = served_run(2);
    change(run);
    EXPECT_ERROR(steps_of(run, ranks), Code::kBadConfig, "strategy.sync = \"server\" does not go with " + rule,
                 "fix: " + fix + ", or strategy.sync = \"all_reduce\"");
  };
  expect_refused([](auto& run) { run.optimizer.clip = 1; }, 2, "optimizer.clip > 0", "optimizer.clip = 0");
  for (const int zero : {1, 2, 3})
    expect_refused([&](auto& run) { run.strategy.zero = zero; }, 2, "strategy.zero = " + std::to_string(zero),
                   "strategy.zero = 0");
  expect_refused([](auto& run) { run.mesh.tp = 2; }, 4, "mesh.tp = 2", "mesh.tp = 1");
  expect_refused([](auto& run) { run.mesh.pp = 2; }, 4, "mesh.pp = 2", "mesh.pp = 1");
  expect_refused([](auto& run) { run.mesh.cp = 2; }, 4, "mesh.cp = 2", "mesh.cp = 1");
  expect_refused([](auto& run) { run.strategy.servers = 3; }, 2, "strategy.servers = 3", "strategy.servers = 0");
  expect_refused([](auto& run) { run.mesh.fsdp = 2; }, 2, "mesh.fsdp = 2", "mesh.fsdp = 1");
  for (const char* precision : {"bf16", "fp16"})
    expect_refused([&](auto& run) { run.strategy.precision = precision; }, 2,
                   "strategy.precision = \"" + std::string(precision) + "\"", "strategy.precision = \"fp32\"");
  for (const char* offload : {"states", "window", "nvme"})
    expect_refused([&](auto& run) { run.strategy.offload = offload; }, 2,
                   "strategy.offload = \"" + std::string(offload) + "\"", "strategy.offload = \"none\"");
  expect_refused([](auto& run) { run.optimizer.momentum_precision = "bf16"; }, 2,
                 "optimizer.momentum_precision = \"bf16\"", "optimizer.momentum_precision = \"fp32\"");
}

spec::RunFile in_partitions(spec::RunFile run, int64_t bytes) {
  run.strategy.schedule = "priority";
  run.strategy.partition_bytes = bytes, run.strategy.credit = 1;
  return run;
}

// Block 0 comes back first where nothing is handed over before the last backward; a pull follows its push at once.
TEST(ServerSync, PushesAndPullsPartitionsInTheOrderOfTheNextForward) {
  for (const int dedicated : {0, 1}) {
    spec::RunFile run = in_partitions(served_run(2), 1500);
    run.strategy.dedicated_servers = dedicated, run.strategy.credit = 0;
    const Program step = steps_of(run, 2 + dedicated)[0];
    std::vector<int> groups, needed;
    std::map<int, int64_t> bytes;
    for (size_t i = 0; i < step.ops.size(); ++i) {
      const Op& push = step.ops[i];
      if (push.kind != OpKind::kPush) continue;
      const Op& pull = *std::find_if(step.ops.begin() + static_cast<long>(i) + 1, step.ops.end(), program::is_served);
      ASSERT_TRUE(pull.kind == OpKind::kPull && pull.part == push.part && pull.parts == push.parts);
      EXPECT_LE(served_bytes(step, push), 1500);
      EXPECT_EQ(served_bytes(step, push), served_bytes(step, pull));
      bytes[push.writes[0].index] += served_bytes(step, push);
      if (push.part == 0) groups.push_back(push.writes[0].index);
    }
    for (const auto& of_block : step.block_groups) {
      for (const int group : of_block) {
        if (std::ranges::find(needed, group) == needed.end()) needed.push_back(group);
      }
    }
    EXPECT_EQ(groups, needed);
    for (const auto& [group, sum] : bytes) EXPECT_EQ(sum, step.values.at(program::gradient(group)).bytes);
    EXPECT_EQ(program::parse_program(to_text(step)), step);
  }
}

TEST(ServerSync, IsReadByPeople_InPartitions) {
  testing_support::expect_golden("tests/strategies/golden/server_priority_dp2.txt",
                                 to_text(steps_of(in_partitions(served_run(2), 3000), 2)[0]));
}

// Changes each op of one rank, and of all ranks, in turn. With one server a rank serves and the other does not.
struct Mutated {
  int servers = 1;
  int64_t staleness = 0;
  int dedicated = 0;
  int64_t partition_bytes = 0;  // 0: groups are pushed as wholes, as they are complete
};
class ServerMutants : public testing::TestWithParam<Mutated> {};

TEST_P(ServerMutants, AreFound) {
  spec::RunFile run = ahead_run(2, GetParam().staleness, GetParam().servers);
  run.strategy.dedicated_servers = GetParam().dedicated;
  if (GetParam().partition_bytes > 0) run = in_partitions(run, GetParam().partition_bytes);
  const int ranks = 2 + GetParam().dedicated;
  const auto steps = steps_of(run, ranks);
  const program::Expectation expected = served_expectation(run, ranks);
  ASSERT_EQ(first_finding(steps, expected), "");
  const auto expect_found = [&](const char* what, const OpMutants::Change& change) {
    expect_mutants_found(steps, expected, what, change);
  };
  const auto is = [](const std::vector<Op>& ops, size_t i, OpKind kind) {
    return i < ops.size() && ops[i].kind == kind;
  };
  const auto at = [](std::vector<Op>& ops, size_t i) { return ops.begin() + static_cast<long>(i); };
  expect_found("a push left out", [&](std::vector<Op>& ops, size_t i) {
    if (!is(ops, i, OpKind::kPush)) return false;
    ops.erase(at(ops, i));
    return true;
  });
  expect_found("a pull left out", [&](std::vector<Op>& ops, size_t i) {
    if (!is(ops, i, OpKind::kPull)) return false;
    ops.erase(at(ops, i));
    return true;
  });
  expect_found("a push twice", [&](std::vector<Op>& ops, size_t i) {
    if (!is(ops, i, OpKind::kPush)) return false;
    const Op again = ops[i];
    ops.insert(at(ops, i), again);
    return true;
  });
  expect_found("a pull twice", [&](std::vector<Op>& ops, size_t i) {
    if (!is(ops, i, OpKind::kPull)) return false;
    const Op again = ops[i];
    ops.insert(at(ops, i), again);
    return true;
  });
  const auto pull_of = [](const std::vector<Op>& ops, size_t push) {  // the pull that follows a push
    return std::find_if(ops.begin() + static_cast<long>(push), ops.end(),
                        [&](const Op& op) { return op.kind == OpKind::kPull; }) -
           ops.begin();
  };
  expect_found("a pull before the push, so of the version before", [&](std::vector<Op>& ops, size_t i) {
    if (!is(ops, i, OpKind::kPush)) return false;
    std::swap(ops[i], ops[static_cast<size_t>(pull_of(ops, i))]);
    return true;
  });
  expect_found("a push before the last backward", [&](std::vector<Op>& ops, size_t i) {
    if (!is(ops, i, OpKind::kPush)) return false;
    const Value pushed = ops[i].reads[0];
    const auto adds = [&](const Op& op) { return std::ranges::find(op.writes, pushed) != op.writes.end(); };
    size_t j = i;
    while (j > 0 && !adds(ops[j - 1])) --j;
    const Op push = ops[i];
    ops.erase(at(ops, i));
    ops.insert(at(ops, j - 1), push);
    return true;
  });
  expect_found("a pull before the last use of the weights", [&](std::vector<Op>& ops, size_t i) {
    if (!is(ops, i, OpKind::kPush)) return false;
    const auto pull = static_cast<size_t>(pull_of(ops, i));
    const Value weights = ops[pull].writes[0];
    const auto uses = [&](const Op& op) { return std::ranges::find(op.reads, weights) != op.reads.end(); };
    size_t j = i;
    while (j > 0 && !uses(ops[j - 1])) --j;
    if (j == 0) return false;
    std::rotate(at(ops, j - 1), at(ops, i), at(ops, pull + 1));
    return true;
  });
  expect_found("the push of another group", [&](std::vector<Op>& ops, size_t i) {
    if (!is(ops, i, OpKind::kPush)) return false;
    const auto other = std::find_if(ops.begin(), ops.end(), [&](const Op& op) {
      return op.kind == OpKind::kPush && op.reads[0] != ops[i].reads[0];
    });
    std::swap(other->reads, ops[i].reads);
    return true;
  });
  expect_found("the weights of another group", [&](std::vector<Op>& ops, size_t i) {
    if (!is(ops, i, OpKind::kPull)) return false;
    const auto other = std::find_if(ops.begin(), ops.end(), [&](const Op& op) {
      return op.kind == OpKind::kPull && op.writes[0] != ops[i].writes[0];
    });
    std::swap(other->writes, ops[i].writes);
    return true;
  });
  expect_found("a pull that waits for no push", [&](std::vector<Op>& ops, size_t i) {
    if (!is(ops, i, OpKind::kPull)) return false;
    std::erase_if(ops[i].reads, [](const Value& value) { return value.kind == ValueKind::kPushed; });
    return true;
  });
  if (GetParam().dedicated == 0)
    expect_found("a server that misses the group", [&](std::vector<Op>& ops, size_t i) {
      if (!is(ops, i, OpKind::kPull) || ops[i].reads.size() < 2) return false;
      ops[i].reads.pop_back(), ops[i].writes.pop_back();
      return true;
    });
  // The round of the next step then has the gradient of this one.
  expect_found("a push after the pull of every group", [&](std::vector<Op>& ops, size_t i) {
    if (!is(ops, i, OpKind::kPush)) return false;
    const Op push = ops[i];
    ops.erase(at(ops, i));
    ops.push_back(push);
    return true;
  });
  expect_found("a pull of another staleness", [&](std::vector<Op>& ops, size_t i) {
    if (!is(ops, i, OpKind::kPull)) return false;
    ops[i].staleness += 1;
    return true;
  });
  expect_found("a server that is not there", [&](std::vector<Op>& ops, size_t i) {
    if (i >= ops.size() || !is_served(ops[i])) return false;
    ops[i].servers += 1;
    return true;
  });
  expect_found("another axis", [&](std::vector<Op>& ops, size_t i) {
    if (i >= ops.size() || !is_served(ops[i])) return false;
    ops[i].axis = kNoAxis;
    return true;
  });
  if (GetParam().partition_bytes == 0) return;
  expect_other_parts_found(steps, expected);
  expect_found("a group pulled again before a pass reads it", [&](std::vector<Op>& ops, size_t i) {
    if (!is(ops, i, OpKind::kPull) || ops[i].parts == 1 || ops[i].part + 1 < ops[i].parts) return false;
    std::vector<Op> pulls;
    for (const Op& op : ops) {
      if (op.kind == OpKind::kPull && op.writes == ops[i].writes) pulls.push_back(op);
    }
    ops.insert(at(ops, i + 1), pulls.begin(), pulls.end());
    return true;
  });
}

INSTANTIATE_TEST_SUITE_P(Servers, ServerMutants,
                         testing::Values(Mutated{1, 0}, Mutated{2, 0}, Mutated{1, 1}, Mutated{2, 3}, Mutated{1, -1},
                                         Mutated{0, 0, 2}, Mutated{0, 1, 1}, Mutated{1, 0, 0, 1500},
                                         Mutated{0, 1, 1, 1500}));

TEST(ServerSync, IsExpectedWhereTheRunAsksForIt) {
  const spec::RunFile run = served_run(2);
  spec::RunFile all_reduce = run;
  all_reduce.strategy.sync = "all_reduce";
  all_reduce.health.check_finite = false;
  EXPECT_NE(first_finding(steps_of(all_reduce, 2), served_expectation(run, 2)), "")
      << "each rank updates, but the proof has servers";
}

}  // namespace
}  // namespace herd::strategies
