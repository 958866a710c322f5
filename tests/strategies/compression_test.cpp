// Gradients in 16 bits between ranks as a rewrite: it proves with what it may be combined with, moves half the bytes,
// and mutants of it are found.
#include "herd/strategies/compression.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "herd/program/collective_message.h"
#include "herd/program/program_names.h"
#include "herd/program/program_text.h"
#include "tests/golden.h"
#include "tests/strategies/small_run.h"
#include "tests/support/expect_error.h"
#include "tests/support/sample.h"

namespace herd::strategies {
namespace {

using program::Codec;
using program::Op;
using program::OpKind;
using program::Program;
using program::Value;
using program::ValueKind;

spec::RunFile compressed_run(int dp, int zero, const char* compression = "bf16") {
  spec::RunFile run = small_run(2, "none", 2 * dp, true);
  run.strategy.zero = zero;
  run.strategy.compression = compression;
  run.strategy.bucket = 4096;
  return run;
}

TEST(Compression, Proves_WithEveryTechniqueThatSumsOnceAStep) {
  int index = 0;
  for (const int zero : {0, 1}) {
    for (const int pp : {1, 2}) {
      for (const int tp : {1, 2}) {
        for (const int fsdp : {1, 2}) {
          for (const char* recompute : {"none", "full"}) {
            if ((fsdp == 2 && zero == 0) || ++index % one_in(1, 7) != 0) continue;
            spec::RunFile run = compressed_run(fsdp == 2 ? 4 : 2, zero);
            run.mesh.pp = pp, run.mesh.tp = tp, run.mesh.fsdp = fsdp;
            run.strategy.recompute = recompute;
            run.strategy.sequence_parallel = tp == 2 && pp == 1;
            const auto steps = steps_of(run, (fsdp == 2 ? 4 : 2) * pp * tp);
            EXPECT_EQ(program::parse_program(to_text(steps.back())), steps.back());
          }
        }
      }
    }
  }
  spec::RunFile frozen = compressed_run(3, 1);
  frozen.model.frozen = "h.1.*";
  steps_of(frozen, 3);
  spec::RunFile host = compressed_run(2, 1);
  host.strategy.offload = "states";
  steps_of(host, 2);
}

TEST(Compression, IsReadByPeople) {
  testing_support::expect_golden("tests/strategies/golden/compression_dp2.txt",
                                 to_text(steps_of(compressed_run(2, 0), 2)[0]));
  spec::RunFile hybrid = compressed_run(4, 1);
  hybrid.mesh.fsdp = 2;
  testing_support::expect_golden("tests/strategies/golden/compression_zero1_fsdp2_dp2.txt",
                                 to_text(steps_of(hybrid, 4)[0]));
}

// Bytes of the messages in which gradients are summed.
int64_t summed_bytes(const Program& step) {
  int64_t bytes = 0;
  for (const Op& op : step.ops)
    bytes += is_collective(op) && op.writes[0].kind == ValueKind::kGradient ? message_bytes(step, op) : 0;
  return bytes;
}

TEST(Compression, MovesHalfTheBytes_AndHoldsTwoMoreOfAParameter) {
  for (const int zero : {0, 1}) {
    const Program plain = steps_of(compressed_run(2, zero, "none"), 2)[0],
                  coded = steps_of(compressed_run(2, zero), 2)[0];
    EXPECT_EQ(2 * summed_bytes(coded), summed_bytes(plain)) << zero;
    EXPECT_GT(summed_bytes(coded), 0);
    int64_t gradients = 0, encoded = 0;
    for (const auto& [value, info] : coded.values) {
      if (value.kind != ValueKind::kGradient || !value.placement.is_whole()) continue;
      (value.codec == Codec::kPlain ? gradients : encoded) += info.bytes;
    }
    EXPECT_EQ(2 * encoded, gradients) << zero;
  }
}

TEST(Compression, LeavesTheStepAsItIs_WhereNoRanksShareIt) {
  EXPECT_EQ(steps_of(compressed_run(1, 0), 1), steps_of(compressed_run(1, 0, "none"), 1));
}

TEST(Compression, RefusesWhatItDoesNotEncode) {
  for (const int zero : {2, 3}) {
    EXPECT_ERROR(steps_of(compressed_run(2, zero), 2), Code::kBadConfig,
                 "strategy.zero = " + std::to_string(zero) +
                     " adds to them after each micro-batch\n  fix: strategy.zero = 0 or 1");
  }
  spec::RunFile run = compressed_run(2, 0);
  run.strategy.precision = "bf16";
  EXPECT_ERROR(steps_of(run, 2), Code::kBadConfig, "these have 16 bits already\n  fix:");
}

TEST(Compression, MutantsAreFound) {
  for (const int fsdp : {1, 2}) {
    spec::RunFile run = compressed_run(2 * fsdp, 1);
    run.mesh.fsdp = fsdp;
    const auto steps = steps_of(run, 2 * fsdp);
    const program::Expectation expected = expectation_of(run, 2 * fsdp);
    ASSERT_EQ(first_finding(steps, expected), "");
    const auto expect_found = [&](const char* what, const std::function<bool(std::vector<Op>&, size_t)>& change) {
      int mutants = 0;
      for (size_t i = 0; i < steps[0].ops.size(); ++i) {
        auto mutant = steps;
        bool changed = false;
        for (Program& step : mutant) changed = change(step.ops, i) || changed;
        if (!changed) continue;
        ++mutants;
        EXPECT_NE(first_finding(mutant, expected), "") << what << ": " << describe(steps[0], steps[0].ops[i]);
      }
      EXPECT_GT(mutants, 0) << what;
    };
    const auto recodes = [](const Op& op) { return op.kind == OpKind::kEncode || op.kind == OpKind::kDecode; };
    expect_found("left out", [&](std::vector<Op>& ops, size_t i) {
      if (!recodes(ops[i])) return false;
      ops.erase(ops.begin() + static_cast<long>(i));
      return true;
    });
    expect_found("the other way", [&](std::vector<Op>& ops, size_t i) {
      if (!recodes(ops[i])) return false;
      ops[i].kind = ops[i].kind == OpKind::kEncode ? OpKind::kDecode : OpKind::kEncode;
      return true;
    });
    expect_found("of another group", [&](std::vector<Op>& ops, size_t i) {
      if (!recodes(ops[i]) || ops[i].reads.size() < 2) return false;
      std::swap(ops[i].reads[0], ops[i].reads[1]);
      return true;
    });
    expect_found("a step on what is encoded", [&](std::vector<Op>& ops, size_t i) {
      if (ops[i].kind != OpKind::kStep) return false;
      for (Value& value : ops[i].reads)
        if (value.kind == ValueKind::kGradient) value.codec = Codec::kBf16;
      return true;
    });
    expect_found("the sum of what is plain", [&](std::vector<Op>& ops, size_t i) {
      if (ops[i].kind != OpKind::kReduceScatter) return false;
      for (auto* side : {&ops[i].reads, &ops[i].writes}) {
        for (Value& value : *side) value.codec = Codec::kPlain;
      }
      return true;
    });
  }
}

}  // namespace
}  // namespace herd::strategies
