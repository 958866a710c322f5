// Priority of gradients as a rewrite: block 0 comes back first, updates run beside the next forward, the proof holds
// and finds mutants, and on a slow link a step takes less time.
#include "herd/strategies/priority.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <functional>

#include "herd/program/collective_message.h"
#include "herd/program/memory_bound.h"
#include "herd/program/op_dependencies.h"
#include "herd/program/passes.h"
#include "herd/program/program_names.h"
#include "herd/program/program_text.h"
#include "herd/program/simulate.h"
#include "tests/golden.h"
#include "tests/strategies/op_mutants.h"
#include "tests/strategies/small_run.h"
#include "tests/support/expect_error.h"
#include "tests/support/sample.h"

namespace herd::strategies {
namespace {

using program::Lane;
using program::Op;
using program::OpKind;
using program::Program;
using program::ValueKind;

constexpr int64_t kUncut = 1 << 20;  // bytes; every group of a small run is smaller

spec::RunFile priority_run(int dp, int64_t partition_bytes = 512, int64_t credit = 1, int64_t layers = 2,
                           const char* recompute = "none", int64_t micro_batches = 1, bool tied = false) {
  spec::RunFile run = small_run(layers, recompute, micro_batches * dp, tied);
  run.strategy.schedule = "priority";
  run.strategy.partition_bytes = partition_bytes;
  run.strategy.credit = credit;
  run.optimizer.clip = 0;
  run.health.check_finite = false;
  return run;
}

program::Expectation priority_expectation(const spec::RunFile& run, int ranks) {
  program::Expectation expected = expectation_of(run, ranks);
  expected.proof.clipped = false;
  return expected;
}

bool sums(const Op& op) { return op.kind == OpKind::kAllReduce && op.writes[0].kind == ValueKind::kGradient; }

// Returns the groups of gradients in the order in which they are summed; a group once for each part.
std::vector<int> groups_in_order(const Program& step, size_t from = 0) {
  std::vector<int> out;
  for (size_t i = from; i < step.ops.size(); ++i) {
    if (!sums(step.ops[i])) continue;
    for (const program::Value& value : step.ops[i].writes) out.push_back(value.index);
  }
  return out;
}

size_t last_pass(const Program& step) {
  size_t last = 0;
  for (size_t i = 0; i < step.ops.size(); ++i) last = is_pass(step.ops[i]) ? i : last;
  return last;
}

TEST(Priority, Proves_WithWhatItGoesWith) {
  for (const int dp : {2, 3}) {
    for (const char* recompute : {"none", "full", "selective"}) {
      for (const int64_t partition_bytes : {int64_t{0}, int64_t{256}, int64_t{1000}, kUncut}) {
        for (const int64_t credit : {0, 1, 100}) {
          for (const bool tied : {false, true}) {
            const auto steps =
                steps_of(priority_run(dp, partition_bytes, credit, 2, recompute, 1 + credit % 3, tied), dp);
            EXPECT_EQ(program::parse_program(to_text(steps.back())), steps.back());
          }
        }
      }
    }
  }
  for (const std::string pipeline : {"gpipe", "1f1b", "zero_bubble_h1"}) {
    spec::RunFile run = priority_run(2, 512, 2, 4, "none", 4, true);
    run.mesh.pp = 2;
    run.strategy.pipeline = pipeline;
    steps_of(run, 4);
  }
  spec::RunFile tensor = priority_run(2, 512, 2, 2, "none", 2, true);
  tensor.mesh.tp = 2;
  steps_of(tensor, 4);
  spec::RunFile context = priority_run(2, 512, 1);
  context.mesh.cp = 2;
  steps_of(context, 4);
  for (const char* offload : {"states", "nvme", "window"}) {
    spec::RunFile run = priority_run(2);
    run.strategy.offload = offload;
    steps_of(run, 2);
  }
  spec::RunFile frozen = priority_run(2);
  frozen.model.frozen = "h.1.*";
  steps_of(frozen, 2);
  for (const char* sync : {"server", "server_async"}) {
    spec::RunFile served = priority_run(2);
    served.strategy.sync = sync;
    compile_and_verify(served, spec::program_table(served, 1), trainable_layout(served, 2));
    served.strategy.dedicated_servers = 1;
    for (const int ranks : {2, 3})
      compile_and_verify(served, spec::program_table(served, 1), trainable_layout(served, ranks));
  }
}

TEST(Priority, IsReadByPeople) {
  testing_support::expect_golden("tests/strategies/golden/priority_dp2.txt",
                                 to_text(steps_of(priority_run(2, 1024), 2)[0]));
}

// With credit 0 nothing is summed before the last backward, and then what the next forward reads first.
TEST(Priority, BringsBackFirstWhatTheNextForwardReadsFirst) {
  const Program step = steps_of(priority_run(2, kUncut, 0, 3), 2)[0];
  std::vector<int> needed;
  for (const auto& groups : step.block_groups) needed.insert(needed.end(), groups.begin(), groups.end());
  EXPECT_EQ(groups_in_order(step, last_pass(step)), needed);
  EXPECT_EQ(groups_in_order(step), needed);
  const Program fifo = [&] {
    spec::RunFile run = priority_run(2, kUncut, 0, 3);
    run.strategy.schedule = "fifo", run.strategy.bucket = 1;
    return steps_of(run, 2)[0];
  }();
  EXPECT_EQ(groups_in_order(fifo).back(), needed.front()) << "complete last, and so summed last";
}

// Of a group that is complete before the others, `credit` partitions go after each backward, and the rest goes last.
TEST(Priority, HandsOverNoMoreThanItsCreditAfterEachBackward) {
  for (const int64_t credit : {0, 1, 2, 3, 100}) {
    const Program step = steps_of(priority_run(2, 256, credit, 3), 2)[0];
    int64_t parts = 0;
    for (size_t i = 0; i < last_pass(step); ++i) {
      if (is_pass(step.ops[i])) parts = 0;
      parts += sums(step.ops[i]) ? 1 : 0;
      EXPECT_LE(parts, credit);
    }
    int64_t after = 0, all = 0;
    for (size_t i = 0; i < step.ops.size(); ++i) {
      all += sums(step.ops[i]) ? 1 : 0;
      after += sums(step.ops[i]) && i > last_pass(step) ? 1 : 0;
    }
    if (credit == 0) {
      EXPECT_EQ(after, all);
    }
    if (credit == 100) {
      EXPECT_LT(after, all / 2);
    }
  }
}

TEST(Priority, CutsGradientsIntoPartitionsOfTheBytesThatItStates) {
  for (const int64_t partition_bytes : {300, 512, 1024}) {
    const Program step = steps_of(priority_run(2, partition_bytes), 2)[0];
    std::map<int, int64_t> bytes;
    for (const Op& op : step.ops) {
      if (!sums(op)) continue;
      EXPECT_LE(message_bytes(step, op), partition_bytes);
      bytes[op.writes[0].index] += message_bytes(step, op);
    }
    for (const auto& [group, sum] : bytes) EXPECT_EQ(sum, step.values.at(program::gradient(group)).bytes);
  }
}

TEST(Priority, RefusesMorePartitionsThanCanBePlanned) {
  spec::RunFile run = priority_run(2, 4, 1, 1);
  run.model.vocab = 16384;  // times 8 elements of 4 bytes
  const auto compile = [&run] { return compile_step(run, spec::program_table(run, 1), trainable_layout(run, 2), 0); };
  EXPECT_ERROR(compile(), Code::kBadConfig,
               "strategy.partition_bytes = 4 cuts the gradients of rank 0 into 263064 partitions",
               "of which more than 65536 are too many to plan", "fix: strategy.partition_bytes = 32, or \"auto\"");
  run.strategy.partition_bytes = 32;
  EXPECT_GT(compile().ops.size(), 30000u);
}

// Returns the processor time that `work` takes in the calling thread, the least of three times.
double cpu_seconds(const std::function<void()>& work) {
  const auto now = [] {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  double least = 1e300;
  for (int i = 0; i < 3; ++i) {
    const double begin = now();
    work();
    least = std::min(least, now() - begin);
  }
  return least;
}

// Eight times as many partitions, of one gradient, take eight times as long. If each partition looked at all others of
// its gradient, they would take 64 times as long.
TEST(Priority, TakesTimeInProportionToThePartitions) {
  const auto run_of = [](int64_t partitions) {
    spec::RunFile run = priority_run(2, 8 * 4096 * 4 / partitions, 1, 1);
    run.model.vocab = 4096;
    return run;
  };
  const auto expect_linear = [&](const std::string& what, const std::function<void(const spec::RunFile&)>& work) {
    const auto seconds = [&](int64_t partitions) { return cpu_seconds([&] { work(run_of(partitions)); }); };
    EXPECT_LT(seconds(2048), 8 * 2.5 * seconds(256)) << what;
  };
  expect_linear("compile and verify", [](const spec::RunFile& run) { steps_of(run, 2); });
  const auto step_of = [](const spec::RunFile& run) {
    return compile_step(run, spec::program_table(run, 1), trainable_layout(run, 2), 0);
  };
  expect_linear("dependencies", [&](const spec::RunFile& run) { program::dependencies(step_of(run)); });
  expect_linear("peak", [&](const spec::RunFile& run) { peak_bound(step_of(run), program::Tier::kDevice); });
  expect_linear("simulate", [&](const spec::RunFile& run) {
    program::simulate({step_of(run)}, spec::program_table(run, 1), {}, program::SharedMemoryCost({}));
  });
}

// Each update waits for its own gradient alone, beside the compute lane.
TEST(Priority, UpdatesInTheOrderOfSums_OnALaneOfTheirOwn) {
  const Program step = steps_of(priority_run(2, 256, 2, 3), 2)[0];
  std::vector<int> updated, summed;
  for (const Op& op : step.ops) {
    if (sums(op) && op.part + 1 == op.parts) summed.push_back(op.writes[0].index);
    if (op.kind != OpKind::kStep) continue;
    EXPECT_EQ(op.lane, Lane::kUpdate);
    updated.push_back(op.writes[0].index);
  }
  EXPECT_EQ(updated, summed);
  const auto compute = [](const Op& op) { return op.lane == Lane::kCompute && !is_pass(op); };
  EXPECT_TRUE(std::none_of(step.ops.begin() + static_cast<long>(last_pass(step)) + 1, step.ops.end(),
                           [&](const Op& op) { return compute(op) && op.kind != OpKind::kRelease; }));
}

// The norm of all gradients is a barrier before every update, so only the order of sums can change.
TEST(Priority, ChangesTheOrderOfSumsAlone_WhereUpdatesWaitForANorm) {
  for (const bool clips : {true, false}) {
    spec::RunFile run = priority_run(2, kUncut, 0, 3);
    (clips ? run.optimizer.clip : run.optimizer.lr) = 1;
    run.health.check_finite = !clips;
    spec::RunFile fifo = run;
    fifo.strategy.schedule = "fifo";
    const Program step = steps_of(run, 2)[0];
    EXPECT_EQ(groups_in_order(step).front(), step.block_groups[0][0]);
    const auto others = [](Program of) {
      std::erase_if(of.ops, [](const Op& op) { return sums(op) || op.kind == OpKind::kRelease; });
      return of.ops;
    };
    EXPECT_EQ(others(step), others(steps_of(fifo, 2)[0]));
  }
}

TEST(Priority, LeavesTheStepAsItIs_WhereNoRanksShareIt) {
  spec::RunFile plain = priority_run(1);
  plain.strategy.schedule = "fifo";
  EXPECT_EQ(steps_of(priority_run(1), 1), steps_of(plain, 1));
}

TEST(Priority, RefusesWhatDoesNotGoWithIt_AndSaysWhatToSet) {
  const auto expect_refused = [](const std::function<void(spec::RunFile&)>& change, const std::string& rule,
                                 const std::string& fix) {
    spec::RunFile run = priority_run(2);
    change(run);
    EXPECT_ERROR(steps_of(run, 2), Code::kBadConfig, "strategy.schedule = \"priority\" does not go with " + rule,
                 "fix: " + fix + ", or strategy.schedule = \"fifo\"");
  };
  for (const int zero : {1, 2, 3})
    expect_refused([&](auto& run) { run.strategy.zero = zero; }, "strategy.zero = " + std::to_string(zero),
                   "strategy.zero = 0");
  expect_refused([](auto& run) { run.mesh.fsdp = 2; }, "strategy.zero = 3", "strategy.zero = 0 with mesh.fsdp = 1");
  expect_refused([](auto& run) { run.device.kind = "cuda"; }, "device.kind = \"cuda\"", "device.kind = \"cpu\"");
  for (const char* codec : {"bf16", "int8", "topk"})
    expect_refused([&](auto& run) { run.strategy.compression = codec; },
                   "strategy.compression = \"" + std::string(codec) + "\"", "strategy.compression = \"none\"");
}

// Changes each op of one rank, and of all ranks, in turn.
TEST(Priority, MutantsAreFound) {
  const spec::RunFile run = priority_run(2, 512, 1, 2, "none", 2);
  const auto steps = steps_of(run, 2);
  const program::Expectation expected = priority_expectation(run, 2);
  ASSERT_EQ(first_finding(steps, expected), "");
  const auto expect_found = [&](const char* what, const OpMutants::Change& change) {
    expect_mutants_found(steps, expected, what, change);
  };
  const auto at = [](std::vector<Op>& ops, size_t i) { return ops.begin() + static_cast<long>(i); };
  const auto is_part = [](const std::vector<Op>& ops, size_t i) { return i < ops.size() && ops[i].parts > 1; };
  expect_found("a part left out", [&](std::vector<Op>& ops, size_t i) {
    if (!is_part(ops, i)) return false;
    ops.erase(at(ops, i));
    return true;
  });
  expect_found("a part twice", [&](std::vector<Op>& ops, size_t i) {
    if (!is_part(ops, i)) return false;
    const Op again = ops[i];
    ops.insert(at(ops, i), again);
    return true;
  });
  expect_other_parts_found(steps, expected);
  expect_found("a part before the last backward", [&](std::vector<Op>& ops, size_t i) {
    if (!is_part(ops, i)) return false;
    const program::Value gradient = ops[i].writes[0];
    const auto adds = [&](const Op& op) {
      return is_pass(op) && std::ranges::find(op.writes, gradient) != op.writes.end();
    };
    size_t j = i;
    while (j > 0 && !adds(ops[j - 1])) --j;
    std::rotate(at(ops, j - 1), at(ops, i), at(ops, i + 1));
    return true;
  });
  expect_found("an update before the last part", [&](std::vector<Op>& ops, size_t i) {
    if (i >= ops.size() || ops[i].kind != OpKind::kStep || !is_part(ops, i - 1)) return false;
    std::swap(ops[i], ops[i - 1]);
    return true;
  });
  expect_found("an update left out", [&](std::vector<Op>& ops, size_t i) {
    if (i >= ops.size() || ops[i].kind != OpKind::kStep) return false;
    ops.erase(at(ops, i));
    return true;
  });
}

// A rank that sums in another order than its peers.
TEST(Priority, OrdersThatDifferBetweenRanksAreFound) {
  const spec::RunFile run = priority_run(2, 512, 0);
  auto steps = steps_of(run, 2);
  std::vector<size_t> parts;
  for (size_t i = 0; i < steps[1].ops.size(); ++i) {
    if (sums(steps[1].ops[i])) parts.push_back(i);
  }
  ASSERT_GT(parts.size(), 2u);
  std::swap(steps[1].ops[parts[0]], steps[1].ops[parts[1]]);
  EXPECT_NE(first_finding(steps, priority_expectation(run, 2)), "");
}

// A link that passes `bytes_per_us`, whatever the ranks compute.
class SlowLink final : public program::CollectiveCost {
 public:
  explicit SlowLink(double bytes_per_us) : bytes_per_us_(bytes_per_us) {}
  program::CollectivePrice price(OpKind, int64_t bytes, const Mesh&, int) const override {
    return {.latency_us = 1 + static_cast<double>(bytes) / bytes_per_us_};
  }

 private:
  double bytes_per_us_;
};

double step_us(const spec::RunFile& run, int ranks, double bytes_per_us) {
  const spec::ModelTable model = spec::program_table(run, 1);
  const std::vector<Program> steps = steps_of(run, ranks);
  program::Calibration machine{.cores = ranks, .op_overhead_us = 1};
  machine.matmul_flops_per_us = 100;
  return program::simulate(steps, model, machine, SlowLink(bytes_per_us)).step_us;
}

// The best credit of a few is never slower than first come, first served; where the link takes as long as compute, the
// forward hides what it would wait for.
TEST(Priority, TakesNoLongerThanFifo_OnLinksOfAnyRate) {
  for (const int64_t layers : {1, 4}) {
    for (const double bytes_per_us : {0.5, 2.0, 8.0, 32.0, 128.0, 1e6}) {
      spec::RunFile fifo = priority_run(2, 0, 0, layers);
      fifo.strategy.schedule = "fifo", fifo.strategy.bucket = 1;
      const double before = step_us(fifo, 2, bytes_per_us);
      double best = 1e300;
      for (const int64_t credit : {0, 1, 2, 4, 8, 1000})
        best = std::min(best, step_us(priority_run(2, 1024, credit, layers), 2, bytes_per_us));
      EXPECT_LE(best, before * 1.02) << layers << " layers, " << bytes_per_us << " bytes/us";
      fifo.strategy.sync = "server";
      double served = 1e300;
      for (const int64_t credit : {0, 1, 2, 4, 8, 1000}) {
        spec::RunFile run = priority_run(2, 1024, credit, layers);
        run.strategy.sync = "server";
        served = std::min(served, step_us(run, 2, bytes_per_us));
      }
      EXPECT_LE(served, step_us(fifo, 2, bytes_per_us) * 1.03) << layers << " layers, " << bytes_per_us << " bytes/us";
      RecordProperty("layers" + std::to_string(layers) + "_" + std::to_string(bytes_per_us),
                     std::to_string(best / before));
    }
  }
}

}  // namespace
}  // namespace herd::strategies
