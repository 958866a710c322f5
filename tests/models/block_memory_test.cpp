// Runs each block of drawn models alone, and compares the memory that its passes hold with what its table says.
#include <gtest/gtest.h>

#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <cstdio>
#include <cstdlib>
#include <random>

#include "herd/bridge/budget_allocator.h"
#include "herd/models/decoder.h"
#include "herd/nn/deferred_gradients.h"
#include "herd/nn/run_block.h"
#include "herd/spec/build_model_table.h"
#include "tests/support/sample.h"
#include "training_run_internal.h"

namespace herd::models {
namespace {

struct Held {
  int64_t peak = 0, left = 0;  // above what was held before
};

// Runs `work` and returns the bytes that it held at most, and those that it left.
template <class Work>
Held held_by(const Work& work) {
  const int64_t before = DeviceMemory::live_bytes();
  DeviceMemory::reset_peak();
  work();
  return {DeviceMemory::peak_bytes() - before, DeviceMemory::live_bytes() - before};
}

std::string describe(const spec::RunFile& run, int64_t B) {
  const auto& m = run.model;
  char text[400];
  std::snprintf(text, sizeof text,
                "%s D%ld H%ld K%ld d%ld F%ld T%ld V%ld B%ld drop%g tied%d norm %s | tp%ld seq%d keep%d %s %s %s",
                m.kind.c_str(), m.width, m.heads, m.kv_heads, m.head_width, m.ffn, m.context, m.vocab, B, m.dropout,
                m.tie_embeddings, m.norm.c_str(), run.mesh.tp, run.strategy.sequence_parallel,
                run.strategy.keep_gathered, run.strategy.recompute.c_str(), run.strategy.precision.c_str(),
                run.strategy.gradient_precision.c_str());
  return text;
}

spec::RunFile drawn(std::mt19937_64& random, bool is_moe, bool is_bert = false) {
  const auto in = [&](int64_t least, int64_t most) {
    return least + static_cast<int64_t>(random() % static_cast<uint64_t>(most - least + 1));
  };
  spec::RunFile run;
  auto& m = run.model;
  m.layers = 1;
  m.kind = is_moe ? "moe" : is_bert ? "bert" : in(0, 1) == 1 ? "gpt" : "llama";
  run.mesh.tp = in(0, 2) == 0 && !is_moe && !is_bert ? 2 : 1;
  m.heads = run.mesh.tp * in(1, 3);
  m.kv_heads = in(0, 1) == 0 ? m.heads : run.mesh.tp;
  m.head_width = 2 * in(4, 32);
  m.width = in(0, 1) == 1 ? m.heads * m.head_width : 8 * in(4, 40);
  m.ffn = run.mesh.tp * in(m.width / 2, 6 * m.width) / 1 / run.mesh.tp * run.mesh.tp;
  m.context = in(16, 96);
  m.vocab = in(50, 1200);
  m.tie_embeddings = in(0, 1) == 1;
  m.norm = m.is_rotary() || in(0, 1) == 1 ? "rmsnorm" : "layernorm";
  m.dropout = in(0, 1) == 1 ? 0.1 : 0;
  if (is_moe) {
    m.width = 8 * in(4, 40);
    m.experts = in(1, 6);
    m.top_k = in(1, m.experts);
    m.shared_experts = in(0, 2);
    m.expert_ffn = in(m.width / 4, 3 * m.width);
    m.balance_loss = in(0, 1) == 1 ? 0.01 : 0;
    m.router = in(0, 1) == 1 ? "softmax" : "sigmoid";
    m.shared_gate = m.shared_experts > 0 && m.vocab % 2 == 0;
  }
  m.qkv_bias = m.is_rotary() && m.vocab % 3 == 0;
  m.qk_norm = m.is_rotary() && m.context % 3 == 0;
  run.strategy.recompute = in(0, 1) == 1 ? "selective" : "none";
  const char* precisions[] = {"fp32", "fp32", "bf16", "fp16"};
  run.strategy.precision = precisions[in(0, 3)];
  run.strategy.gradient_precision = run.strategy.precision != "fp32" && in(0, 1) == 1 ? "fp32" : "same";
  run.strategy.sequence_parallel = run.mesh.tp > 1 && in(0, 1) == 1;
  run.strategy.keep_gathered = !run.strategy.sequence_parallel || in(0, 1) == 1;
  return run;
}

struct Line {
  std::string name;
  int64_t measured, predicted, base;  // base: bytes that were held before
  bool is_tight;                      // of a pass in which steps peak
};

std::vector<Line> lines_of(const spec::RunFile& run, int64_t B) {
  const spec::ModelTable table = spec::program_table(run, B);
  const TrainingRun training(make_model(run.model, table, RankPlace{}));
  const int64_t T = run.model.context, D = run.model.width, R = B * T;
  const bool split = run.mesh.tp > 1;
  nn::Context context{.training = true, .samples = {}, .tokens = T};
  for (int64_t i = 0; i < B; ++i) context.samples.push_back(i);
  const auto dtype = training.model().groups[0]->dtype();
  std::vector<Line> out;
  for (size_t b = 0; b < table.blocks.size(); ++b) {
    const spec::BlockShape& shape = table.blocks[b];
    if (shape.layer > 1 && b + 1 < table.blocks.size() && !split) continue;
    nn::Block& block = *training.model().blocks[b];
    context.layer = static_cast<int>(b);
    const bool shard = shape.split == spec::Split::kSequence;
    const int64_t rows = shard ? (R + run.mesh.tp - 1) / run.mesh.tp : R;
    const auto activation = [&] { return split ? at::ones({rows, D}, dtype) : at::ones({B, T, D}, dtype); };
    const size_t num_inputs = table.inputs_of(static_cast<int>(b)).size();
    const int64_t num_activations = run.model.has_router_losses() ? 1 : static_cast<int64_t>(num_inputs);
    const auto input = [&]() -> nn::Tuple {
      if (b == 0) return {at::zeros({B, T}, at::kLong)};
      nn::Tuple x;
      const bool has_losses = run.model.has_router_losses();
      for (size_t i = 0; i < (has_losses ? 1 : num_inputs); ++i) x.push_back(activation());
      if (has_losses && num_inputs > 1) x.push_back(at::ones({B, 2}));
      return x;
    };
    const auto add = [&](const char* what, int64_t measured, int64_t predicted, int64_t base) {
      const bool is_part =
          shape.name.find(".norm") != std::string::npos || shape.name.find(".add") != std::string::npos;
      const bool is_peak = std::string(what) != "forward" && std::string(what).find("second") == std::string::npos;
      out.push_back({shape.name + " " + what, measured, predicted, base,
                     is_peak && !is_part && shape.layer > 0 && shape.name != "norm_f" && shape.name != "positions"});
    };
    if (shape.is_loss()) {
      if (split) continue;
      nn::Tuple x = input();
      const at::Tensor targets = at::zeros({B, T}, at::kLong);
      auto& loss = training.model().loss_block();
      int64_t peak = 0;  // of a pass that writes gradients and of one that adds to them
      for (const auto& group : block.groups()) group->begin_gradient();
      for (int time = 0; time < 2; ++time)
        peak = std::max(peak, held_by([&] { loss.loss(x, targets, context, true); }).peak);
      add("loss", peak, shape.input_bytes + shape.forward.scratch_bytes, 0);
      nn::DeferredGradients later;
      const int64_t base = DeviceMemory::live_bytes() - shape.input_bytes;
      Held first = held_by([&] { loss.loss(x, targets, context, true, &later); });
      add("loss first half", first.peak, shape.input_bytes + shape.pending_bytes + shape.first_half_scratch_bytes, 0);
      x.clear();
      add("loss pending", DeviceMemory::live_bytes() - base, shape.pending_bytes, 0);
      Held second = held_by([&] { later.run(); });
      add("loss second half", second.peak, shape.second_half_scratch_bytes, 0);
      continue;
    }
    const bool drops_input = run.mesh.tp > 1 && run.strategy.sequence_parallel && !run.strategy.keep_gathered &&
                             shape.split == spec::Split::kCut && b > 0;
    for (const bool halves : {false, true}) {
      if (halves && shape.pending_bytes == 0) continue;
      for (int time = 0; time < 2; ++time) {
        const int64_t base = DeviceMemory::live_bytes();
        nn::Tuple x = input(), y, dx;
        nn::Graph graph;
        const Held forward = held_by([&] {
          graph = nn::run_forward(block, x, context);
          y = nn::take_outputs(graph);
        });
        const int64_t own_input = num_activations * rows * D * static_cast<int64_t>(at::elementSize(dtype));
        const int64_t kept_inputs = drops_input              ? 0
                                    : shape.graph_bytes == 0 ? 0
                                    : b == 0                 ? shape.input_bytes
                                                             : own_input;
        if (time == 1 && !halves) {
          add("forward", forward.peak,
              shape.output_bytes + shape.graph_bytes - kept_inputs + shape.forward.scratch_bytes, shape.graph_bytes);
          add("graph", forward.left - static_cast<int64_t>(y[0].nbytes()), shape.graph_bytes - kept_inputs, 0);
        }
        nn::Tuple dy;
        for (const at::Tensor& output : y) dy.push_back(at::ones_like(output));
        y.clear();
        if (!drops_input && !block.has_backward()) x.clear();
        nn::DeferredGradients later;
        const int64_t before = DeviceMemory::live_bytes();
        const Held backward = held_by([&] { dx = nn::run_backward(std::move(graph), dy, halves ? &later : nullptr); });
        const int64_t dx_bytes = b == 0 ? 0 : num_activations * rows * D * static_cast<int64_t>(at::elementSize(dtype));
        if (time == 1 && !halves)
          add("backward", backward.peak, dx_bytes + shape.backward.scratch_bytes, before - base);
        if (time == 1 && halves)
          add("first half", backward.peak, dx_bytes + shape.pending_bytes + shape.first_half_scratch_bytes,
              before - base);
        if (halves) {
          dx.clear();
          x.clear();
          dy.clear();
          if (time == 1) add("pending", DeviceMemory::live_bytes() - base, shape.pending_bytes, 0);
          const int64_t held = DeviceMemory::live_bytes() - base;
          const Held second = held_by([&] { later.run(); });
          if (time == 1) add("second half", second.peak, shape.second_half_scratch_bytes, held);
        }
      }
    }
  }
  return out;
}

// Before any test of this program: the library reads it once. docs/design/traps.md
[[maybe_unused]] const bool kHasNarrowVectors = setenv("ONEDNN_MAX_CPU_ISA", "AVX2", 1) == 0;

constexpr int64_t kSmallTensors = 256;  // bytes that a pass may hold beside what is counted

// Returns how many passes are checked to hold hardly less.
int64_t expect_as_predicted(const std::vector<Line>& lines, const std::string& where) {
  int64_t checked = 0;
  for (const Line& line : lines) {
    EXPECT_LE(line.measured, line.predicted + kSmallTensors) << line.name << where;
    if (!line.is_tight) continue;
    const int64_t all = line.base + line.predicted;
    EXPECT_GE(line.base + line.measured, all - all * 3 / 100 - 4096) << line.name << where;
    ++checked;
  }
  return checked;
}

// Shapes with a narrow and a wide feed-forward part, heads of any width, fewer key heads, dropout and 16 bits. Passes
// of parts that no step peaks in may hold less than they say.
TEST(BlockMemory, IsAtMostWhatTheTableSays_AndHardlyLessWhereStepsPeak) {
  DeviceMemory::install();
  int64_t checked = 0;
  for (uint64_t seed = 1; seed <= 300; seed += static_cast<uint64_t>(one_in(5, 15))) {
    std::mt19937_64 random(seed);
    const spec::RunFile run = drawn(random, false);
    const int64_t B = 1 + static_cast<int64_t>(random() % 4);
    checked += expect_as_predicted(lines_of(run, B), " of seed " + std::to_string(seed) + ": " + describe(run, B));
  }
  EXPECT_GT(checked, 50);
}

TEST(BlockMemory, OfBert_IsAtMostWhatTheTableSays_AndHardlyLessWhereStepsPeak) {
  DeviceMemory::install();
  int64_t checked = 0;
  for (uint64_t seed = 1; seed <= 200; seed += static_cast<uint64_t>(one_in(5, 15))) {
    std::mt19937_64 random(seed);
    spec::RunFile run = drawn(random, false, true);
    run.data.masked_fraction = 0.05 + 0.9 * static_cast<double>(random() % 100) / 100;
    const int64_t B = 1 + static_cast<int64_t>(random() % 4);
    checked += expect_as_predicted(lines_of(run, B), " of seed " + std::to_string(seed) + ": " + describe(run, B) +
                                                         " masked " + std::to_string(run.data.masked_fraction));
  }
  EXPECT_GT(checked, 30);
}

// The table counts as if one expert had as many rows as it can have.
TEST(BlockMemory, OfExperts_IsAtMostWhatTheTableSays) {
  DeviceMemory::install();
  int64_t checked = 0;
  for (uint64_t seed = 1; seed <= 120; seed += static_cast<uint64_t>(one_in(3, 12))) {
    std::mt19937_64 random(seed);
    const spec::RunFile run = drawn(random, true);
    const int64_t B = 1 + static_cast<int64_t>(random() % 4);
    for (const Line& line : lines_of(run, B)) {
      const std::string where = line.name + " of seed " + std::to_string(seed) + ": " + describe(run, B) + " E" +
                                std::to_string(run.model.experts) + " k" + std::to_string(run.model.top_k) + " of " +
                                std::to_string(run.model.expert_ffn) + " shared " +
                                std::to_string(run.model.shared_experts);
      EXPECT_LE(line.measured, line.predicted + kSmallTensors) << where;
      if (!line.is_tight || run.model.experts > 1) continue;
      const int64_t all = line.base + line.predicted;
      EXPECT_GE(line.base + line.measured, all - all * 15 / 100 - 4096) << where;
      ++checked;
    }
  }
  EXPECT_GT(checked, 3);
}

}  // namespace
}  // namespace herd::models
