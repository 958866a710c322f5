// Weights and states of a window in files, as a rewrite: it proves with everything else, leaves the host what it says,
// reads files ahead, and mutants of it are found. Those of strategy.offload = "nvme" are tested beside host_states.
#include "herd/strategies/values_in_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "herd/program/excerpts.h"
#include "herd/program/memory_bound.h"
#include "herd/program/program_text.h"
#include "herd/program/simulate.h"
#include "herd/spec/model_states.h"
#include "tests/golden.h"
#include "tests/strategies/op_mutants.h"
#include "tests/support/expect_error.h"

namespace herd::strategies {
namespace {

using program::Lane;
using program::Op;
using program::OpKind;
using program::Program;
using program::Tier;
using program::Value;
using program::ValueKind;

spec::RunFile files_run(int64_t file_layers, int dp = 1, int zero = 0, int64_t layers = 4) {
  spec::RunFile run = offload_run(dp, zero, layers, "window");
  run.strategy.window = 2;
  run.strategy.file_layers = file_layers;
  return run;
}

TEST(ValuesInFiles, ProveWithEveryTechnique) {
  int index = 0;
  for (const auto& [dp, zero] : {std::pair(1, 0), {2, 0}, {2, 3}, {4, 3}}) {
    for (const auto& [pp, tp, cp] : {std::tuple(1, 1, 1), {2, 1, 1}, {1, 2, 1}, {1, 1, 2}}) {
      for (const char* precision : {"fp32", "bf16", "fp16"}) {
        for (const char* recompute : {"none", "full"}) {
          for (const int64_t file_layers : {1, 3, 6}) {
            if (dp * pp * tp * cp > 8 || ++index % one_in(11, 61) != 0) continue;
            spec::RunFile run = files_run(file_layers, dp, zero);
            run.strategy.window = 1 + index % 3;
            if (index % 2 == 0) run.optimizer.clip = 0, run.health.check_finite = false;
            if (index % 5 == 0) run.model.frozen = "h.1.*";
            if (index % 7 < 3 && zero == 0) run.strategy.direct_host = "embedding h.3*";
            if (index % 3 == 0 && pp == 1) run.strategy.order = "layer_major";
            if (zero == 3) run.strategy.keep_whole = index % 2;
            if (std::string_view(recompute) == "full") run.strategy.offload_activations = "nvme";
            if (dp == 4 && index % 2 == 0) run.mesh.fsdp = 2;
            run.mesh.pp = pp, run.mesh.tp = tp, run.mesh.cp = cp;
            run.strategy.precision = precision, run.strategy.recompute = recompute;
            const auto steps = steps_of(run, dp * pp * tp * cp);
            EXPECT_EQ(program::parse_program(to_text(steps.back())), steps.back());
            const Program forward = program::forward_only(steps.back());
            for (const Op& op : forward.ops) {  // a validation reads weights alone
              const bool reads_file = op.kind == OpKind::kFetch && op.lane == Lane::kIo;
              EXPECT_TRUE(!reads_file || op.reads.size() == 1);
            }
          }
        }
      }
    }
  }
}

// Passes that read weights on the host may need the same group again after another one.
TEST(ValuesInFiles, ProveWherePassesReadThemOnTheHost) {
  for (const char* order : {"micro_batch_major", "layer_major"}) {
    for (const int tp : {1, 2}) {
      spec::RunFile run = files_run(6);
      run.mesh.tp = tp;
      run.strategy.direct_host = "*", run.strategy.order = order;
      std::set<Value> unread;
      const auto steps = steps_of(run, tp);
      for (const Op& op : steps[0].ops) {
        for (const Value& value : op.reads) unread.erase(value);
        if (op.kind != OpKind::kFetch || op.lane != Lane::kIo) continue;
        for (const Value& value : op.writes) EXPECT_TRUE(unread.insert(value).second) << "read twice for one use";
      }
    }
  }
}

TEST(ValuesInFiles, AreReadByPeople) {
  testing_support::expect_golden("tests/strategies/golden/window_files_zero3_dp2.txt",
                                 to_text(steps_of(files_run(2, 2, 3, 1), 2)[1]));
}

// Of the last layers a rank has all in files: 12 bytes a parameter with AdamW in fp32. The host has buffers for two
// layers in their place; the device holds the same.
TEST(ValuesInFiles, LeaveTheHostTwoBuffersOfALayer) {
  constexpr int64_t kLayers = 12;
  const auto run_of = [](int64_t file_layers) {
    spec::RunFile run = files_run(file_layers, 1, 0, kLayers);
    run.model.width = 64;
    return run;
  };
  const auto bytes_of = [&](int64_t file_layers, Tier tier) {
    return peak_bound(steps_of(run_of(file_layers), 1)[0], tier).bytes;
  };
  const spec::ModelTable model = spec::program_table(run_of(0), 1);
  const int64_t weights = 4 * model.group_elements(2);  // of a layer
  const int64_t all = bytes_of(0, Tier::kHost);
  for (const int64_t file_layers : {5, 8, 11}) {
    const int64_t moved = file_layers - 1;  // layers; the last in the chain is the head with the norm
    EXPECT_NEAR(static_cast<double>(bytes_of(file_layers, Tier::kNvme)), static_cast<double>(3 * moved * weights),
                static_cast<double>((2 * moved + 4) * 4096 * 2));
    EXPECT_LE(bytes_of(file_layers, Tier::kHost), all - 3 * moved * weights + 2 * 3 * weights + 12 * 4096);
    EXPECT_EQ(bytes_of(file_layers, Tier::kDevice), bytes_of(0, Tier::kDevice));
  }
}

// Weights come from the file one pass ahead of their copy to the device, so that a fast drive takes no time.
TEST(ValuesInFiles, AreReadAheadByTheOrderOfTheProgram) {
  const Program step = steps_of(files_run(6), 1)[0];
  std::vector<int> read, copied;
  for (const Op& op : step.ops) {
    if (op.kind != OpKind::kFetch || op.reads[0].kind != ValueKind::kWeight || op.reads.size() > 1) continue;
    (op.lane == Lane::kIo ? read : copied).push_back(op.reads[0].index);
    const bool is_ahead = op.lane != Lane::kCopyIn || copied.size() + 1 >= 8 || read.size() == copied.size() + 1;
    EXPECT_TRUE(is_ahead) << copied.size();
  }
  EXPECT_EQ(std::vector(read.begin(), read.begin() + 7), std::vector(copied.begin(), copied.begin() + 7));

  program::Calibration machine;
  machine.cores = 4;
  const auto step_us = [&](int64_t file_layers, double nvme_bytes_per_us) {
    spec::RunFile run = files_run(file_layers, 1, 0, 8);
    run.model.width = 64, run.model.context = 512;
    run.optimizer.clip = 0, run.health.check_finite = false;
    machine.nvme_bytes_per_us = nvme_bytes_per_us;
    return simulate(steps_of(run, 1), spec::program_table(run, 1), machine, program::SharedMemoryCost(machine)).step_us;
  };
  EXPECT_LT(step_us(4, 10'000), 1.05 * step_us(0, 10'000));
  EXPECT_GT(step_us(4, 20), 1.5 * step_us(0, 20));
}

TEST(ValuesInFiles, NameWhatTheyDoNotGoWith) {
  for (const int zero : {1, 2}) {
    EXPECT_ERROR(steps_of(files_run(2, 2, zero), 2), Code::kBadConfig, "strategy.file_layers = 2",
                 "strategy.zero = " + std::to_string(zero), "fix: strategy.zero = 3", "strategy.file_layers = 0");
  }
  const std::vector<std::string> overrides = {"strategy.file_layers=2", "strategy.offload=states"};
  EXPECT_ERROR(spec::parse_run_text("", "run.toml", overrides), Code::kBadConfig, "strategy.file_layers = 2",
               "got strategy.offload = \"states\"", "fix: strategy.file_layers = 0");
}

TEST(ValuesInFiles, MutantsAreFound) {
  for (const char* precision : {"fp32", "bf16"}) {
    for (const bool has_norm : {true, false}) {
      spec::RunFile run = files_run(3, 2, 3);
      run.strategy.precision = precision;
      if (!has_norm) run.optimizer.clip = 0, run.health.check_finite = false;
      const auto steps = steps_of(run, 2);
      program::Expectation expected = expectation_of(run, 2);
      expected.proof.clipped = has_norm;
      ASSERT_EQ(first_finding(steps, expected), "");
      OpMutants mutants(steps, expected,
                        [](const Op& op) { return op.lane == Lane::kIo && op.kind != OpKind::kRelease; });
      mutants.expect_found("left out", [](std::vector<Op>& ops, size_t i) {
        ops.erase(ops.begin() + static_cast<long>(i));
        return true;
      });
      mutants.expect_found("of another group", [](std::vector<Op>& ops, size_t i) {
        for (Value& value : ops[i].reads) value.index = value.index == 5 ? 4 : 5;
        return true;
      });
      mutants.expect_found("the other way", [](std::vector<Op>& ops, size_t i) {
        ops[i].kind = ops[i].kind == OpKind::kEvict ? OpKind::kFetch : OpKind::kEvict;
        return true;
      });
      mutants.expect_found("after its use", [](std::vector<Op>& ops, size_t i) {
        return ops[i].kind == OpKind::kFetch && move_after_use(ops, i);
      });
      EXPECT_GT(mutants.count(), 40);
    }
  }
}

}  // namespace
}  // namespace herd::strategies
