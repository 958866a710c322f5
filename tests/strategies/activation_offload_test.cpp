// Activations on the host and in files as a rewrite: it proves with everything else, the device holds a few passes'
// inputs whatever the number of layers, copies run beside passes, and mutants of it are found.
#include "herd/strategies/activation_offload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "herd/base/error.h"
#include "herd/program/excerpts.h"
#include "herd/program/memory_bound.h"
#include "herd/program/program_names.h"
#include "herd/program/program_text.h"
#include "herd/program/simulate.h"
#include "tests/golden.h"
#include "tests/strategies/op_mutants.h"

namespace herd::strategies {
namespace {

using program::Lane;
using program::Op;
using program::OpKind;
using program::Program;
using program::Tier;
using program::Value;
using program::ValueKind;

spec::RunFile evicting_run(int64_t layers, const std::string& where, int dp = 1, const std::string& recompute = "full",
                           int64_t micro_batches = 2) {
  spec::RunFile run = small_run(layers, recompute, micro_batches * dp, true);
  run.strategy.offload_activations = where;
  run.strategy.bucket = 4096;
  return run;
}

TEST(ActivationOffload, Proves_WithEveryTechnique) {
  int index = 0;
  for (const int dp : {1, 2}) {
    for (const int zero : {0, 1, 2, 3}) {
      for (const int pp : {1, 2}) {
        for (const int tp : {1, 2}) {
          for (const char* recompute : {"full", "sqrt", "every:2"}) {
            for (const char* order : {"gpipe", "1f1b", "interleaved", "zero_bubble_v"}) {
              for (const bool sequence : {true, false}) {
                if ((dp == 1 && zero > 0) || (pp == 1 && std::string_view(order) != "1f1b") || (tp == 1 && sequence))
                  continue;
                if (++index % one_in(17, 67) != 0) continue;
                spec::RunFile run = evicting_run(5, index % 2 == 0 ? "host" : "nvme", dp, recompute, 3);
                run.mesh.pp = pp, run.mesh.tp = tp;
                run.strategy.zero = zero, run.strategy.pipeline = order, run.strategy.sequence_parallel = sequence;
                run.strategy.keep_gathered = index % 3 == 0;
                run.strategy.offload = std::array{"none", "states", "window", "nvme"}[index % 4];
                const auto steps = steps_of(run, dp * pp * tp);
                EXPECT_EQ(program::parse_program(to_text(steps.back())), steps.back());
              }
            }
          }
        }
      }
    }
  }
}

TEST(ActivationOffload, IsReadByPeople) {
  testing_support::expect_golden("tests/strategies/golden/activation_offload_host.txt",
                                 to_text(steps_of(evicting_run(3, "host", 1, "full", 1), 1)[0]));
  testing_support::expect_golden("tests/strategies/golden/activation_offload_nvme.txt",
                                 to_text(steps_of(evicting_run(3, "nvme", 1, "full", 1), 1)[0]));
}

// Every layer's input but the last one's goes out and comes back, once for each micro-batch.
TEST(ActivationOffload, MovesEachInputOnceEachWay) {
  for (const char* where : {"host", "nvme"}) {
    const Program step = steps_of(evicting_run(6, where), 1)[0];
    std::map<std::pair<OpKind, Lane>, std::vector<Value>> moved;
    for (const Op& op : step.ops) {
      if (op.kind == OpKind::kEvict || op.kind == OpKind::kFetch) moved[{op.kind, op.lane}].push_back(op.reads.at(0));
    }
    const size_t inputs = 2 * 5;
    EXPECT_EQ((moved[{OpKind::kEvict, Lane::kCopyOut}].size()), inputs);
    EXPECT_EQ((moved[{OpKind::kFetch, Lane::kCopyIn}].size()), inputs);
    const size_t in_files = std::string_view(where) == "nvme" ? inputs : 0;
    EXPECT_EQ((moved[{OpKind::kEvict, Lane::kIo}].size()), in_files);
    EXPECT_EQ((moved[{OpKind::kFetch, Lane::kIo}].size()), in_files);
  }
}

int64_t peak(const Program& step, Tier tier) { return peak_bound(step, tier).bytes; }

// With more layers the device holds no more activations, and the host, or the file, one input a layer.
TEST(ActivationOffload, TakesAnInputALayerOfTheHostOrOfFiles_AndNoneOfTheDevice) {
  for (const char* where : {"host", "nvme"}) {
    std::array<Program, 2> kept, moved;
    for (const bool more : {false, true}) {
      spec::RunFile run = evicting_run(more ? 24 : 8, where);
      run.model.context = 64;
      moved[more] = steps_of(run, 1)[0];
      run.strategy.offload_activations = "none";
      kept[more] = steps_of(run, 1)[0];
    }
    const int64_t input = moved[0].values.at(program::activation(1, 0)).bytes;
    EXPECT_EQ(input, 64 * 8 * 4);
    const auto grown = [&](const auto& steps, Tier tier) { return peak(steps[1], tier) - peak(steps[0], tier); };
    EXPECT_EQ(grown(kept, Tier::kDevice) - grown(moved, Tier::kDevice), 16 * input) << where;
    const bool in_files = std::string_view(where) == "nvme";
    const int64_t norms = grown(kept, Tier::kHost);
    EXPECT_EQ(grown(moved, Tier::kHost) - norms, in_files ? 0 : 16 * input);
    EXPECT_EQ(grown(moved, Tier::kNvme), in_files ? 16 * 4096 : 0);
    EXPECT_LE(in_order_peak(moved[1], Tier::kDevice).bytes, peak(moved[1], Tier::kDevice));
  }
}

// A link that is fast enough hides the copies; a slow one sets the pace of each way.
TEST(ActivationOffload, CopiesBesidePasses_AtTheRateOfTheLink) {
  spec::RunFile run = evicting_run(12, "host");
  run.model.width = 64, run.model.context = 256;
  program::Calibration machine;
  machine.cores = 4;
  const auto step_us = [&](const spec::RunFile& of) {
    return simulate(steps_of(of, 1), spec::program_table(of, 1), machine, program::SharedMemoryCost(machine)).step_us;
  };
  spec::RunFile kept = run;
  kept.strategy.offload_activations = "none";
  const double free_us = step_us(kept);
  EXPECT_LT(step_us(run), 1.05 * free_us);
  const double bytes = 2 * 11 * 64 * 256 * 4.0;
  machine.emulated_link_bytes_per_us = bytes / (4 * free_us);  // copies take four times what passes take
  EXPECT_GE(step_us(run), 4 * free_us);
  EXPECT_LT(step_us(run), 11 * free_us);
}

TEST(ActivationOffload, NeedsRecomputedBlocks) {
  for (const char* recompute : {"none", "selective"}) {
    try {
      steps_of(evicting_run(3, "host", 1, recompute), 1);
      FAIL() << "nothing was thrown";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kBadConfig);
      EXPECT_THAT(error.message(), testing::HasSubstr("fix: strategy.recompute = \"full\""));
    }
  }
}

// A validation has no backward, so nothing leaves.
TEST(ActivationOffload, LeavesAForwardAlone) {
  const Program forward = program::forward_only(steps_of(evicting_run(4, "nvme"), 1)[0]);
  for (const Op& op : forward.ops) EXPECT_TRUE(op.kind != OpKind::kFetch && op.kind != OpKind::kEvict);
}

bool moves_activation(const Op& op) {
  return (op.kind == OpKind::kFetch || op.kind == OpKind::kEvict) && op.reads.at(0).kind == ValueKind::kActivation;
}

TEST(ActivationOffload, MutantsAreFound) {
  for (const char* where : {"host", "nvme"}) {
    const spec::RunFile run = evicting_run(4, where, 2);
    OpMutants mutants(steps_of(run, 2), expectation_of(run, 2), moves_activation);
    mutants.expect_found("left out", [](std::vector<Op>& ops, size_t i) {
      ops.erase(ops.begin() + static_cast<long>(i));
      return true;
    });
    mutants.expect_found("of another micro-batch", [](std::vector<Op>& ops, size_t i) {
      ops[i].reads[0].micro_batch ^= 1;
      return true;
    });
    mutants.expect_found("to another micro-batch", [](std::vector<Op>& ops, size_t i) {
      ops[i].writes[0].micro_batch ^= 1;
      return true;
    });
    mutants.expect_found("both of another micro-batch", [](std::vector<Op>& ops, size_t i) {
      ops[i].reads[0].micro_batch ^= 1, ops[i].writes[0].micro_batch ^= 1;
      return true;
    });
    mutants.expect_found("of another block", [](std::vector<Op>& ops, size_t i) {
      ops[i].reads[0].index += ops[i].reads[0].index == 1 ? 1 : -1;
      return true;
    });
    mutants.expect_found("after its use", move_after_use);
    EXPECT_GT(mutants.count(), 60);
  }
}

}  // namespace
}  // namespace herd::strategies
