// Gradients in 16 bits between ranks as a rewrite: it proves with what it may be combined with, moves half the bytes,
// and mutants of it are found.
#include "herd/strategies/compression.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "herd/kernels/encoded_parts.h"
#include "herd/program/collective_message.h"
#include "herd/program/memory_bound.h"
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
            if ((fsdp == 2 && zero == 0) || ++index % one_in(1, 13) != 0) continue;
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

const std::vector<std::string> kWithResiduals = {"topk", "int8", "int4"};

TEST(Compression, WithResidualsProves_WithEveryTechniqueThatSumsWholeGradients) {
  int index = 0;
  for (const std::string& codec : kWithResiduals) {
    for (const int pp : {1, 2}) {
      for (const int tp : {1, 2}) {
        for (const char* recompute : {"none", "full"}) {
          if (++index % one_in(1, 11) != 0) continue;
          spec::RunFile run = compressed_run(2, 0, codec.c_str());
          run.mesh.pp = pp, run.mesh.tp = tp;
          run.strategy.recompute = recompute;
          run.strategy.sequence_parallel = tp == 2 && pp == 1;
          const auto steps = steps_of(run, 2 * pp * tp);
          EXPECT_EQ(program::parse_program(to_text(steps.back())), steps.back());
        }
      }
    }
    spec::RunFile frozen = compressed_run(3, 0, codec.c_str());
    frozen.model.frozen = "h.1.*";
    steps_of(frozen, 3);
    for (const char* offload : {"states", "nvme", "window"}) {
      for (const double clip : {0, 1}) {
        spec::RunFile host = compressed_run(2, 0, codec.c_str());
        host.strategy.offload = offload;
        host.optimizer.clip = clip;
        steps_of(host, 2);
      }
    }
    spec::RunFile first_is_exact = compressed_run(2, 0, codec.c_str());
    first_is_exact.strategy.compression_exclude = "wte.* wpe.*";
    steps_of(first_is_exact, 2);
  }
  testing_support::expect_golden("tests/strategies/golden/compression_topk_dp2.txt",
                                 to_text(steps_of(compressed_run(2, 0, "topk"), 2)[0]));
}

// Ranks that share tokens contribute to the same gradients as data ranks do, and encode them as well.
TEST(Compression, EncodesSumsOfContextRanks) {
  for (const char* codec : {"bf16", "topk", "int8", "int4"}) {
    for (const int dp : {1, 2}) {
      for (const int zero : {0, 1}) {
        const bool is_bf16 = codec == std::string("bf16");
        if (zero == 1 && !is_bf16) continue;
        spec::RunFile run = compressed_run(dp, zero, codec);
        run.model.heads = 12, run.model.width = 24, run.model.kv_heads = 6;
        run.mesh.cp = 2;
        const auto steps = steps_of(run, 2 * dp);
        int sums = 0;
        for (const Op& op : steps[0].ops) {
          if (!is_collective(op) || op.writes.empty() || op.writes[0].kind != ValueKind::kGradient) continue;
          sums += op.writes[0].codec != Codec::kPlain;
          EXPECT_EQ(steps[0].mesh.size(op.axis), 2 * dp) << describe(steps[0], op);
        }
        EXPECT_GT(sums, 0) << codec << " dp " << dp;
        for (const char* offload : {"window", "nvme"}) {
          run.strategy.offload = offload;
          steps_of(run, 2 * dp);
        }
      }
    }
  }
}

// Beside a device the host encodes, from copies of few gradients at a time. The device has no more than without the
// codec.
TEST(Compression, WithResidualsIsTheHostsBesideADevice) {
  for (const std::string& codec : kWithResiduals) {
    spec::RunFile run = compressed_run(2, 0, codec.c_str());
    run.model.layers = 8;
    const Program on_cpu = steps_of(run, 2)[0];
    run.device.kind = "cuda";
    const auto steps = steps_of(run, 2);
    run.strategy.compression = "none";
    const auto plain = steps_of(run, 2);
    using program::Tier;
    EXPECT_EQ(peak_bound(steps[0], Tier::kDevice, steps).bytes, peak_bound(plain[0], Tier::kDevice, plain).bytes);
    int64_t encoded = 0, encoded_on_cpu = 0, largest = 0;
    for (const auto& [value, info] : steps[0].values) {
      const bool is_kept = value.kind == ValueKind::kResidual || value.codec != Codec::kPlain;
      EXPECT_TRUE(!is_kept || value.tier == Tier::kHost) << value_name(steps[0].mesh, value);
      if (is_kept) encoded += info.bytes;
      if (value.kind == ValueKind::kGradient && value.codec == Codec::kPlain && value.tier == Tier::kHost)
        largest = std::max(largest, info.bytes);
    }
    for (const auto& [value, info] : on_cpu.values)
      encoded_on_cpu += value.kind == ValueKind::kResidual || value.codec != Codec::kPlain ? info.bytes : 0;
    EXPECT_EQ(encoded, encoded_on_cpu);
    const int64_t on_host = peak_bound(steps[0], Tier::kHost, steps).bytes,
                  before = peak_bound(plain[0], Tier::kHost, plain).bytes;
    EXPECT_GT(on_host - before - encoded, 0);
    EXPECT_LT(on_host - before - encoded, 4 * largest);
  }
}

TEST(Compression, WithResidualsProvesBesideADevice) {
  for (const std::string& codec : kWithResiduals) {
    spec::RunFile run = compressed_run(2, 0, codec.c_str());
    run.device.kind = "cuda";
    for (const char* offload : {"none", "states", "nvme", "window"}) {
      for (const double clip : {0, 1}) {
        run.strategy.offload = offload, run.optimizer.clip = clip;
        const auto steps = steps_of(run, 2);
        EXPECT_EQ(program::parse_program(to_text(steps.back())), steps.back());
        run.strategy.delayed_update = offload == std::string("states") || offload == std::string("nvme");
        steps_of(run, 2);
        run.strategy.delayed_update = false;
      }
    }
    run.strategy.offload = "none", run.model.tie_embeddings = true;
    for (const auto& [pp, tp] : {std::pair(2, 1), std::pair(1, 2), std::pair(2, 2)}) {
      run.mesh.pp = pp, run.mesh.tp = tp;
      steps_of(run, 2 * pp * tp);
    }
  }
  spec::RunFile run = compressed_run(2, 0, "topk");
  run.device.kind = "cuda";
  testing_support::expect_golden("tests/strategies/golden/compression_topk_device_dp2.txt",
                                 to_text(steps_of(run, 2)[0]));
}

// Of a group of m elements, x of them exact, among n ranks: the message, and what stays from step to step.
TEST(Compression, WithResidualsHasTheBytesOfItsEquation) {
  const int n = 2;
  for (const std::string& codec : kWithResiduals) {
    const spec::RunFile run = compressed_run(n, 0, codec.c_str());
    const spec::ModelTable model = spec::program_table(run, 1);
    const Program step = steps_of(run, n)[0];
    const auto form = *program::parse_codec(codec);
    int encoded = 0;
    for (int g = 0; g < static_cast<int>(model.groups.size()); ++g) {
      int64_t m = 0, x = 0;
      for (const spec::ParameterShape& parameter : model.groups[static_cast<size_t>(g)].parameters) {
        m += parameter.elements();
        if (parameter.sizes.size() == 1) x += parameter.elements();
      }
      const auto message = step.values.find(in_codec(program::gradient(g), form));
      const auto residual = step.values.find(program::residual(g));
      ASSERT_EQ(message == step.values.end(), m == x) << "a group of vectors alone is summed as it is";
      ASSERT_EQ(residual == step.values.end(), m == x);
      if (m == x) continue;
      ++encoded;
      const kernels::EncodedParts parts{{.kind = kernels::find_codec(codec)->kind}, m, n};
      const int64_t incoming = parts.incoming_bytes();
      EXPECT_EQ(message->second.bytes, (codec == "topk" ? incoming : parts.message_bytes()) + 4 * x);
      EXPECT_EQ(residual->second.bytes, 4 * parts.residual_elements() + (codec == "topk" ? 0 : incoming));
      EXPECT_TRUE(residual->second.persistent);
    }
    EXPECT_GT(encoded, 0);
  }
}

TEST(Compression, WithResidualsRefusesWhatItDoesNotEncode) {
  for (const std::string& codec : kWithResiduals) {
    for (const int zero : {1, 2, 3}) {
      if (zero > 1 && codec != "topk") continue;  // shards of these are summed without residuals
      EXPECT_ERROR(steps_of(compressed_run(2, zero, codec.c_str()), 2), Code::kBadConfig,
                   "strategy.zero = " + std::to_string(zero));
    }
    spec::RunFile run = compressed_run(2, 0, codec.c_str());
    run.strategy.precision = "bf16";
    EXPECT_ERROR(steps_of(run, 2), Code::kBadConfig, "these have 16 bits already\n  fix:");
    run.strategy.gradient_precision = "fp32";
    steps_of(run, 2);
    run.strategy.precision = "fp16";
    EXPECT_ERROR(steps_of(run, 2), Code::kBadConfig, "the loss scale of strategy.precision = \"fp16\" changes\n  fix:");
    spec::RunFile excluded = compressed_run(2, 0, codec.c_str());
    excluded.strategy.compression_exclude = "wte.wieght";
    EXPECT_ERROR(steps_of(excluded, 2), Code::kBadConfig, "strategy.compression_exclude: \"wte.wieght\" matches none");
  }
}

TEST(Compression, MutantsOfResidualsAreFound) {
  const spec::RunFile run = compressed_run(2, 0, "int8");
  const auto steps = steps_of(run, 2);
  const program::Expectation expected = expectation_of(run, 2);
  ASSERT_EQ(first_finding(steps, expected), "");
  const auto expect_found = [&](const char* what, const std::function<bool(Op&)>& change) {
    int mutants = 0;
    for (size_t i = 0; i < steps[0].ops.size(); ++i) {
      auto mutant = steps;
      if (!change(mutant[0].ops[i])) continue;
      change(mutant[1].ops[i]);
      ++mutants;
      EXPECT_NE(first_finding(mutant, expected), "") << what << ": " << describe(steps[0], steps[0].ops[i]);
    }
    EXPECT_GT(mutants, 0) << what;
  };
  const auto is_residual = [](const Value& value) { return value.kind == ValueKind::kResidual; };
  expect_found("what is lost is forgotten", [&](Op& op) {
    const auto kept = std::erase_if(op.reads, is_residual);
    std::erase_if(op.writes, is_residual);
    return kept > 0;
  });
  expect_found("what is lost of another group", [&](Op& op) {
    const auto begin = std::find_if(op.reads.begin(), op.reads.end(), is_residual);
    if (op.reads.end() - begin < 2) return false;
    std::swap(*begin, *(begin + 1));
    return true;
  });
  expect_found("the sum of what is plain", [&](Op& op) {
    if (op.kind != OpKind::kAllReduce || op.writes[0].codec == Codec::kPlain) return false;
    for (auto* side : {&op.reads, &op.writes}) {
      for (Value& value : *side) value.codec = Codec::kPlain;
    }
    return true;
  });
}

TEST(Compression, MutantsOfCopiesBesideADeviceAreFound) {
  spec::RunFile run = compressed_run(2, 0, "int8");
  run.device.kind = "cuda";
  const auto steps = steps_of(run, 2);
  const program::Expectation expected = expectation_of(run, 2);
  ASSERT_EQ(first_finding(steps, expected), "");
  std::map<OpKind, int> mutants;
  for (size_t i = 0; i + 1 < steps[0].ops.size(); ++i) {
    const Op& op = steps[0].ops[i];
    const bool recodes = op.kind == OpKind::kEncode || op.kind == OpKind::kDecode;
    if (!recodes && op.kind != OpKind::kEvict && op.kind != OpKind::kFetch) continue;
    ++mutants[op.kind];
    auto without = steps, late = steps;
    for (Program& step : without) step.ops.erase(step.ops.begin() + static_cast<long>(i));
    EXPECT_NE(first_finding(without, expected), "") << "left out: " << describe(steps[0], op);
    if (op.kind == OpKind::kFetch) continue;
    const auto reads_result = [&](const Op& other) {
      return other.kind != OpKind::kRelease && std::ranges::count(other.reads, op.writes[0]) > 0;
    };
    for (Program& step : late) {
      const auto reader = std::find_if(step.ops.begin() + static_cast<long>(i) + 1, step.ops.end(), reads_result);
      std::iter_swap(step.ops.begin() + static_cast<long>(i), reader);
    }
    EXPECT_NE(first_finding(late, expected), "") << "after its reader: " << describe(steps[0], op);
  }
  EXPECT_EQ(mutants.size(), 4);
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
