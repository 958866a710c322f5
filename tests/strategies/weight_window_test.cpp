// A window of weights as a rewrite: it proves with everything else, holds as many weights as it says, hides its copies
// behind passes, and mutants of it are found.
#include "herd/strategies/weight_window.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "herd/program/excerpts.h"
#include "herd/program/memory_bound.h"
#include "herd/program/program_names.h"
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

spec::RunFile window_run(int64_t window, int64_t layers = 4, int dp = 1) {
  spec::RunFile run = small_run(layers, "none", 2 * dp, true);
  run.strategy.offload = "window";
  run.strategy.window = window;
  run.strategy.bucket = 4096;
  return run;
}

TEST(WeightWindow, Proves_WithEveryTechnique) {
  int index = 0;
  for (const int dp : {1, 2}) {
    for (const int pp : {1, 2}) {
      for (const int tp : {1, 2}) {
        for (const char* precision : {"fp32", "bf16", "fp16"}) {
          for (const char* recompute : {"none", "full", "every:2"}) {
            for (const int64_t window : {1, 2, 5}) {
              if (++index % one_in(7, 67) != 0) continue;
              spec::RunFile run = window_run(window, 3, dp);
              if (index % 3 == 0) run.optimizer.clip = 0, run.health.check_finite = false;
              run.mesh.pp = pp, run.mesh.tp = tp;
              run.strategy.precision = precision, run.strategy.recompute = recompute;
              const auto steps = steps_of(run, dp * pp * tp);
              EXPECT_EQ(program::parse_program(to_text(steps.back())), steps.back());
            }
          }
        }
      }
    }
  }
  spec::RunFile frozen = window_run(2);
  frozen.model.frozen = "h.1.*";
  steps_of(frozen, 1);
}

// Whole weights on the host beside states that are cut, and shards there that are gathered on the device.
TEST(WeightWindow, Proves_WithEveryStageOfZero) {
  int index = 0;
  for (const int dp : {2, 3, 4}) {
    for (const int zero : {1, 2, 3}) {
      for (const auto& [pp, tp, cp] : {std::tuple(1, 1, 1), {2, 1, 1}, {1, 2, 1}, {1, 1, 2}}) {
        for (const char* precision : {"fp32", "bf16", "fp16"}) {
          for (const char* recompute : {"none", "full"}) {
            for (const int64_t window : {1, 2, 5}) {
              if (dp * pp * tp * cp > 8 || ++index % one_in(13, 67) != 0) continue;
              spec::RunFile run = window_run(window, 3, dp);
              if (index % 3 == 0) run.optimizer.clip = 0, run.health.check_finite = false;
              if (index % 5 == 0) run.model.frozen = "h.1.*";
              if (dp == 4 && index % 2 == 0) run.mesh.fsdp = 2;
              run.mesh.pp = pp, run.mesh.tp = tp, run.mesh.cp = cp;
              run.strategy.zero = zero, run.strategy.keep_whole = zero == 3 ? index % 3 : 0;
              if (zero == 3 && dp == 4 && cp == 1)
                run.strategy.secondary_shard = true, run.mesh.ranks_per_host = 2 * tp;
              run.strategy.precision = precision, run.strategy.recompute = recompute;
              if (zero < 3 && index % 2 == 0) run.strategy.direct_host = "embedding h.0*";
              const auto steps = steps_of(run, dp * pp * tp * cp);
              EXPECT_EQ(program::parse_program(to_text(steps.back())), steps.back());
            }
          }
        }
      }
    }
  }
}

spec::RunFile cut_run(int zero, int dp, int64_t window = 2, int64_t layers = 3) {
  spec::RunFile run = window_run(window, layers, dp);
  run.strategy.zero = zero;
  return run;
}

TEST(WeightWindow, IsReadByPeople) {
  testing_support::expect_golden("tests/strategies/golden/weight_window_zero1_dp2.txt",
                                 to_text(steps_of(cut_run(1, 2, 2, 1), 2)[1]));
  testing_support::expect_golden("tests/strategies/golden/weight_window_zero3_dp2.txt",
                                 to_text(steps_of(cut_run(3, 2, 2, 1), 2)[1]));
  testing_support::expect_golden("tests/strategies/golden/weight_window.txt",
                                 to_text(steps_of(window_run(2, 1), 1)[0]));
}

// The device holds gradients and `window` buffers of a layer's weights, whatever the number of layers; beside them
// those of the embeddings, which have other sizes. The host holds all weights.
TEST(WeightWindow, HoldsTheWeightsOfAsManyPassesAsItSays) {
  for (const int64_t layers : {8, 16}) {
    for (const int64_t window : {1, 2, 4}) {
      const spec::RunFile run = window_run(window, layers);
      const spec::ModelTable model = spec::program_table(run, 1);
      const Program step = steps_of(run, 1)[0];
      std::map<int, int64_t> slots;
      int64_t on_host = 0;
      for (const auto& [value, info] : step.values) {
        if (value.kind != ValueKind::kWeight) continue;
        if (value.tier == Tier::kHost && info.persistent) on_host += info.bytes;
        if (value.tier == Tier::kDevice) slots[info.slot] = std::max(slots[info.slot], info.bytes);
      }
      const int64_t layer = 4 * model.group_elements(2);
      EXPECT_EQ(std::count_if(slots.begin(), slots.end(), [&](const auto& slot) { return slot.second == layer; }),
                window);
      EXPECT_EQ(on_host, 4 * model.parameters());
    }
  }
}

// In fp32 a rank of n keeps 4 bytes of a parameter on the host, or 4/n with ZeRO-3, and 8/n of states. The device has
// `window` buffers of a layer, and as many of its shards with ZeRO-3.
TEST(WeightWindow, KeepsWholesOrShardsOnTheHost) {
  constexpr int kRanks = 4;
  for (const int zero : {1, 2, 3}) {
    for (const int64_t window : {1, 2, 4}) {
      const spec::RunFile run = cut_run(zero, kRanks, window, 12);
      const spec::ModelTable model = spec::program_table(run, 1);
      const Program step = steps_of(run, kRanks)[1];
      std::map<int, int64_t> slots;
      std::map<ValueKind, int64_t> on_host;
      for (const auto& [value, info] : step.values) {
        if (value.tier == Tier::kHost && info.persistent && (value.placement.is_whole() || info.slot < 0))
          on_host[value.kind] += info.bytes;
        if (value.kind == ValueKind::kWeight && value.tier == Tier::kDevice)
          slots[info.slot] = std::max(slots[info.slot], info.bytes);
      }
      const auto with_bytes = [&](int64_t bytes) {
        return std::ranges::count_if(slots, [&](const auto& slot) { return slot.second == bytes; });
      };
      int64_t padded = 0;
      for (int group = 0; group < static_cast<int>(model.groups.size()); ++group)
        padded += spec::shard_bytes(4 * model.group_elements(group), kRanks);
      const int64_t layer = spec::shard_bytes(4 * model.group_elements(2), kRanks);
      EXPECT_EQ(with_bytes(kRanks * layer), window) << zero;
      EXPECT_EQ(with_bytes(layer), zero == 3 ? window : 0) << zero;
      EXPECT_EQ(on_host[ValueKind::kWeight], zero == 3 ? padded : kRanks * padded) << zero;
      EXPECT_EQ(on_host[ValueKind::kState], 2 * padded) << zero;
      const int64_t host = peak_bound(step, Tier::kHost).bytes, kept = on_host[ValueKind::kWeight] + 2 * padded;
      EXPECT_GE(host, kept);
      EXPECT_LE(host, kept + 8 * layer + 512) << "staging buffers of two gradients";
    }
  }
}

// Of its weights a rank with ZeRO-3 copies 1/n over its link, where one without copies all.
TEST(WeightWindow, CopiesShardsOverTheLink) {
  const auto fetched = [](const spec::RunFile& run, int ranks) {
    const Program step = steps_of(run, ranks)[0];
    int64_t bytes = 0;
    for (const Op& op : step.ops) bytes += op.kind == OpKind::kFetch ? step.values.at(op.reads[0]).bytes : 0;
    return bytes;
  };
  const int64_t whole = fetched(cut_run(0, 4), 4), padding = 64 * 4 * 6 * 16;
  EXPECT_NEAR(static_cast<double>(fetched(cut_run(1, 4), 4)), static_cast<double>(whole), static_cast<double>(padding));
  EXPECT_NEAR(4.0 * static_cast<double>(fetched(cut_run(3, 4), 4)), static_cast<double>(whole),
              static_cast<double>(padding));
}

TEST(WeightWindow, HidesItsCopiesBehindPasses) {
  program::Calibration machine;
  machine.cores = 4;
  const auto step_us = [&](const spec::RunFile& run) {
    return simulate(steps_of(run, 1), spec::program_table(run, 1), machine, program::SharedMemoryCost(machine)).step_us;
  };
  spec::RunFile states = window_run(2, 12);
  states.strategy.offload = "states";
  const double kept_us = step_us(states);
  const double one_us = step_us(window_run(1, 12)), two_us = step_us(window_run(2, 12));
  EXPECT_LT(two_us, one_us);
  EXPECT_LT(two_us, 1.12 * kept_us);
}

TEST(WeightWindow, NamesWhatItDoesNotGoWith) {
  spec::RunFile codec = cut_run(3, 2);
  codec.strategy.gather_codec = "int8";
  EXPECT_ERROR(steps_of(codec, 2), Code::kBadConfig, "strategy.gather_codec = \"int8\"", "fix: ", "\"none\"");
  spec::RunFile direct = cut_run(3, 2);
  direct.strategy.direct_host = "embedding";
  EXPECT_ERROR(steps_of(direct, 2), Code::kBadConfig, "strategy.direct_host = \"embedding\" reads whole weights",
               "strategy.zero = 3", "fix: strategy.zero = 2");
  steps_of(direct, 1);  // one rank cuts nothing
}

// A validation fetches what its forwards need, too.
TEST(WeightWindow, FetchesForAForwardAlone) {
  for (const int zero : {0, 1, 3}) {
    const Program forward = program::forward_only(steps_of(cut_run(zero, 2), 2)[0]);
    int fetches = 0, gathers = 0;
    for (const Op& op : forward.ops) fetches += op.kind == OpKind::kFetch, gathers += op.kind == OpKind::kAllGather;
    EXPECT_GE(fetches, 5) << zero;
    EXPECT_EQ(gathers, zero == 3 ? fetches : 0) << zero;
  }
}

TEST(WeightWindow, MutantsAreFound) {
  for (const int zero : {0, 1, 3}) {
    const spec::RunFile run = cut_run(zero, 2);
    const auto steps = steps_of(run, 2);
    const program::Expectation expected = expectation_of(run, 2);
    ASSERT_EQ(first_finding(steps, expected), "");
    OpMutants mutants(steps, expected,
                      [](const Op& op) { return op.kind == OpKind::kFetch || op.kind == OpKind::kAllGather; });
    mutants.expect_found("left out", [](std::vector<Op>& ops, size_t i) {
      ops.erase(ops.begin() + static_cast<long>(i));
      return true;
    });
    mutants.expect_found("of another group", [](std::vector<Op>& ops, size_t i) {
      ops[i].reads[0].index = ops[i].reads[0].index == 0 ? 1 : 0;
      return true;
    });
    mutants.expect_found("into another", [](std::vector<Op>& ops, size_t i) {
      ops[i].writes[0].index = ops[i].writes[0].index == 0 ? 1 : 0;
      return true;
    });
    mutants.expect_found("after its use", move_after_use);
    EXPECT_GT(mutants.count(), 40);
  }
}

}  // namespace
}  // namespace herd::strategies
