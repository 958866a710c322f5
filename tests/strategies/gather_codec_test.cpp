// Weights gathered in int8 as a rewrite: it proves beside every other technique, moves the bytes that its header
// states, and mutants of it are found.
#include "herd/strategies/gather_codec.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <ranges>
#include <set>

#include "herd/kernels/codec.h"
#include "herd/program/collective_message.h"
#include "herd/program/excerpts.h"
#include "herd/program/program_names.h"
#include "herd/program/program_text.h"
#include "op_mutants.h"
#include "tests/golden.h"
#include "tests/support/expect_error.h"

namespace herd::strategies {
namespace {

using program::Codec;
using program::Op;
using program::OpKind;
using program::Program;
using program::Value;
using program::ValueKind;

spec::RunFile gathering_run(int data_ranks, const char* codec = "int8") {
  spec::RunFile run = small_run(2, "none", 2 * data_ranks, true);
  run.strategy.zero = 3;
  run.strategy.keep_whole = 0;
  run.strategy.gather_codec = codec;
  return run;
}

bool gathers_weights(const Op& op) {
  return op.kind == OpKind::kAllGather && op.writes.at(0).kind == ValueKind::kWeight;
}

TEST(GatherCodec, Proves_WithEveryTechnique) {
  int index = 0;
  for (const int pp : {1, 2}) {
    for (const int tp : {1, 2}) {
      for (const int fsdp : {1, 2}) {
        for (const char* recompute : {"none", "full", "every:2"}) {
          for (const char* offload : {"none", "states", "nvme"}) {
            if (++index % one_in(5, 13) != 0) continue;
            const int data_ranks = fsdp == 2 ? 4 : 2;
            spec::RunFile run = gathering_run(data_ranks);
            run.mesh.pp = pp, run.mesh.tp = tp, run.mesh.fsdp = fsdp;
            run.strategy.recompute = recompute, run.strategy.offload = offload;
            run.strategy.sequence_parallel = tp == 2 && pp == 1;
            run.strategy.precision = index % 2 == 0 ? "fp32" : "bf16";
            run.strategy.keep_whole = index % 3;
            run.optimizer.clip = index % 4 == 0 ? 0 : 1;
            const auto steps = steps_of(run, data_ranks * pp * tp);
            EXPECT_EQ(program::parse_program(to_text(steps.back())), steps.back());
          }
        }
      }
    }
  }
  spec::RunFile frozen = gathering_run(3);
  frozen.model.frozen = "h.1.*";
  steps_of(frozen, 3);
  spec::RunFile context = gathering_run(2);
  context.model.heads = 4, context.model.kv_heads = 4;
  context.mesh.cp = 2;
  steps_of(context, 4);
}

TEST(GatherCodec, IsReadByPeople) {
  testing_support::expect_golden("tests/strategies/golden/gather_codec_dp2.txt",
                                 to_text(steps_of(gathering_run(2), 2)[0]));
}

// Of s elements, a shard has s + 4 ceil(s/256) bytes. Forward and backward gather as often as without the codec.
TEST(GatherCodec, MovesTheBytesOfItsEquation_InForwardAndBackward) {
  for (const char* precision : {"fp32", "bf16"}) {
    for (const int ranks : {2, 3}) {
      spec::RunFile run = gathering_run(ranks), plain_run = gathering_run(ranks, "none");
      run.strategy.precision = plain_run.strategy.precision = precision;
      const Program coded = steps_of(run, ranks)[0], plain = steps_of(plain_run, ranks)[0];
      const int64_t width = precision == std::string("fp32") ? 4 : 2;
      std::map<int, int> times, plain_times;
      for (const Op& op : plain.ops) plain_times[gathers_weights(op) ? op.writes[0].index : -1]++;
      for (const Op& op : coded.ops) {
        times[gathers_weights(op) ? op.writes[0].index : -1]++;
        if (!gathers_weights(op)) continue;
        const int group = op.writes[0].index;
        const int64_t s = coded.values.at(program::weight(group)).bytes / width / ranks;
        EXPECT_EQ(message_bytes(coded, op), ranks * (s + 4 * ((s + 255) / 256)));
      }
      times.erase(-1), plain_times.erase(-1);
      EXPECT_EQ(times, plain_times);
      EXPECT_GT(*std::ranges::max_element(times | std::views::values), 1) << "forward and backward";
    }
  }
}

// What is decoded needs one buffer at a time, since only what is gathered is gathered ahead.
TEST(GatherCodec, DecodesIntoOneBuffer_HoweverFarItGathersAhead) {
  for (const int64_t ahead : {0, 2}) {
    spec::RunFile run = gathering_run(2);
    run.model.layers = 6;
    run.strategy.prefetch = ahead;
    const Program step = steps_of(run, 2)[0];
    std::set<int> plain, coded;  // slots of layers, which have equal sizes
    for (const auto& [value, info] : step.values) {
      if (value.kind != ValueKind::kWeight || !value.placement.is_whole()) continue;
      if (value.index >= 2 && value.index <= 5) (value.codec == Codec::kPlain ? plain : coded).insert(info.slot);
    }
    EXPECT_EQ(plain.size(), 1u);
    EXPECT_EQ(coded.size(), static_cast<size_t>(ahead + 1));
  }
}

TEST(GatherCodec, BringsItsWeightsToPassesWithoutTraining) {
  const Program losses = program::forward_only(steps_of(gathering_run(2), 2)[0]);
  int gathers = 0, decodes = 0;
  for (const Op& op : losses.ops) {
    gathers += gathers_weights(op) && op.writes[0].codec == Codec::kInt8;
    decodes += op.kind == OpKind::kDecode;
    EXPECT_NE(op.kind, OpKind::kEncode);
  }
  EXPECT_EQ(gathers, decodes);
  EXPECT_GE(gathers, 3);
}

TEST(GatherCodec, LeavesTheStepAsItIs_WhereNoRanksShareIt) {
  EXPECT_EQ(steps_of(gathering_run(1), 1), steps_of(gathering_run(1, "none"), 1));
}

TEST(GatherCodec, RefusesWeightsThatStayWhole) {
  for (const int zero : {0, 1, 2}) {
    spec::RunFile run = gathering_run(2);
    run.strategy.zero = zero;
    EXPECT_ERROR(
        steps_of(run, 2), Code::kBadConfig,
        "strategy.zero = " + std::to_string(zero) + " keeps them whole\n  fix: strategy.gather_codec = \"none\"");
  }
}

TEST(GatherCodec, MutantsAreFound) {
  for (const int fsdp : {1, 2}) {
    spec::RunFile run = gathering_run(2 * fsdp);
    run.mesh.fsdp = fsdp;
    const auto steps = steps_of(run, 2 * fsdp);
    const program::Expectation expected = expectation_of(run, 2 * fsdp);
    ASSERT_EQ(first_finding(steps, expected), "");
    const auto recodes = [](const Op& op) { return op.kind == OpKind::kEncode || op.kind == OpKind::kDecode; };
    OpMutants mutants(steps, expected, recodes);
    mutants.expect_found("left out", [](std::vector<Op>& ops, size_t i) {
      ops.erase(ops.begin() + static_cast<long>(i));
      return true;
    });
    mutants.expect_found("the other way", [](std::vector<Op>& ops, size_t i) {
      ops[i].kind = ops[i].kind == OpKind::kEncode ? OpKind::kDecode : OpKind::kEncode;
      return true;
    });
    mutants.expect_found("of another group", [](std::vector<Op>& ops, size_t i) {
      ops[i].reads[0].index = (ops[i].reads[0].index + 1) % 3;
      return true;
    });
    mutants.expect_found("into the exact shard", [](std::vector<Op>& ops, size_t i) {
      if (ops[i].kind != OpKind::kEncode) return false;
      std::swap(ops[i].reads, ops[i].writes);
      ops[i].kind = OpKind::kDecode;
      return true;
    });
    EXPECT_GT(mutants.count(), 10);
    OpMutants gathers(steps, expected, gathers_weights);
    gathers.expect_found("of exact shards on one rank", [](std::vector<Op>& ops, size_t i) {
      ops[i].reads[0].codec = ops[i].writes[0].codec = Codec::kPlain;
      return true;
    });
    // A proof that expects exact weights does not take decoded ones.
    program::Expectation exact = expected;
    exact.proof.weight_codec = Codec::kPlain;
    EXPECT_NE(first_finding(steps, exact), "");
  }
}

}  // namespace
}  // namespace herd::strategies
