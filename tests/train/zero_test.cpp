// ZeRO trains as one rank does, whatever it is combined with; holds the bytes its Program states, and sends them.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <numeric>
#include <set>
#include <tuple>

#include "herd/program/collective_message.h"
#include "herd/program/program_names.h"
#include "herd/spec/build_model_table.h"
#include "herd/spec/frozen.h"
#include "herd/spec/model_states.h"
#include "train_in_threads.h"

namespace herd::train {
namespace {

using program::OpKind;
using program::ValueKind;

bool full() { return std::getenv("HERD_FULL_TESTS") != nullptr; }

struct Case {
  int zero, ranks;
  int64_t micro_batches;
  std::string recompute;
  bool tied;
  std::string text() const {
    return "zero " + std::to_string(zero) + " ranks " + std::to_string(ranks) + " micro-batches " +
           std::to_string(micro_batches) + " recompute " + recompute + (tied ? " tied" : "");
  }
};

spec::RunFile run_of(const Case& c) {
  spec::RunFile run = tiny_run();
  run.model.tie_embeddings = c.tied;
  run.strategy.zero = c.zero;
  run.strategy.recompute = c.recompute;
  run.train.micro_batch = run.train.batch / c.ranks / c.micro_batches;
  return run;
}

double worst_difference(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return INFINITY;
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) worst = std::max(worst, std::abs(a[i] - b[i]) / std::abs(b[i]));
  return worst;
}

TEST(HybridShards, TrainAsOneRankDoes_InSixteenBits) {
  struct Kind {
    const char *precision, *gradients;
    int zero;
    double eps;
  };
  for (const Kind& kind : {Kind{"bf16", "fp32", 3, 0x1p-8}, Kind{"bf16", "same", 1, 0x1p-8},
                           Kind{"fp16", "same", 3, 0x1p-11}, Kind{"fp16", "fp32", 2, 0x1p-11}}) {
    spec::RunFile run = run_of({kind.zero, 4, 3, "none", true});
    run.strategy.precision = kind.precision;
    run.strategy.gradient_precision = kind.gradients;
    spec::RunFile plain = run;
    plain.strategy.zero = 0;
    plain.train.micro_batch = plain.train.batch;
    run.mesh.fsdp = 2;
    const Trained one = train_in_threads(plain, 1, steps_to_compare()),
                  many = train_in_threads(run, 4, steps_to_compare());
    EXPECT_LT(worst_difference(many.losses, one.losses), 4 * kind.eps) << kind.precision << kind.zero;
    EXPECT_NEAR(many.validation, one.validation, 4 * kind.eps * one.validation) << kind.precision << kind.zero;
  }
}

TEST(Zero3, TrainsAsOneRankDoes_HoweverManyGroupsItKeepsWhole) {
  for (const int64_t keep_whole : {1, 2, 4, 9}) {
    const bool tied = keep_whole != 2, hybrid = keep_whole == 4;
    spec::RunFile run = run_of({3, hybrid ? 4 : 3, keep_whole == 1 ? 1 : 3, keep_whole == 9 ? "none" : "sqrt", tied});
    spec::RunFile plain = run;
    run.strategy.keep_whole = keep_whole;
    if (hybrid) run.mesh.fsdp = 2;
    plain.strategy = {};
    plain.train.micro_batch = plain.train.batch;
    const Trained one = train_in_threads(plain, 1, steps_to_compare()),
                  many = train_in_threads(run, hybrid ? 4 : 3, steps_to_compare());
    EXPECT_LT(worst_difference(many.losses, one.losses), 1e-6) << keep_whole;
    EXPECT_NEAR(many.validation, one.validation, 1e-6 * one.validation) << keep_whole;
  }
}

// Of three to five groups, so that some of four ranks may own nothing.
TEST(LayerOwners, TrainAsOneRankDoes) {
  struct Kind {
    Case layout;
    std::string precision = "fp32";
    int64_t fsdp = 1, tp = 1, pp = 1, layers = 3;
    std::string frozen = "none";
    double clip = 1;
  };
  for (const Kind& kind :
       {Kind{{1, 2, 1, "none", true}}, Kind{{2, 3, 2, "full", false}}, Kind{{3, 4, 3, "sqrt", true}},
        Kind{{3, 4, 1, "none", true}, "fp32", 1, 1, 1, 1}, Kind{{1, 4, 1, "none", true}, "fp32", 1, 1, 1, 1, "none", 0},
        Kind{{2, 3, 2, "none", true}, "bf16"}, Kind{{3, 3, 1, "none", false}, "fp16"},
        Kind{{3, 4, 1, "none", true}, "fp32", 2}, Kind{{2, 4, 2, "none", true}, "fp32", 1, 1, 2},
        Kind{{1, 4, 1, "none", true}, "fp32", 1, 2}, Kind{{3, 2, 2, "none", false}, "fp32", 1, 1, 1, 3, "h.1.* *.bias"},
        Kind{{2, 2, 1, "none", false}, "fp32", 1, 1, 1, 3, "none", 0}}) {
    spec::RunFile run = run_of(kind.layout);
    run.model.layers = kind.layers, run.model.frozen = kind.frozen;
    run.strategy.precision = kind.precision;
    run.optimizer.clip = kind.clip;
    if (kind.clip == 0) run.health.check_finite = false;
    spec::RunFile plain = run;
    plain.strategy.zero = 0;
    plain.train.micro_batch = plain.train.batch;
    run.strategy.shard = "layers";
    run.mesh.fsdp = kind.fsdp, run.mesh.tp = kind.tp, run.mesh.pp = kind.pp;
    const int ranks = kind.layout.ranks;
    const Trained one = train_in_threads(plain, 1, steps_to_compare()),
                  many = train_in_threads(run, ranks, steps_to_compare());
    const double within = kind.precision == "fp32" ? 1e-6 : 4 * (kind.precision == "bf16" ? 0x1p-8 : 0x1p-11);
    EXPECT_LT(worst_difference(many.losses, one.losses), within) << kind.layout.text() << " " << kind.precision;
    EXPECT_NEAR(many.validation, one.validation, within * one.validation) << kind.layout.text();
  }
}

// On one rank, what is trained takes the first step that it takes beside the others, and what is frozen none.
TEST(Frozen, LeavesTheGradientsOfWhatIsTrainedAsTheyAre) {
  spec::RunFile run = tiny_run();
  run.optimizer.clip = 0;
  run.train.micro_batch = 4;
  const Trained all = train_in_threads(run, 1, 1);
  for (const std::string frozen : {"wte.weight *.bias", "wpe.weight h.0.*", "h.*", "w*.weight h.* ln_f.bias"}) {
    run.model.frozen = frozen;
    run.model.tie_embeddings = true;
    const bool last_only = frozen.starts_with("w*");
    if (last_only) run.model.tie_embeddings = false;
    spec::RunFile plain = run;
    plain.model.frozen = "none";
    const Trained whole = last_only ? train_in_threads(plain, 1, 1) : all, some = train_in_threads(run, 1, 1);
    spec::RunFile untouched = run;
    untouched.optimizer.lr = 0;
    EXPECT_EQ(some.losses, whole.losses);
    const Trained before = train_in_threads(untouched, 1, 1);
    for (const auto& [name, weights] : some.weights) {
      const bool is_frozen = spec::is_frozen(frozen, name);
      EXPECT_TRUE(weights.equal((is_frozen ? before : whole).weights.at(name))) << name << " of " << frozen;
      EXPECT_EQ(weights.equal(before.weights.at(name)), is_frozen) << name << " of " << frozen;
    }
  }
}

TEST(Frozen, TrainsAsOneRankDoes) {
  for (const std::string precision : {"fp32", "bf16"}) {
    for (const std::string frozen : {"wte.weight *.bias", "wpe.weight h.0.* h.1.*"}) {
      const bool tied = frozen.starts_with("wte");
      spec::RunFile plain = run_of({0, 1, 1, "none", tied});
      plain.model.frozen = tied ? frozen : frozen + " wte.weight";
      plain.strategy.precision = precision;
      const Trained one = train_in_threads(plain, 1, steps_to_compare());
      for (const int zero : {0, 1, 2, 3}) {
        if (!full() && (zero % 2 == 0) != tied) continue;
        spec::RunFile run = run_of({zero, 3, zero % 2 == 0 ? 3 : 1, zero > 1 ? "sqrt" : "none", tied});
        run.model.frozen = plain.model.frozen;
        run.strategy.precision = precision;
        const Trained many = train_in_threads(run, 3, steps_to_compare());
        const double rounding = precision == "fp32" ? 1e-6 : 4 * 0x1p-8;
        EXPECT_LT(worst_difference(many.losses, one.losses), rounding) << precision << " " << frozen << " " << zero;
        EXPECT_NEAR(many.validation, one.validation, rounding * one.validation) << precision << " " << zero;
      }
    }
  }
}

// The gradient of one step over 48 micro-batches, as SGD with rate 1 subtracts it, beside that of the run in fp32. Each
// micro-batch has the rounding of its own activations, which evens out; a 16-bit sum rounds all of it 47 times more.
TEST(MixedPrecision, AddsMicroBatchesInFp32_WhereGradientsAre) {
  spec::RunFile run = tiny_run();
  run.train.batch = 48;
  run.train.micro_batch = 1;
  run.optimizer.kind = "sgd";
  run.optimizer.momentum = 0;
  run.optimizer.weight_decay = 0;
  run.optimizer.clip = 0;
  run.optimizer.warmup_steps = 0;
  const auto gradient = [&](const std::string& precision, const std::string& gradients) {
    run.strategy.precision = precision;
    run.strategy.gradient_precision = gradients;
    std::vector<at::Tensor> parts;
    run.optimizer.lr = 0;
    const auto before = train_in_threads(run, 1, 1).weights;
    run.optimizer.lr = 1;
    for (const auto& [name, after] : train_in_threads(run, 1, 1).weights)
      parts.push_back((before.at(name) - after).flatten());
    return at::cat(parts);
  };
  const at::Tensor exact = gradient("fp32", "same");
  const auto error = [&](const std::string& gradients) {
    return ((gradient("bf16", gradients) - exact).norm() / exact.norm()).item<double>();
  };
  const double same = error("same"), fp32 = error("fp32");
  EXPECT_LT(fp32, 0x1p-7);
  RecordProperty("same over fp32", std::to_string(same / fp32));
  EXPECT_GT(same, 1.5 * fp32);
}

// Of any ranks it trains as one: random_parity_test.cpp, where the 4 eps come from.
TEST(MixedPrecision, TrainsAsFp32Does_WithinItsRounding) {
  for (const bool tied : {false, true}) {
    spec::RunFile run = run_of({0, 1, 1, "none", tied});
    const Trained exact = train_in_threads(run, 1, 20);
    EXPECT_LT(exact.losses.back(), exact.losses.front());
    for (const auto& [precision, eps] : {std::pair("bf16", 0x1p-8), std::pair("fp16", 0x1p-11)}) {
      run.strategy.precision = precision;
      EXPECT_LT(worst_difference(train_in_threads(run, 1, 20).losses, exact.losses), 4 * eps) << precision;
    }
  }
}

// A momentum of 8 bits moves a weight by a share of 2^-9 more or less than an exact one, to either side: what training
// gains differs by less than twice that.
TEST(MixedPrecision, AMomentumOfSixteenBitsTrainsAsAnExactOne_OnAnyRanks) {
  constexpr int kSteps = 20;
  for (const std::string precision : {"fp32", "bf16"}) {
    spec::RunFile plain = run_of({0, 1, 1, "none", true});
    plain.strategy.precision = precision;
    const Trained exact = train_in_threads(plain, 1, kSteps);
    plain.optimizer.momentum_precision = "bf16";
    const Trained one = train_in_threads(plain, 1, kSteps);
    EXPECT_NE(one.losses, exact.losses);
    const double gained = exact.losses.front() / exact.losses.back() - 1;
    const double rounding = 0x1p-8 * gained + (precision == "bf16" ? 4 * 0x1p-8 : 1e-6);
    EXPECT_LT(worst_difference(one.losses, exact.losses), rounding) << precision;
    for (const int zero : {0, 1, 3}) {
      spec::RunFile run = run_of({zero, 3, 1, "none", true});
      run.strategy.precision = precision;
      run.optimizer.momentum_precision = "bf16";
      EXPECT_LT(worst_difference(train_in_threads(run, 3, kSteps).losses, one.losses), rounding) << precision << zero;
    }
  }
}

TEST(MixedPrecision, AnOverflowSkipsTheStepOnAllRanks_AndHalvesTheScale) {
  for (const int zero : {0, 1, 3}) {
    spec::RunFile run = run_of({zero, 3, 1, "none", true});
    run.strategy.precision = "fp16";
    run.model.dropout = 0;
    const Trained calm = train_in_threads(run, 3, 4);
    EXPECT_EQ(calm.skipped, (std::vector<int64_t>{0, 0, 0}));
    const Trained wild = train_in_threads(run, 3, 12, optim::LossScale(0x1p23));
    EXPECT_GT(wild.skipped[0], 0);
    EXPECT_LT(wild.skipped[0], 12);
    EXPECT_EQ(wild.skipped, std::vector<int64_t>(3, wild.skipped[0]));
    EXPECT_LT(wild.losses.back(), wild.losses.front());
    for (const double loss : wild.losses) EXPECT_TRUE(std::isfinite(loss));
  }
}

// Bytes of what stays of a kind, or of the buffers of its pool.
int64_t stated(const program::Program& step, ValueKind kind, bool pooled = false) {
  std::map<int, int64_t> slots;
  int64_t bytes = 0;
  for (const auto& [value, info] : step.values) {
    if (value.kind != kind || info.pooled != pooled) continue;
    // What is encoded has any number of bytes, and the next begins at a cache line.
    const int64_t held = value.codec == program::Codec::kPlain ? info.bytes : (info.bytes + 63) / 64 * 64;
    if (info.slot >= 0)
      slots[info.slot] = std::max(slots[info.slot], held);
    else if (info.persistent)
      bytes += held;
  }
  for (const auto& [slot, size] : slots) bytes += size;
  return bytes;
}

TEST(MixedPrecision, BeginsWithTheWeightsOfARunInFp32) {
  spec::RunFile run = run_of({0, 1, 1, "none", true});
  run.optimizer.lr = 0;
  const auto exact = train_in_threads(run, 1, 1).weights;
  for (const char* precision : {"bf16", "fp16"}) {
    run.strategy.precision = precision;
    for (const auto& [name, weights] : train_in_threads(run, 1, 1).weights)
      EXPECT_TRUE(weights.equal(exact.at(name))) << name << " " << precision;
  }
}

TEST(MixedPrecision, KeepsTheBytesThatTheEquationsState_TwelveAParameterAtLeast) {
  struct Kind {
    const char *precision, *momentum;
    spec::StateBytes bytes;
  };
  for (const Kind& kind : {Kind{"bf16", "bf16", spec::kBf16Momentum}, Kind{"bf16", "fp32", spec::kBf16Adam},
                           Kind{"fp16", "fp32", spec::kFp16Master}}) {
    for (const int zero : {0, 1}) {
      const int ranks = 1 + zero;
      spec::RunFile run = run_of({zero, ranks, 1, "none", false});
      run.model.width = run.model.vocab = run.model.context = 64;  // nothing is padded
      run.model.head_width = 32;
      run.model.ffn = 256;
      run.strategy.precision = kind.precision;
      run.optimizer.momentum_precision = kind.momentum;
      const auto held = train_in_threads(run, ranks, 1).held;
      const int64_t bytes =
          held.at(MemoryLabel::kWeights) + held.at(MemoryLabel::kGradients) + held.at(MemoryLabel::kStates);
      const auto psi = static_cast<double>(spec::model_table(run, 1).parameters());
      EXPECT_EQ(static_cast<double>(bytes), ranks * spec::zero_state_bytes(psi, ranks, zero, kind.bytes))
          << kind.precision << " " << kind.momentum << " " << zero;
    }
  }
}

TEST(Zero, HoldsAndSendsWhatItsProgramStates) {
  for (const int zero : {0, 1, 2, 3}) {
    for (const int ranks : {2, 4}) {
      for (const int64_t micro_batches : {1, 3}) {
        Case c{zero, ranks, micro_batches, "none", false};
        spec::RunFile run = run_of(c);
        run.model.width = 64;  // all groups are of whole lines, so that nothing is padded where nothing is cut
        run.model.vocab = 64;
        run.model.head_width = 32;
        run.model.ffn = 256;
        if (ranks == 4) run.model.frozen = "h.0.* h.1.mlp.*";
        if (micro_batches == 3) run.optimizer.momentum_precision = "bf16", run.strategy.keep_whole = 2;
        if (ranks + micro_batches == 5) run.strategy.precision = "bf16", run.strategy.gradient_precision = "fp32";
        const Trained trained = train_in_threads(run, ranks, 2);
        EXPECT_EQ(trained.held.at(MemoryLabel::kWeights), ranks * stated(trained.step, ValueKind::kWeight)) << c.text();
        EXPECT_EQ(trained.held.at(MemoryLabel::kGradients), ranks * stated(trained.step, ValueKind::kGradient));
        EXPECT_EQ(trained.held.at(MemoryLabel::kStates), ranks * stated(trained.step, ValueKind::kState));
        EXPECT_EQ(trained.held.at(MemoryLabel::kWorkspace), ranks * (stated(trained.step, ValueKind::kWeight, true) +
                                                                     stated(trained.step, ValueKind::kGradient, true)));
        int64_t sent = 0, most = 0;
        for (const program::Op& op : trained.step.ops) {
          if (!is_collective(op)) continue;
          const int64_t message = message_bytes(trained.step, op), whole = message * (ranks - 1) / ranks;
          const bool everywhere = op.kind == OpKind::kAllReduce;
          sent += everywhere ? 2 * whole : whole;
          // Of a short bucket everybody may read all that the others have, to wait only once.
          most += everywhere ? (ranks - 1) * message : whole;
        }
        int64_t measured = 0;
        for (const int64_t bytes : trained.sent) measured += bytes;
        // Norms are a few bytes, which any algorithm may carry.
        EXPECT_GE(measured, ranks * sent - 200 * ranks * ranks) << c.text();
        EXPECT_LE(measured, ranks * most + 200 * ranks * ranks) << c.text();
      }
    }
  }
}

// Rank by rank, for each owns other groups.
TEST(LayerOwners, HoldWhatTheirProgramsState_AndSendAsManyBytesTogetherAsSlices) {
  for (const int zero : {1, 2, 3}) {
    for (const int ranks : {2, 3}) {
      spec::RunFile run = run_of({zero, ranks, 2, "none", true});
      run.model.width = run.model.vocab = 64, run.model.head_width = 32, run.model.ffn = 256;
      run.strategy.keep_whole = 0;
      const Trained slices = train_in_threads(run, ranks, 2);
      run.strategy.shard = "layers";
      const Trained layers = train_in_threads(run, ranks, 2);
      const spec::Layout layout = strategies::trainable_layout(run, ranks);
      int64_t weights = 0, gradients = 0, states = 0, pools = 0;
      for (const program::Program& step :
           strategies::compile_and_verify(run, spec::program_table(run, layout.micro_batch), layout)) {
        weights += stated(step, ValueKind::kWeight), gradients += stated(step, ValueKind::kGradient);
        states += stated(step, ValueKind::kState);
        pools += stated(step, ValueKind::kWeight, true) + stated(step, ValueKind::kGradient, true);
      }
      EXPECT_EQ(layers.held.at(MemoryLabel::kWeights), weights) << zero << " " << ranks;
      EXPECT_EQ(layers.held.at(MemoryLabel::kGradients), gradients) << zero << " " << ranks;
      EXPECT_EQ(layers.held.at(MemoryLabel::kStates), states) << zero << " " << ranks;
      EXPECT_EQ(layers.held.at(MemoryLabel::kWorkspace), pools) << zero << " " << ranks;
      const auto sent = [](const Trained& trained) {
        return static_cast<double>(std::accumulate(trained.sent.begin(), trained.sent.end(), int64_t{0}));
      };
      // In memory that all map, ranks sum a part each and write it to the owner: of a reduce n-th more than is read.
      const double all = zero == 1 ? sent(slices) * (1 + 0.5 / ranks) : sent(slices);
      EXPECT_NEAR(sent(layers), all, 0.02 * all) << zero << " " << ranks;
    }
  }
}

// Bytes that all ranks send for the collectives of a step that pass `counts`.
template <class Counts>
int64_t stated_sent(const program::Program& step, int ranks, const Counts& counts) {
  int64_t sent = 0;
  for (const program::Op& op : step.ops) {
    if (is_collective(op) && counts(op)) sent += message_bytes(step, op) * (ranks - 1);
  }
  return sent;
}

TEST(GatherCodec, HoldsAndSendsWhatItsProgramStates) {
  for (const int ranks : {2, 3}) {
    for (const char* precision : {"fp32", "bf16"}) {
      spec::RunFile run = run_of({3, ranks, ranks == 2 ? 3 : 1, "none", ranks == 2});
      run.strategy.precision = precision;
      run.strategy.keep_whole = 0;
      const Trained exact = train_in_threads(run, ranks, 2);
      run.strategy.gather_codec = "int8";
      const Trained coded = train_in_threads(run, ranks, 2);
      const auto weights = [](const program::Op& op) { return op.writes[0].kind == ValueKind::kWeight; };
      const int64_t fewer = stated_sent(exact.step, ranks, weights) - stated_sent(coded.step, ranks, weights);
      const auto sent = [](const Trained& trained) {
        return std::accumulate(trained.sent.begin(), trained.sent.end(), int64_t{0});
      };
      EXPECT_GT(fewer, 0);
      EXPECT_EQ(sent(exact) - sent(coded), fewer) << ranks << " ranks in " << precision;
      EXPECT_EQ(coded.held.at(MemoryLabel::kWeights), ranks * stated(coded.step, ValueKind::kWeight));
      EXPECT_EQ(coded.held.at(MemoryLabel::kWorkspace), ranks * (stated(coded.step, ValueKind::kWeight, true) +
                                                                 stated(coded.step, ValueKind::kGradient, true)));
    }
  }
}

// Each micro-batch's gradient is encoded once on each rank, and summed exactly: losses follow those of exact gradients.
TEST(EncodedShards, TrainsNearlyAsExactGradientsDo_AndSendsWhatItsProgramStates) {
  struct Kind {
    int zero, ranks;
    int64_t fsdp;
    const char *codec, *precision;
  };
  int index = 0;
  for (const Kind& kind : {Kind{3, 2, 1, "int8", "bf16"}, Kind{2, 3, 1, "int4", "fp32"}, Kind{3, 4, 2, "int8", "fp32"},
                           Kind{2, 2, 1, "int8", "fp16"}, Kind{3, 2, 1, "int4", "bf16"}}) {
    if (!full() && ++index > 2) break;
    spec::RunFile run = run_of({kind.zero, kind.ranks, 2, "none", true});
    run.model.width = 32, run.model.head_width = 16, run.model.ffn = 96;
    run.mesh.fsdp = kind.fsdp;
    run.strategy.precision = kind.precision;
    run.strategy.keep_whole = 0;
    const Trained exact = train_in_threads(run, kind.ranks, 20);
    run.strategy.compression = kind.codec;
    const Trained coded = train_in_threads(run, kind.ranks, 20), again = train_in_threads(run, kind.ranks, 20);
    EXPECT_EQ(again.losses, coded.losses) << "the same bits in every run";
    EXPECT_NE(coded.losses, exact.losses);
    const double within = kind.codec == std::string("int8") ? 0.01 : 0.03;
    EXPECT_LT(worst_difference(coded.losses, exact.losses), within) << kind.precision << kind.codec;
    EXPECT_NEAR(coded.validation, exact.validation, within * exact.validation);
    if (kind.fsdp > 1) continue;
    const auto gradients = [](const program::Op& op) { return op.writes[0].kind == ValueKind::kGradient; };
    const int64_t fewer =
        stated_sent(exact.step, kind.ranks, gradients) - stated_sent(coded.step, kind.ranks, gradients);
    const auto sent = [](const Trained& trained) {
      return std::accumulate(trained.sent.begin(), trained.sent.end(), int64_t{0});
    };
    EXPECT_GT(fewer, 0);
    EXPECT_EQ(sent(exact) - sent(coded), fewer) << kind.precision << kind.codec;
    EXPECT_EQ(coded.held.at(MemoryLabel::kWorkspace), kind.ranks * (stated(coded.step, ValueKind::kWeight, true) +
                                                                    stated(coded.step, ValueKind::kGradient, true)));
  }
}

// Two hosts of two ranks: each host sums its terms first.
TEST(EncodedShards, TrainsNearlyAsExactGradientsDo_OnHosts) {
  int index = 0;
  for (const char* codec : {"int4", "int8"}) {
    for (const char* precision : {"bf16", "fp32"}) {
      if (!full() && ++index > 1) break;
      spec::RunFile run = run_of({3, 4, 2, "none", true});
      run.model.width = 32, run.model.head_width = 16, run.model.ffn = 96;
      run.mesh.ranks_per_host = 2;
      run.strategy.precision = precision;
      run.strategy.keep_whole = 0;
      run.strategy.secondary_shard = true;
      const Trained exact = train_in_threads(run, 4, 20);
      run.strategy.compression = codec;
      const Trained coded = train_in_threads(run, 4, 20);
      const double within = codec == std::string("int8") ? 0.01 : 0.03;
      EXPECT_NE(coded.losses, exact.losses);
      EXPECT_LT(worst_difference(coded.losses, exact.losses), within) << precision << codec;
      EXPECT_NEAR(coded.validation, exact.validation, within * exact.validation);
      EXPECT_EQ(coded.held.at(MemoryLabel::kWorkspace),
                4 * (stated(coded.step, ValueKind::kWeight, true) + stated(coded.step, ValueKind::kGradient, true)));
    }
  }
}

// Two hosts of two ranks, or three. What is gathered between hosts is gathered once a step, whatever passes there are.
TEST(SecondaryShard, GivesTheSameBits_AndLeavesTheHostOnceAStep) {
  int index = 0;
  for (const auto& [ranks, fsdp, tp] : {std::tuple(4, 1, 1), {6, 1, 1}, {8, 4, 1}, {8, 1, 2}}) {
    for (const char* codec : {"none", "int8"}) {
      if (!full() && ++index % 3 != 1) continue;
      spec::RunFile run = run_of({3, 4, 2, index % 2 == 0 ? "full" : "none", true});
      run.mesh.fsdp = fsdp, run.mesh.tp = tp;
      run.mesh.ranks_per_host = 2 * tp;
      run.strategy.keep_whole = 0;
      run.strategy.gather_codec = codec;
      run.strategy.precision = index % 2 == 0 ? "bf16" : "fp32";
      const Trained flat = train_in_threads(run, ranks, 3);
      run.strategy.secondary_shard = true;
      const Trained hosts = train_in_threads(run, ranks, 3);
      EXPECT_EQ(hosts.losses, flat.losses) << ranks << codec;
      EXPECT_EQ(hosts.norms, flat.norms) << ranks << codec;
      EXPECT_EQ(hosts.validation, flat.validation) << ranks << codec;
      // Each group once in each of three steps; nothing else between hosts. Evaluation has groups of its own.
      std::set<int> groups;
      int64_t inside = 0;
      for (const program::Op& op : hosts.step.ops) {
        if (op.kind != OpKind::kAllGather || op.writes[0].kind != ValueKind::kWeight) continue;
        groups.insert(op.writes[0].index);
        inside += op.axis == hosts.step.mesh.find("local") ? 1 : 0;
      }
      EXPECT_EQ(hosts.gathers.at("hosts"), 3 * static_cast<int64_t>(groups.size())) << ranks << codec;
      EXPECT_EQ(hosts.gathers.size(), 2u) << "axes of gathers";
      const int64_t num_hosts = hosts.step.mesh.size(hosts.step.mesh.find("hosts"));
      EXPECT_EQ(hosts.gathers.at("local"), 3 * num_hosts * inside) << ranks << codec;
      EXPECT_EQ(hosts.held.at(MemoryLabel::kWeights), ranks * stated(hosts.step, ValueKind::kWeight)) << ranks << codec;
    }
  }
}

// Forward, recompute and backward decode the same bytes, so that it does not matter which of them there are.
TEST(GatherCodec, TrainsNearlyAsExactWeightsDo_AndTheSameWithRecompute) {
  struct Kind {
    int ranks;
    int64_t fsdp, pp;
    const char* precision;
  };
  int index = 0;
  for (const Kind& kind : {Kind{2, 1, 1, "fp32"}, Kind{4, 2, 1, "fp32"}, Kind{4, 1, 2, "bf16"}, Kind{3, 1, 1, "fp16"},
                           Kind{3, 1, 1, "bf16"}, Kind{4, 1, 2, "fp32"}}) {
    if (!full() && ++index > 2) break;
    spec::RunFile run = run_of({3, 2, 2, "none", false});
    run.model.width = 32, run.model.head_width = 16, run.model.ffn = 96;  // several blocks in a shard, the last in part
    run.mesh.fsdp = kind.fsdp, run.mesh.pp = kind.pp;
    run.strategy.precision = kind.precision;
    run.strategy.keep_whole = 0;
    spec::RunFile plain = run;
    plain.mesh = {}, plain.strategy = {};
    plain.strategy.precision = kind.precision;
    run.strategy.gather_codec = "int8";
    const Trained exact = train_in_threads(plain, 1, 20), coded = train_in_threads(run, kind.ranks, 20);
    EXPECT_NE(coded.losses, exact.losses);
    EXPECT_LT(worst_difference(coded.losses, exact.losses), 0.01) << kind.precision << kind.ranks;
    EXPECT_NEAR(coded.validation, exact.validation, 0.01 * exact.validation) << kind.precision << kind.ranks;
    run.strategy.recompute = "full";
    EXPECT_EQ(train_in_threads(run, kind.ranks, 20).losses, coded.losses) << kind.precision << kind.ranks;
  }
}

}  // namespace
}  // namespace herd::train
