// Gradients that are pushed to parameter servers in a codec: the steps prove, have the bytes of their equations, and
// mutants of them are found.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "herd/kernels/codec.h"
#include "herd/program/collective_message.h"
#include "herd/program/program_names.h"
#include "herd/program/program_text.h"
#include "herd/strategies/server_sync.h"
#include "tests/golden.h"
#include "tests/strategies/op_mutants.h"
#include "tests/strategies/small_run.h"

namespace herd::strategies {
namespace {

using program::Codec;
using program::Op;
using program::OpKind;
using program::Program;
using program::Value;
using program::ValueKind;

spec::RunFile pushed_run(int dp, const std::string& codec, int64_t servers = 0, const std::string& sync = "server") {
  spec::RunFile run = small_run(2, "none", 2 * dp, true);
  run.strategy.sync = sync;
  run.strategy.servers = servers;
  run.strategy.compression = codec;
  run.optimizer.clip = 0;
  return run;
}

program::Expectation pushed_expectation(const spec::RunFile& run, int ranks) {
  const spec::Layout layout = trainable_layout(run, ranks);
  program::Expectation expected = expectation_of(run, ranks);
  expected.proof.clipped = false;
  expected.proof.shard_axis = layout.data_axis;
  expected.proof.num_servers = num_servers(run, layout);
  expected.proof.staleness = staleness(run, layout);
  return expected;
}

TEST(EncodedPushes, Prove_InEveryCodec) {
  for (const char* codec : {"bf16", "topk", "int8", "int4"}) {
    for (const char* sync : {"server", "server_async"}) {
      for (const int64_t servers : {0, 1}) {
        for (const int dp : {2, 3}) {
          const spec::RunFile run = pushed_run(dp, codec, servers, sync);
          const auto steps = steps_of(run, dp);
          EXPECT_EQ(first_finding(steps, pushed_expectation(run, dp)), "") << codec << " " << sync;
          EXPECT_EQ(program::parse_program(to_text(steps.back())), steps.back());
        }
      }
    }
    spec::RunFile frozen = pushed_run(2, codec);
    frozen.model.frozen = "h.1.*";
    steps_of(frozen, 2);
    spec::RunFile excluded = pushed_run(2, codec);
    excluded.strategy.compression_exclude = "wte.* wpe.*";
    steps_of(excluded, 2);
    EXPECT_EQ(steps_of(pushed_run(1, codec), 1), steps_of(pushed_run(1, "none"), 1)) << "one rank pushes nothing";
  }
  testing_support::expect_golden("tests/strategies/golden/server_int8_dp2.txt",
                                 to_text(steps_of(pushed_run(2, "int8"), 2)[0]));
}

// Of a group of m elements, x of them exact, a rank sends what it encodes, E(m) + 4x, but for the part of its own
// server. It gets m in fp32, and keeps what it loses of each element.
TEST(EncodedPushes, HaveTheBytesOfTheirEquation) {
  const int n = 3;
  for (const int k : {1, 2, 3}) {
    for (const std::string codec : {"bf16", "topk", "int8", "int4"}) {
      const spec::RunFile run = pushed_run(n, codec, k);
      const spec::ModelTable model = spec::program_table(run, 1);
      const kernels::CodecSettings settings{.kind = kernels::find_codec(codec)->kind};
      const auto steps = steps_of(run, n);
      for (int rank = 0; rank < n; ++rank) {
        const Program& step = steps[static_cast<size_t>(rank)];
        int pushes = 0;
        for (const Op& op : step.ops) {
          if (op.kind != OpKind::kPush) continue;
          ++pushes;
          const auto g = static_cast<size_t>(op.reads.at(0).index);
          int64_t m = 0, x = 0;
          for (const spec::ParameterShape& parameter : model.groups[g].parameters) {
            m += parameter.elements();
            if (codec != "bf16" && parameter.sizes.size() == 1) x += parameter.elements();
          }
          const bool plain = m == x;  // a group of vectors alone is pushed as it is
          EXPECT_EQ(op.reads[0].codec == Codec::kPlain, plain);
          const double bytes =
              plain ? 4.0 * static_cast<double>(m) : static_cast<double>(encoded_bytes(settings, m) + 4 * x);
          // Each server's part has a scale of its own for the block that it shares with another.
          EXPECT_NEAR(static_cast<double>(served_bytes(step, op)), bytes, 4 * k) << codec;
          const double own = rank < k ? bytes / k : 0;
          EXPECT_NEAR(static_cast<double>(served_bytes_sent(step, op)), bytes - own, 4 * k + 2) << codec << " " << rank;
          const auto residual = step.values.find(program::residual(op.reads[0].index));
          ASSERT_EQ(residual != step.values.end(), !plain && codec != "bf16");
          if (residual == step.values.end()) continue;
          EXPECT_EQ(residual->second.bytes, 4 * m);
        }
        EXPECT_GT(pushes, 0);
      }
    }
  }
}

TEST(EncodedPushes, MutantsAreFound) {
  for (const char* codec : {"int8", "bf16"}) {
    for (const char* sync : {"server", "server_async"}) {
      const spec::RunFile run = pushed_run(2, codec, 1, sync);
      const auto steps = steps_of(run, 2);
      const program::Expectation expected = pushed_expectation(run, 2);
      ASSERT_EQ(first_finding(steps, expected), "");
      const auto expect_found = [&](const char* what, const OpMutants::Change& change) {
        expect_mutants_found(steps, expected, std::string(what + std::string(" in ") + codec).c_str(), change);
      };
      const auto encodes = [](const std::vector<Op>& ops, size_t i) {
        return i < ops.size() && ops[i].kind == OpKind::kEncode;
      };
      const auto is_residual = [](const Value& value) { return value.kind == ValueKind::kResidual; };
      const auto at = [](std::vector<Op>& ops, size_t i) { return ops.begin() + static_cast<long>(i); };
      expect_found("an encode left out", [&](std::vector<Op>& ops, size_t i) {
        if (!encodes(ops, i)) return false;
        ops.erase(at(ops, i));
        return true;
      });
      expect_found("an encode after the push",
                   [&](std::vector<Op>& ops, size_t i) { return encodes(ops, i) && move_after_use(ops, i); });
      expect_found("an encode before the last backward", [&](std::vector<Op>& ops, size_t i) {
        if (!encodes(ops, i)) return false;
        const Value gradient = ops[i].reads[0];
        size_t j = i;
        while (j > 0 && std::ranges::find(ops[j - 1].writes, gradient) == ops[j - 1].writes.end()) --j;
        if (j == 0) return false;
        std::rotate(at(ops, j - 1), at(ops, i), at(ops, i + 1));
        return true;
      });
      expect_found("the push of another group", [&](std::vector<Op>& ops, size_t i) {
        if (i >= ops.size() || ops[i].kind != OpKind::kPush) return false;
        const auto other = std::ranges::find_if(
            ops, [&](const Op& op) { return op.kind == OpKind::kPush && op.reads[0].index != ops[i].reads[0].index; });
        std::swap(other->reads, ops[i].reads);
        return true;
      });
      if (codec == std::string("bf16")) continue;
      expect_found("an encode that keeps nothing of what it loses", [&](std::vector<Op>& ops, size_t i) {
        if (!encodes(ops, i)) return false;
        std::erase_if(ops[i].writes, is_residual);
        return std::erase_if(ops[i].reads, is_residual) > 0;
      });
      expect_found("the residual of another group", [&](std::vector<Op>& ops, size_t i) {
        if (!encodes(ops, i)) return false;
        const auto other = std::ranges::find_if(ops, [&](const Op& op) {
          return op.kind == OpKind::kEncode && op.reads[0].index != ops[i].reads[0].index;
        });
        std::swap(other->reads[1], ops[i].reads[1]);
        std::swap(other->writes[1], ops[i].writes[1]);
        return true;
      });
    }
  }
}

}  // namespace
}  // namespace herd::strategies
