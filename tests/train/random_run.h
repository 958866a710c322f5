// A run that is drawn by chance from a seed, and whether it trains as one rank without techniques does.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <random>

#include "herd/convert/convert.h"
#include "herd/strategies/gradient_clipping.h"
#include "herd/strategies/strategy_table.h"
#include "herd/strategies/techniques.h"
#include "tests/convert/model_fixture.h"
#include "tests/support/temporary_folder.h"
#include "train_in_threads.h"

namespace herd::train {

struct Combination {
  int zero = 0;
  std::string recompute, precision;
  int ranks = 1;
  int64_t micro_batches = 1;
  int64_t fsdp = 1;
  uint64_t seed = 0;
  int pp = 1;
  std::string order = "1f1b";
  int tp = 1;
  bool sequence = true;
  std::string offload = "none";
  std::string kind = "gpt";
  int stages_per_rank = 1;
  bool dropout = true;
  double lr = 1e-3, norms = 1e-4;  // how far 32-bit norms may be apart
  int cp = 1, ep = 1;
  std::string context = "all_to_all";
  int data_ranks() const { return ranks / pp / tp / cp; }
};

// Half of the time heads share key heads: as many as ranks, or fewer, of which these hold copies. Tensor ranks share
// them first.
template <class In>
void draw_kind(const std::string& kind, spec::RunFile::Model& model, int64_t tp, int64_t shared_by, int64_t ep,
               const In& in) {
  if (in(0, 1) == 1) {
    do model.kv_heads = in(1, shared_by);
    while (shared_by % model.kv_heads != 0 || (model.kv_heads % tp != 0 && tp % model.kv_heads != 0));
  }
  if (kind == "gpt") return;
  model.kind = kind;
  if (kind == "bert") return;
  model.norm = "rmsnorm";
  model.norm_eps = 1e-6;
  model.head_width += model.head_width % 2;
  model.rope_theta = 30;
  model.rope_scaling = in(0, 1) == 1 ? "llama3" : "none";
  model.rope_factor = 4;
  model.rope_original_context = 16;
  model.qkv_bias = in(0, 3) == 0;
  model.qk_norm = in(0, 2) == 0;
  if (kind != "moe") return;
  model.experts = in(1, 8);
  if (ep > 1) model.experts = (model.experts + ep - 1) / ep * ep;
  model.top_k = in(1, std::min<int64_t>(3, model.experts));
  model.shared_experts = in(0, 3) == 0 ? 1 : 0;
  model.shared_gate = model.shared_experts > 0 && in(0, 1) == 1;
  if (in(0, 2) == 0) model.dense_layers = in(0, model.layers - 1);
  model.expert_ffn = in(8, 2 * model.width);
  model.router = in(0, 1) == 1 ? "softmax" : "sigmoid";
  model.normalize_weights = in(0, 2) > 0;
  model.balance_loss = in(0, 2) == 0 ? 0 : 0.02;
  model.z_loss = in(0, 2) == 0 ? 1e-3 : 0;
}

// A codec that changes sums by no more than the tolerance of the precision allows: top-k with all elements, which loses
// nothing and adds in the order of ranks, or bf16 beside weights of 16 bits.
inline void draw_codec(const Combination& c, spec::RunFile& run) {
  auto& strategy = run.strategy;
  const bool fp32_gradients = c.precision == "fp32" || strategy.gradient_precision == "fp32";
  if (!fp32_gradients || c.precision == "fp16" || c.zero > 1 || (c.zero == 0 && c.fsdp > 1)) return;
  if (c.zero == 1 || (c.precision == "bf16" && c.seed % 3 == 0)) {
    if (c.precision == "bf16") strategy.compression = "bf16";
    return;
  }
  strategy.compression = "topk";
  strategy.compression_ratio = 1;
  strategy.compression_warmup = static_cast<int64_t>(c.seed % 3);
  if (c.seed % 2 == 0) strategy.compression_exclude = "wte* h.0.*";
}

// Gradients that ZeRO-2 and 3 sum of terms in int8, which lose a little.
inline void draw_encoded_shards(const Combination& c, spec::RunFile& run) {
  if (c.zero >= 2 && c.data_ranks() * c.cp > 1 && c.seed % 5 == 1) run.strategy.compression = "int8";
}

// Weights that ZeRO-3 gathers in int8: losses follow those of exact weights, but not to the last digits.
inline void draw_gather_codec(const Combination& c, spec::RunFile& run) {
  if (c.zero == 3 && c.data_ranks() > 1 && c.offload != "window" && c.seed % 3 == 0) run.strategy.gather_codec = "int8";
}

// A window of weights of some size, blocks that read theirs on the host, where they are whole there, and layers in
// files.
inline void draw_window(const Combination& c, spec::RunFile& run) {
  if (c.offload != "window") return;
  run.strategy.window = static_cast<int64_t>(1 + c.seed / 4 % 3);
  const bool is_whole = (c.zero < 3 && (c.zero > 0 || c.fsdp == 1)) || c.data_ranks() * c.cp == 1;
  const std::array blocks = {"none", "embedding", "*", "embedding h.0* head*"};
  if (is_whole) run.strategy.direct_host = blocks[c.seed / 8 % blocks.size()];
  const bool is_one_value = (c.zero == 0 && c.fsdp == 1) || c.zero == 3 || c.data_ranks() * c.cp == 1;
  if (is_one_value && c.seed % 3 > 0) run.strategy.file_layers = static_cast<int64_t>(c.seed / 3 % 5);
}

// Shards of weights on hosts of two ranks that hold shards, where there are several hosts.
inline void draw_secondary_shard(const Combination& c, spec::RunFile& run) {
  const int64_t shards = c.fsdp > 1 ? c.fsdp : c.data_ranks();
  if (c.zero != 3 || c.cp > 1 || shards % 2 != 0 || shards == 2 || c.seed % 2 == 0) return;
  run.strategy.secondary_shard = true;
  run.mesh.ranks_per_host = 2 * c.tp;
}

// Groups that are one rank's as a whole, where the run has nothing that does not go with that.
inline void draw_owners(const Combination& c, spec::RunFile& run) {
  const auto& strategy = run.strategy;
  const bool goes = (c.zero > 0 || c.fsdp > 1) && c.data_ranks() * c.cp > 1 && c.ep == 1 && c.offload == "none" &&
                    strategy.compression == "none" && strategy.gather_codec == "none" && !strategy.secondary_shard &&
                    strategy.sync == "all_reduce";
  if (goes && c.seed % 4 < 2) run.strategy.shard = "layers";
}

// Parameter servers, where the run has nothing that does not go with them.
inline void draw_servers(const Combination& c, spec::RunFile& run) {
  const bool goes = c.precision == "fp32" && c.zero == 0 && c.fsdp == 1 && c.tp == 1 && c.pp == 1 && c.cp == 1 &&
                    c.offload == "none" && run.strategy.compression == "none";
  if (!goes) return;
  run.strategy.sync = c.seed % 2 == 0 ? "server" : "server_async";
  run.strategy.staleness = 0;  // what runs ahead gives other losses
  run.strategy.servers = static_cast<int64_t>(c.seed / 7) % (c.ranks + 1);
  if (run.strategy.servers == 0) run.strategy.dedicated_servers = static_cast<int64_t>(c.seed / 21 % 3);
  run.optimizer.clip = 0;
  if (c.seed / 7 % 3 != 0) draw_codec(c, run);
}

// Gradients by priority, where the run has nothing that does not go with it.
inline void draw_schedule(const Combination& c, spec::RunFile& run) {
  if (c.zero > 0 || c.fsdp > 1 || run.strategy.compression != "none") return;
  run.strategy.schedule = "priority";
  run.strategy.partition_bytes = std::array<int64_t, 4>{100, 1024, 4096, 1 << 20}[c.seed / 3 % 4];
  run.strategy.credit = static_cast<int64_t>(c.seed / 5 % 6);
}

// Where each gradient is complete after one series of passes, it may wait in a file, and weights with it.
inline void draw_gradients_in_files(const Combination& c, spec::RunFile& run) {
  const bool has_norm = run.optimizer.clip > 0 || run.health.check_finite || c.precision == "fp16";
  const bool is_split = run.mesh.pp > 1 || c.tp > 1 || c.ep > 1;
  const bool is_alone = c.ranks == c.tp * run.mesh.pp;
  const int64_t stage = spec::stated_zero_stage(run);
  if (run.strategy.delayed_update || run.strategy.shard != "slices" || (has_norm && is_split) || run.mesh.pp > 1 ||
      (c.micro_batches > 1 && run.strategy.order != "layer_major"))
    return;
  if (run.strategy.offload == "nvme" && (is_alone || stage >= 2)) run.strategy.offload = "nvme_gradients";
  if (run.strategy.offload == "window" && (is_alone || stage == 3))
    run.strategy.offload = "nvme_all", run.strategy.file_layers = spec::kAuto;
}

// Width up to 64, of heads of any width; up to 5 layers; sizes mostly odd; dropout always on; a batch that the ranks
// share unevenly more often than not, and which makes as many micro-batches as asked for.
inline spec::RunFile drawn(const Combination& c) {
  std::mt19937_64 random(c.seed);
  const auto in = [&](int64_t least, int64_t most) {
    return least + static_cast<int64_t>(random() % static_cast<uint64_t>(most - least + 1));
  };
  spec::RunFile run = tiny_run();
  run.model.layers = in(1, 5);
  if (c.stages_per_rank > 1) run.model.layers = c.pp * c.stages_per_rank + in(0, 2) - 2;  // the ends are stages too
  const int shared = c.tp * (c.context == "ring" ? 1 : c.cp);  // ranks that must divide heads
  run.model.heads = shared == 1 ? in(1, 6) : shared * in(1, 2);
  run.model.head_width = in(3, 64 / run.model.heads);
  run.model.width = run.model.heads * run.model.head_width;
  run.model.kv_heads = run.model.heads;
  run.model.ffn = in(run.model.width, 4 * run.model.width) / c.tp * c.tp;
  run.model.context = std::max<int64_t>(in(3, 17), c.cp);
  run.model.vocab = in(17, 101);
  run.model.dropout = 0.05 * static_cast<double>(in(1, 4));
  run.model.tie_embeddings = in(0, 1) == 1;
  run.train.seed = in(1, 1000);
  run.train.micro_batch = in(1, 2);
  const int64_t most = c.micro_batches * run.train.micro_batch;  // samples of a rank
  const int64_t least = (c.micro_batches - 1) * run.train.micro_batch + 1;
  run.train.batch = in((least - 1) * c.data_ranks() + 1, most * c.data_ranks());
  run.strategy.zero = c.zero;
  run.strategy.recompute = c.recompute;
  run.strategy.precision = c.precision;
  if (c.precision != "fp32" && in(0, 1) == 1) run.strategy.gradient_precision = "fp32";
  run.strategy.bucket = in(0, 1) == 1 ? 4096 : 25 << 20;
  run.strategy.prefetch = in(0, 2);
  run.strategy.keep_whole = in(0, 2);
  run.mesh.fsdp = c.fsdp;
  run.mesh.pp = std::min<int64_t>(c.pp, run.model.layers + 2);
  run.strategy.pipeline = c.order;
  if (c.stages_per_rank > 1) run.strategy.stages_per_rank = c.stages_per_rank;
  run.mesh.tp = c.tp, run.mesh.cp = c.cp, run.mesh.ep = c.ep, run.strategy.context = c.context;
  run.strategy.offload = c.offload;
  run.strategy.sequence_parallel = c.sequence;
  run.strategy.keep_gathered = c.seed % 2 == 0;
  if (!c.dropout) run.model.dropout = 0;
  run.optimizer.lr = c.lr;
  // An element that has had no gradient by then moves by its first one over eps.
  if (c.seed / 3 % 4 == 1) run.optimizer.freeze_step = static_cast<int64_t>(1 + c.seed % 3), run.optimizer.eps = 1e-3;
  if (c.tp > 1 && in(0, 2) == 0) run.model.norm = "rmsnorm";
  draw_kind(c.kind, run.model, c.tp, shared, c.ep, in);
  if ((c.tp > 1 || c.ep > 1) && c.pp == 1 && c.seed % 3 == 1)
    run.strategy.interleave_micro_batches = static_cast<int64_t>(2 + (c.seed / 3) % 2);
  if (c.pp == 1 && run.strategy.interleave_micro_batches == 1 && c.seed % 5 > 2) run.strategy.order = "layer_major";
  if (c.ep == 1 && c.seed % 7 < 4) draw_codec(c, run);  // neither goes with experts on several ranks
  if (c.ep == 1 && c.seed % 7 >= 4) draw_servers(c, run);
  if (c.kind == "moe" && c.tp > 1) run.strategy.sequence_parallel = true;
  // In 16 bits choices differ between layouts, and what follows from them more.
  if (c.kind == "moe" && c.precision == "fp32") {
    if (c.seed % 2 == 0) run.model.bias_balancing = 1e-3;
    if (c.seed % 5 < 2) run.model.capacity_factor = c.seed % 5 == 0 ? 0.7 : 1.25;
  }
  // Rounding to int8 changes choices, too.
  if (run.model.bias_balancing == 0 && run.model.capacity_factor == 0) {
    if (c.ep == 1) draw_encoded_shards(c, run);
    draw_gather_codec(c, run);
  }
  if (c.ep == 1) draw_secondary_shard(c, run);
  draw_owners(c, run);
  draw_window(c, run);
  if (c.recompute != "none" && c.recompute != "selective" && c.seed % 4 < 3)
    run.strategy.offload_activations = c.seed % 4 == 0 ? "nvme" : "host";
  run.strategy.delayed_update =
      (c.offload == "states" || c.offload == "nvme") && c.precision != "fp16" && c.seed % 2 == 0;
  if (c.seed % 3 == 2 && c.kind != "bert") run.data.packing = "documents";
  if (c.kind == "bert") run.data.masked_fraction = 0.1 * static_cast<double>(1 + c.seed % 9);
  if (c.seed % 5 == 0) run.optimizer.clip = 0, run.health.check_finite = false;  // then no rank waits for a norm
  if (c.ep == 1 && c.seed % 2 == 0) draw_schedule(c, run);
  draw_gradients_in_files(c, run);
  return run;
}

inline std::string text(const Combination& c, const spec::RunFile& run) {
  const auto& m = run.model;
  return "seed " + std::to_string(c.seed) + ": zero " + std::to_string(c.zero) + " by " + run.strategy.shard +
         ", recompute " + c.recompute + ", " + c.precision + " (gradients " + run.strategy.gradient_precision + "), " +
         std::to_string(c.ranks) + " ranks, fsdp " + std::to_string(c.fsdp) + ", pp " + std::to_string(run.mesh.pp) +
         " " + c.order + " " + std::to_string(c.stages_per_rank) + ", tp " + std::to_string(c.tp) + ", cp " +
         std::to_string(c.cp) + ", ep " + std::to_string(c.ep) + " " + c.context + (c.sequence ? " rows, " : ", ") +
         (run.strategy.keep_gathered ? "" : "gathered again, ") + "interleave " +
         std::to_string(run.strategy.interleave_micro_batches) + ", " + run.strategy.order + ", codec " +
         run.strategy.compression + " but " + run.strategy.compression_exclude + ", gathers " +
         run.strategy.gather_codec + (run.strategy.secondary_shard ? " inside hosts" : "") + ", sync " +
         run.strategy.sync + " of " + std::to_string(run.strategy.servers) + " and " +
         std::to_string(run.strategy.dedicated_servers) + " more, " + run.strategy.schedule + " " +
         std::to_string(run.strategy.partition_bytes) + " " + std::to_string(run.strategy.credit) + ", offload " +
         run.strategy.offload + (run.strategy.delayed_update ? " delayed" : "") + " direct " +
         run.strategy.direct_host + " and activations " + run.strategy.offload_activations + ", " +
         std::to_string(c.micro_batches) + " micro-batches, freeze step " + std::to_string(run.optimizer.freeze_step) +
         " | " + m.kind +
         (m.is_moe() ? " of " + std::to_string(m.top_k) + " of " + std::to_string(m.experts) + " experts, " +
                           std::to_string(m.dense_layers) + " dense layers"
                     : "") +
         (m.shared_gate ? ", shared gate" : "") + (m.qkv_bias ? ", qkv biases" : "") +
         (m.qk_norm ? ", head norms" : "") + ", layers " + std::to_string(m.layers) + ", width " +
         std::to_string(m.width) + ", heads " + std::to_string(m.heads) + " of " + std::to_string(m.head_width) +
         ", key heads " + std::to_string(m.kv_heads) + ", ffn " + std::to_string(m.ffn) + ", context " +
         std::to_string(m.context) + ", vocab " + std::to_string(m.vocab) + ", packing " + run.data.packing +
         ", dropout " + std::to_string(m.dropout) + (m.tie_embeddings ? ", tied" : ", untied") + ", batch " +
         std::to_string(run.train.batch);
}

inline double eps_of(const std::string& precision) { return precision == "bf16" ? 0x1p-8 : 0x1p-11; }

inline bool loses_in_int8(const spec::RunFile& run) {
  return run.strategy.gather_codec == "int8" || run.strategy.compression == "int8";
}

// 32-bit sums in another order differ by a few 2^-24 of the loss.
// Of 16-bit weights, gradients and activations each is rounded by eps/2 at most, to either side: eps = 2^-8 (bf16) or
// 2^-11 (fp16). Where two runs sum in another order they may round one number to its two neighbours, eps apart; a mean
// over tokens evens that out. A gradient that is eps off moves a weight by as much of the step, so that what the steps
// gain, which is less than the loss, is eps of itself off. So losses are less than eps apart.
// Weights and terms of gradients in int8 are off by 1/254 of their block's largest at most, about as much to either
// side: by less than 2 eps of bf16 in all.
inline double tolerance(const spec::RunFile& run) {
  const std::string& precision = run.strategy.precision;
  const double rounding = precision == "fp32" ? 1e-6 : eps_of(precision);
  return loses_in_int8(run) ? std::max(rounding, 2 * eps_of("bf16")) : rounding;
}

// The same run without ranks and techniques.
inline spec::RunFile of_one_rank(const spec::RunFile& run, const Combination& c) {
  spec::RunFile plain = run;
  plain.mesh = {};
  plain.strategy = {};
  plain.strategy.precision = run.strategy.precision;
  plain.strategy.gradient_precision = run.strategy.gradient_precision;
  plain.strategy.delayed_update = run.strategy.delayed_update;
  if (run.strategy.delayed_update) plain.strategy.offload = "states";
  // In 32 bits one rank takes the batch whole. Sums of 16 bits over micro-batches round at each of them, and overflow
  // or not: there it has as many.
  const int64_t parts = c.precision == "fp32" ? 1 : c.micro_batches;
  plain.train.micro_batch = (plain.train.batch + parts - 1) / parts;
  return plain;
}

inline double expect_trains_as_one_rank(const Combination& c) {
  spec::RunFile run = drawn(c), plain = of_one_rank(run, c);
  const int steps = steps_to_compare();
  const TemporaryFolder routing;
  if (run.model.is_moe()) plain.train.record_routing = routing.path().string();
  const Trained one = train_in_threads(plain, 1, steps);
  // Where another rounding may choose other experts, the layouts agree for the same ones. Validation has its own.
  const bool has_close_choices = std::accumulate(one.close.begin(), one.close.end(), int64_t{0}) > 0;
  if (has_close_choices) run.train.replay_routing = routing.path().string();
  const Trained many = train_in_threads(run, c.ranks, steps);
  const spec::Layout layout =
      strategies::trainable_layout(run, c.ranks + static_cast<int>(run.strategy.dedicated_servers));
  EXPECT_EQ(layout.micro_batches, c.micro_batches) << text(c, run);
  EXPECT_EQ(std::vector<int64_t>(many.skipped.size(), many.skipped[0]), many.skipped) << text(c, run);
  EXPECT_EQ(many.losses.size(), static_cast<size_t>(steps));
  double worst = has_close_choices ? 0 : std::abs(many.validation - one.validation) / one.validation;
  for (size_t i = 0; i < one.losses.size(); ++i)
    worst = std::max(worst, std::abs(many.losses[i] - one.losses[i]) / std::abs(one.losses[i]));
  // Near the largest number of fp16, sums in another order overflow in another step, where ranks share samples or a
  // tied embedding: what follows is an update behind or ahead, and its moments with it; two updates are allowed.
  double allowed = tolerance(run);
  for (size_t i = 1; i < one.losses.size() && (one.skipped[0] > 0 || many.skipped[0] > 0); ++i)
    allowed = std::max(allowed, 2 * std::abs(one.losses[i] - one.losses[i - 1]) / std::abs(one.losses[i]));
  EXPECT_LT(worst, allowed) << text(c, run);
  if (c.precision == "fp32" && !loses_in_int8(run)) {
    for (size_t i = 0; i < one.norms.size() && strategies::needs_norm(run, layout); ++i)
      EXPECT_NEAR(many.norms[i], one.norms[i], c.norms * one.norms[i]) << text(c, run);
  }
  return worst;
}

// A checkpoint of the run's model, saved by another number of ranks, or a folder of transformers where its format can
// state the model.
inline std::filesystem::path made_up_weights(const std::filesystem::path& root, const spec::RunFile& run,
                                             const Combination& c) {
  const auto enlarge = [](const std::string&, std::vector<float>& values) {  // the loss must not be that of chance
    for (float& value : values) value *= 6;
  };
  const auto checkpoint = convert::save_model(root / "runs", run, 1 + static_cast<int>(c.seed % 3), enlarge);
  const bool is_llama = run.model.kind == "llama";
  const auto& m = run.model;
  const bool has_format = (is_llama && !(m.qkv_bias && m.qk_norm)) || (m.kind == "gpt" && m.kv_heads == m.heads);
  const auto llama = m.qkv_bias  ? convert::Format::kQwen2
                     : m.qk_norm ? convert::Format::kQwen3
                                 : convert::Format::kLlama;
  if (!has_format || run.model.norm != (is_llama ? "rmsnorm" : "layernorm") || c.seed % 4 == 0) return checkpoint;
  const std::array dtypes = {DType::kF32, DType::kBF16, DType::kF16};
  convert::convert({.source = checkpoint,
                    .out = root / "transformers",
                    .to = is_llama ? llama : convert::Format::kGpt2,
                    .dtype = dtypes[c.seed % dtypes.size()]},
                   convert::unsynced_files());
  return root / "transformers";
}

// The first loss of a run that begins with weights is that of one rank with them, and not that of the seed's weights.
inline double expect_takes_weights_as_one_rank(const Combination& c) {
  spec::RunFile run = drawn(c);
  const TemporaryFolder root;
  run.model.weights = made_up_weights(root.path(), of_one_rank(run, c), c);
  spec::RunFile plain = of_one_rank(run, c), from_seed = plain;
  from_seed.model.weights = "none";
  const double one = train_in_threads(plain, 1, 1).losses.at(0), many = train_in_threads(run, c.ranks, 1).losses.at(0);
  EXPECT_GT(std::abs(train_in_threads(from_seed, 1, 1).losses.at(0) - one), 1e-3 * one) << text(c, run);
  const double apart = std::abs(many - one) / one;
  // Of a few tokens, and of large weights, roundings to 16 bits do not even out as in a longer run.
  EXPECT_LT(apart, (c.precision == "fp32" ? 1 : 2) * tolerance(run))
      << text(c, run) << ", weights of " << run.model.weights;
  return apart;
}

}  // namespace herd::train
