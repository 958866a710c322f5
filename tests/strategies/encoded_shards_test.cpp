// Gradients of ZeRO-2 and 3 that are summed of encoded terms: the rewrite proves beside every other technique, moves
// the bytes that its header states, and mutants of it are found.
#include "herd/strategies/encoded_shards.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "herd/kernels/codec.h"
#include "herd/program/collective_message.h"
#include "herd/program/program_names.h"
#include "herd/program/program_text.h"
#include "tests/golden.h"
#include "tests/strategies/small_run.h"
#include "tests/support/expect_error.h"

namespace herd::strategies {
namespace {

using program::Codec;
using program::Op;
using program::OpKind;
using program::Program;
using program::Value;
using program::ValueKind;

spec::RunFile encoded_run(int data_ranks, int zero, const char* codec = "int8", int64_t micro_batches = 2) {
  spec::RunFile run = small_run(2, "none", micro_batches * data_ranks, true);
  run.strategy.zero = zero;
  run.strategy.keep_whole = 0;
  run.strategy.compression = codec;
  return run;
}

// Hosts of two ranks, with a second shard on each.
spec::RunFile run_on_hosts(int hosts, const char* codec = "int4") {
  spec::RunFile run = encoded_run(2 * hosts, 3, codec);
  run.strategy.secondary_shard = true;
  run.mesh.ranks_per_host = 2;
  return run;
}

bool exchanges(const Op& op) { return op.kind == OpKind::kAllToAll && op.writes.at(0).kind == ValueKind::kGradient; }

TEST(EncodedShards, Proves_WithEveryTechnique) {
  int index = 0;
  for (const int zero : {2, 3}) {
    for (const int pp : {1, 2}) {
      for (const int tp : {1, 2}) {
        for (const int fsdp : {1, 2}) {
          for (const char* offload : {"none", "states", "nvme"}) {
            for (const char* codec : {"int8", "int4"}) {
              if (++index % one_in(7, 13) != 0) continue;
              const int data_ranks = fsdp == 2 ? 4 : 2;
              spec::RunFile run = encoded_run(data_ranks, zero, codec, 1 + index % 3);
              run.mesh.pp = pp, run.mesh.tp = tp, run.mesh.fsdp = fsdp;
              run.strategy.offload = offload;
              run.strategy.recompute = index % 2 == 0 ? "full" : "none";
              run.strategy.sequence_parallel = tp == 2 && pp == 1;
              run.strategy.precision = index % 3 == 0 ? "fp32" : index % 3 == 1 ? "bf16" : "fp16";
              run.strategy.gather_codec = zero == 3 && index % 2 == 0 ? "int8" : "none";
              run.optimizer.clip = index % 5 == 0 && index % 3 != 2 ? 0 : 1;
              const auto steps = steps_of(run, data_ranks * pp * tp);
              EXPECT_EQ(program::parse_program(to_text(steps.back())), steps.back());
            }
          }
        }
      }
    }
  }
}

TEST(EncodedShards, IsReadByPeople) {
  testing_support::expect_golden("tests/strategies/golden/encoded_shards_zero2_dp2.txt",
                                 to_text(steps_of(encoded_run(2, 2), 2)[0]));
}

// Of s elements of a shard, each rank has s + 4 ceil(s/256) bytes in int8, and half of the s in int4.
TEST(EncodedShards, MovesTheBytesOfItsEquation_AsOftenAsPlainSums) {
  for (const char* codec : {"int8", "int4"}) {
    for (const int ranks : {2, 3}) {
      const Program coded = steps_of(encoded_run(ranks, 2, codec), ranks)[0],
                    plain = steps_of(encoded_run(ranks, 2, "none"), ranks)[0];
      int sums = 0, plain_sums = 0;
      for (const Op& op : plain.ops) plain_sums += op.kind == OpKind::kReduceScatter;
      for (const Op& op : coded.ops) {
        EXPECT_NE(op.kind, OpKind::kReduceScatter);
        if (!exchanges(op)) continue;
        ++sums;
        int64_t bytes = 0;
        for (const Value& value : op.writes) {
          const int64_t s = coded.values.at(program::gradient(value.index)).bytes / 4 / ranks;
          const int64_t blocks = (s + 255) / 256;
          bytes += ranks * (4 * blocks + (codec == std::string("int8") ? s : (s + 1) / 2));
        }
        EXPECT_EQ(message_bytes(coded, op), bytes) << codec;
      }
      EXPECT_EQ(sums, plain_sums);
      EXPECT_GT(sums, 0);
      for (const auto& [value, info] : coded.values) EXPECT_NE(value.kind, ValueKind::kResidual);
    }
  }
}

// Each sum has one exchange in each host and one between hosts, of the sums of a host.
TEST(EncodedShards, SendsSumsOfHostsBetweenHosts) {
  for (const int hosts : {2, 3}) {
    const int ranks = 2 * hosts;
    const Program step = steps_of(run_on_hosts(hosts), ranks)[0];
    int sums = 0, inside = 0, between = 0;
    const Program plain = steps_of(encoded_run(ranks, 3, "none"), ranks)[0];
    for (const Op& op : plain.ops) sums += op.kind == OpKind::kReduceScatter;
    for (const Op& op : step.ops) {
      if (!exchanges(op)) continue;
      const bool in_host = op.axis == step.mesh.find("local");
      EXPECT_TRUE(in_host || op.axis == step.mesh.find("hosts"));
      ++(in_host ? inside : between);
      int64_t shards = 0;
      for (const Value& value : op.writes) {
        const int64_t s = step.values.at(program::gradient(value.index)).bytes / 4 / ranks;
        shards += 4 * ((s + 255) / 256) + (s + 1) / 2;
      }
      EXPECT_EQ(message_bytes(step, op), (in_host ? ranks : hosts) * shards);
    }
    EXPECT_EQ(inside, sums);
    EXPECT_EQ(between, sums);
    EXPECT_GT(sums, 0);
  }
}

TEST(EncodedShards, RefusesWhatNeedsResiduals) {
  spec::RunFile run = encoded_run(2, 3);
  run.strategy.compression_levels = "quantiles";
  EXPECT_ERROR(steps_of(run, 2), Code::kBadConfig, "fix: strategy.compression_levels = \"multiples\"");
  run = encoded_run(2, 2);
  run.strategy.compression_warmup = 3;
  EXPECT_ERROR(steps_of(run, 2), Code::kBadConfig, "fix: strategy.compression_warmup = 0");
  run = encoded_run(2, 2);
  run.strategy.compression_exclude = "wte.*";
  EXPECT_ERROR(steps_of(run, 2), Code::kBadConfig, "fix: strategy.compression_exclude = \"none\"");
}

TEST(EncodedShards, MutantsAreFound) {
  for (const char* layout : {"dp=2", "fsdp=2", "hosts=2"}) {
    const int ranks = layout == std::string("dp=2") ? 2 : 4;
    spec::RunFile run = layout == std::string("hosts=2") ? run_on_hosts(2) : encoded_run(ranks, 3);
    if (layout == std::string("fsdp=2")) run.mesh.fsdp = 2;
    const auto steps = steps_of(run, ranks);
    const program::Expectation expected = expectation_of(run, ranks);
    ASSERT_EQ(first_finding(steps, expected), "");
    const int local = steps[0].mesh.find("local"), hosts = steps[0].mesh.find("hosts");
    int mutants = 0;
    const auto expect_found = [&](const char* what, const std::function<bool(std::vector<Op>&, size_t)>& change) {
      for (size_t i = 0; i < steps[0].ops.size(); ++i) {
        const Op& op = steps[0].ops[i];
        if (op.kind != OpKind::kEncode && op.kind != OpKind::kDecode && !exchanges(op)) continue;
        auto mutant = steps;
        bool changed = false;
        for (Program& step : mutant) changed = change(step.ops, i) || changed;
        if (!changed) continue;
        ++mutants;
        EXPECT_NE(first_finding(mutant, expected), "") << what << ": " << describe(steps[0], op);
      }
    };
    expect_found("left out", [](std::vector<Op>& ops, size_t i) {
      ops.erase(ops.begin() + static_cast<long>(i));
      return true;
    });
    expect_found("done twice", [](std::vector<Op>& ops, size_t i) {
      if (ops[i].kind != OpKind::kDecode || ops[i].reads.size() == ops[i].writes.size()) return false;
      const Op again = ops[i];
      ops.insert(ops.begin() + static_cast<long>(i), again);
      return true;
    });
    expect_found("what the shard holds is forgotten", [](std::vector<Op>& ops, size_t i) {
      if (ops[i].kind != OpKind::kDecode || ops[i].reads.size() == ops[i].writes.size()) return false;
      ops[i].reads.resize(ops[i].writes.size());
      return true;
    });
    expect_found("a sum in place of an exchange", [](std::vector<Op>& ops, size_t i) {
      if (!exchanges(ops[i])) return false;
      ops[i].kind = OpKind::kReduceScatter;
      return true;
    });
    if (local != kNoAxis) {
      expect_found("along the other axis", [&](std::vector<Op>& ops, size_t i) {
        if (!exchanges(ops[i])) return false;
        ops[i].axis = ops[i].axis == local ? hosts : local;
        return true;
      });
    }
    EXPECT_GT(mutants, 20);
    // A proof that expects residuals misses them.
    program::Expectation kept = expected;
    kept.proof.losses_kept = true;
    EXPECT_NE(first_finding(steps, kept), "");
  }
}

}  // namespace
}  // namespace herd::strategies
