#include "herd/spec/run_keys.h"

#include <algorithm>
#include <limits>
#include <map>
#include <type_traits>

#include "herd/base/check.h"
#include "herd/base/error.h"
#include "herd/base/units.h"

namespace herd::spec {
namespace {

constexpr double kMany = 1e15;  // the bound of keys that have no bound of their own
// No model comes near these bounds, and their products can be counted (run_file_rules.cpp has the rule for a step).
constexpr double kMostLayers = 1e4, kMostWidth = 1 << 20, kMostFfn = 1 << 24, kMostTokens = 1e8;
constexpr double kMostExperts = 4096;
constexpr double kMostSteps = 1e12, kMostBatch = 1e9;
constexpr double kBelowOne = 1 - std::numeric_limits<double>::epsilon();

#define HERD_FIELD(member)      \
  +[](RunFile & run) -> auto& { \
    return run.member;          \
  }

Key integer(std::string_view section, std::string_view name, Effect effect, IntegerField field, double min,
            std::string_view doc, double max = kMany) {
  return {section, name, effect, field, min, max, false, {}, doc};
}
Key number(std::string_view section, std::string_view name, Effect effect, NumberField field, double min, double max,
           std::string_view doc, bool above_min = false) {
  return {section, name, effect, field, min, max, above_min, {}, doc};
}
Key flag(std::string_view section, std::string_view name, Effect effect, BoolField field, std::string_view doc) {
  return {section, name, effect, field, 0, 0, false, {}, doc};
}
Key text(std::string_view section, std::string_view name, Effect effect, TextField field,
         std::vector<std::string_view> choices, std::string_view doc) {
  return {section, name, effect, field, 0, 0, false, std::move(choices), doc};
}
Key bytes(std::string_view section, std::string_view name, Effect effect, int64_t& (*field)(RunFile&), double min,
          std::string_view doc) {
  return {section, name, effect, BytesField{field}, min, kMany, false, {}, doc};
}
Key rate(std::string_view section, std::string_view name, Effect effect, int64_t& (*field)(RunFile&),
         std::string_view doc) {
  return {section, name, effect, BytesField{field, /*per_second=*/true}, 0, kMany, false, {}, doc};
}

std::vector<Key> make_keys() {
  return {
      text("model", "kind", Effect::kModel, HERD_FIELD(model.kind), {"gpt", "llama", "bert", "t5", "moe", "chain"},
           "family of the model; chain = blocks of a program of one's own (own_model.md)"),
      integer("model", "layers", Effect::kModel, HERD_FIELD(model.layers), 1,
              "transformer layers; of each of t5's two stacks", kMostLayers),
      integer("model", "width", Effect::kModel, HERD_FIELD(model.width), 1,
              "width of the residual stream; heads divides it where head_width is 0", kMostWidth),
      integer("model", "heads", Effect::kModel, HERD_FIELD(model.heads), 1, "attention heads", kMostWidth),
      integer("model", "kv_heads", Effect::kModel, HERD_FIELD(model.kv_heads), 0,
              "key and value heads; divides heads; 0 = heads", kMostWidth),
      integer("model", "head_width", Effect::kModel, HERD_FIELD(model.head_width), 0,
              "width of a head; 0 = width / heads", kMostWidth),
      integer("model", "ffn", Effect::kModel, HERD_FIELD(model.ffn), 0,
              "width of the feed-forward layer; 0 = 4 * width", kMostFfn),
      integer("model", "context", Effect::kModel, HERD_FIELD(model.context), 1,
              "tokens in a sequence; at most as many as model.weights have positions", kMostTokens),
      integer("model", "vocab", Effect::kModel, HERD_FIELD(model.vocab), 2, "token ids; not smaller than the data's",
              kMostTokens),
      number("model", "dropout", Effect::kTraining, HERD_FIELD(model.dropout), 0, kBelowOne,
             "share of activations dropped after the embedding, in attention and after both projections"),
      flag("model", "tie_embeddings", Effect::kModel, HERD_FIELD(model.tie_embeddings),
           "the output layer uses the embedding's weights"),
      text("model", "norm", Effect::kModel, HERD_FIELD(model.norm), {"layernorm", "rmsnorm"},
           "kind of normalisation; llama, moe and t5 have rmsnorm"),
      number("model", "norm_eps", Effect::kModel, HERD_FIELD(model.norm_eps), 0, 1,
             "added to the variance (layernorm) or the mean square (rmsnorm)", true),
      number("model", "rope_theta", Effect::kModel, HERD_FIELD(model.rope_theta), 1, kMany,
             "llama's positions: pair i of a head of width d turns by theta^(-2i/d) a token", true),
      text("model", "rope_scaling", Effect::kModel, HERD_FIELD(model.rope_scaling), {"none", "linear", "llama3"},
           "llama's turns for contexts that are longer than those of the first training; linear = each by rope_factor "
           "less; llama3 = slow ones by rope_factor less, fast ones as they are, between them a blend"),
      number("model", "rope_factor", Effect::kModel, HERD_FIELD(model.rope_factor), 1, kMany,
             "by which turns are less"),
      number("model", "rope_low_freq_factor", Effect::kModel, HERD_FIELD(model.rope_low_freq_factor), 0, kMany,
             "of llama3: turns are slow that complete fewer rounds than this in rope_original_context", true),
      number("model", "rope_high_freq_factor", Effect::kModel, HERD_FIELD(model.rope_high_freq_factor), 0, kMany,
             "of llama3: turns are fast that complete more rounds; above rope_low_freq_factor", true),
      integer("model", "rope_original_context", Effect::kModel, HERD_FIELD(model.rope_original_context), 1,
              "of llama3: context of the first training", kMostTokens),
      flag("model", "qkv_bias", Effect::kModel, HERD_FIELD(model.qkv_bias),
           "of llama and moe: queries, keys and values have biases, as in Qwen2; those of gpt always have"),
      flag("model", "qk_norm", Effect::kModel, HERD_FIELD(model.qk_norm),
           "of llama and moe: each head of queries and keys goes through an RMS norm before it turns, as in Qwen3"),
      text("model", "weights", Effect::kBeginning, HERD_FIELD(model.weights), {},
           "a checkpoint, a run's folder or a folder of transformers (GPT-2, BERT, Llama, Qwen, Mixtral) whose weights "
           "the run starts from, in any precision; keys of [model] that are left out are those of the weights; none = "
           "what the seed gives"),
      text("model", "frozen", Effect::kRun, HERD_FIELD(model.frozen), {},
           "parameters that are not trained: patterns of their names, separated by spaces, `*` for any text: "
           "`wte.weight h.0.*`"),
      integer("model", "experts", Effect::kModel, HERD_FIELD(model.experts), 1,
              "of moe: feed-forward networks of each layer among which a router chooses (experts.md)", kMostExperts),
      integer("model", "top_k", Effect::kModel, HERD_FIELD(model.top_k), 1,
              "of moe: experts that each token goes to; at most experts", kMostExperts),
      integer("model", "shared_experts", Effect::kModel, HERD_FIELD(model.shared_experts), 0,
              "of moe: experts that every token goes to beside those; together one network, that many times as wide",
              kMostExperts),
      flag("model", "shared_gate", Effect::kModel, HERD_FIELD(model.shared_gate),
           "of moe: the sigmoid of one more product of a token scales what its shared experts give, as in Qwen2-MoE"),
      integer("model", "dense_layers", Effect::kModel, HERD_FIELD(model.dense_layers), 0,
              "of moe: first layers without experts, whose feed-forward network is ffn wide, as in DeepSeek-MoE",
              kMostLayers),
      integer("model", "expert_ffn", Effect::kModel, HERD_FIELD(model.expert_ffn), 0,
              "of moe: width of an expert; 0 = ffn", kMostFfn),
      text("model", "router", Effect::kModel, HERD_FIELD(model.router), {"softmax", "sigmoid"},
           "of moe: how scores follow from the router's logits; experts of the highest scores are chosen"),
      flag("model", "normalize_weights", Effect::kModel, HERD_FIELD(model.normalize_weights),
           "of moe: the chosen experts' scores are divided by their sum to give the weights of their outputs"),
      number("model", "capacity_factor", Effect::kModel, HERD_FIELD(model.capacity_factor), 0, kMany,
             "of moe: an expert takes at most this many times its mean share of each sequence's tokens, first choices "
             "first; the others are dropped. 0 = every token reaches all its experts"),
      number("model", "balance_loss", Effect::kTraining, HERD_FIELD(model.balance_loss), 0, kMany,
             "of moe: factor of the loss that spreads the tokens of each sequence over the experts: 1 for each layer "
             "where all experts have equal shares; 0 = none"),
      number("model", "z_loss", Effect::kTraining, HERD_FIELD(model.z_loss), 0, kMany,
             "of moe: factor of the squared log-sum-exp of the router's logits, which keeps them small; 0 = none"),
      number("model", "bias_balancing", Effect::kTraining, HERD_FIELD(model.bias_balancing), 0, kMany,
             "of moe: step by which a bias of each expert's score moves towards equal loads, after each optimizer step "
             "and without a loss, as DeepSeek-V3 does; 0 = no biases"),

      text("data", "kind", Effect::kRun, HERD_FIELD(data.kind), {"tokens", "random", "function"},
           "tokens = a folder that `herd tokenize` wrote; random = made-up tokens, for benches; function = the data "
           "function of a program with blocks of its own"),
      text("data", "path", Effect::kTraining, HERD_FIELD(data.path), {}, "folder of the tokens"),
      text("data", "packing", Effect::kRun, HERD_FIELD(data.packing), {"none", "documents"},
           "none = sequences are windows of the text; documents = of gpt, llama and moe: they are packed of whole "
           "documents, each of which attends to itself alone and begins at position 0"),
      number("data", "masked_fraction", Effect::kTraining, HERD_FIELD(data.masked_fraction), 0, 1,
             "of bert: share of a sequence's tokens that it predicts, chosen anew for each sample", /*above_min=*/true),
      integer("data", "mask_token", Effect::kTraining, HERD_FIELD(data.mask_token), -1,
              "of bert: token that stands in place of those; -1 = the first one that the data has not, for which "
              "model.vocab needs room"),

      integer("train", "steps", Effect::kTraining, HERD_FIELD(train.steps), 1, "optimizer steps", kMostSteps),
      integer("train", "batch", Effect::kTraining, HERD_FIELD(train.batch), 1,
              "sequences per optimizer step, over all ranks", kMostBatch),
      integer("train", "micro_batch", Effect::kLayout, HERD_FIELD(train.micro_batch), 1,
              "sequences per rank and micro-batch", kMostBatch),
      integer("train", "seed", Effect::kRun, HERD_FIELD(train.seed), 0,
              "of initial weights, order of samples, dropout"),
      integer("train", "eval_every", Effect::kNone, HERD_FIELD(train.eval_every), 0,
              "steps between validations; 0 = never", kMostSteps),
      integer("train", "eval_batches", Effect::kNone, HERD_FIELD(train.eval_batches), 1, "batches of one validation",
              kMostSteps),
      number("train", "max_minutes", Effect::kNone, HERD_FIELD(train.max_minutes), 0, 1e7,
             "minutes after which the job saves and stops, from its start, restarts included; 0 = no limit"),
      integer("train", "threads", Effect::kLayout, HERD_FIELD(train.threads), 0,
              "torch threads of a rank; 0 = cores / ranks of the host", 4096),
      text("train", "record_routing", Effect::kNone, HERD_FIELD(train.record_routing), {},
           "of moe: a folder into which each rank writes the experts that its tokens go to in each step, as "
           "docs/formats/routing.md has them; none = nowhere"),
      text("train", "replay_routing", Effect::kTraining, HERD_FIELD(train.replay_routing), {},
           "of moe: such a folder, whose experts tokens go to in place of those of the highest scores, in any layout "
           "(experts.md); none = each router chooses"),

      text("optimizer", "kind", Effect::kRun, HERD_FIELD(optimizer.kind), {"adamw", "sgd"}, "update rule"),
      number("optimizer", "lr", Effect::kTraining, HERD_FIELD(optimizer.lr), 0, kMany, "peak learning rate", true),
      number("optimizer", "lr_min", Effect::kTraining, HERD_FIELD(optimizer.lr_min), 0, kMany,
             "learning rate that the schedule ends at"),
      Key{"optimizer",
          "betas",
          Effect::kTraining,
          HERD_FIELD(optimizer.betas),
          0,
          kBelowOne,
          false,
          {},
          "decay of AdamW's two moments"},
      number("optimizer", "eps", Effect::kTraining, HERD_FIELD(optimizer.eps), 0, 1, "added to AdamW's denominator",
             true),
      integer("optimizer", "freeze_step", Effect::kTraining, HERD_FIELD(optimizer.freeze_step), 0,
              "steps after which AdamW's second moment stays as it is, for gradients that compression brings late "
              "(training.md); 0 = never",
              kMostSteps),
      number("optimizer", "momentum", Effect::kTraining, HERD_FIELD(optimizer.momentum), 0, kBelowOne, "of SGD"),
      text("optimizer", "momentum_precision", Effect::kTraining, HERD_FIELD(optimizer.momentum_precision),
           {"fp32", "bf16"}, "of AdamW's first moment and of SGD's momentum; bf16 takes 2 bytes a parameter less"),
      number(
          "optimizer", "weight_decay", Effect::kTraining, HERD_FIELD(optimizer.weight_decay), 0, kMany,
          "adamw shrinks weights by lr * weight_decay beside the update (decoupled); sgd adds weight_decay * weight to "
          "the gradient, after clipping and before momentum; norms, biases and positions are exempt"),
      integer("optimizer", "warmup_steps", Effect::kTraining, HERD_FIELD(optimizer.warmup_steps), 0,
              "steps of linear rise to lr"),
      text("optimizer", "schedule", Effect::kTraining, HERD_FIELD(optimizer.schedule), {"cosine", "linear", "constant"},
           "learning rate after the warm-up"),
      number("optimizer", "clip", Effect::kTraining, HERD_FIELD(optimizer.clip), 0, kMany,
             "largest global gradient norm; 0 = no clipping, and with health.check_finite = false no norm at all, so "
             "that ranks "
             "update without waiting for each other"),

      integer("mesh", "dp", Effect::kLayout, HERD_FIELD(mesh.dp), 0,
              "data-parallel replicas; 0 = what is left over of the ranks", 1e6),
      integer("mesh", "fsdp", Effect::kLayout, HERD_FIELD(mesh.fsdp), 1, "ranks that share one copy of the states",
              1e6),
      integer("mesh", "tp", Effect::kLayout, HERD_FIELD(mesh.tp), 1, "tensor-parallel ranks", 1e6),
      integer("mesh", "pp", Effect::kLayout, HERD_FIELD(mesh.pp), 1,
              "ranks of a pipeline; at most layers + 2 stages, t5 2 * layers + 2", 1e6),
      integer("mesh", "cp", Effect::kLayout, HERD_FIELD(mesh.cp), 1,
              "context-parallel ranks: each has a part of the tokens of each sequence", 1e6),
      integer("mesh", "ep", Effect::kLayout, HERD_FIELD(mesh.ep), 1,
              "expert-parallel ranks; divides dp * fsdp * cp, no factor of the world", 1e6),
      integer("mesh", "ranks_per_host", Effect::kLayout, HERD_FIELD(mesh.ranks_per_host), 0,
              "neighbouring ranks that strategy.secondary_shard, and what mesh.ep plans of memory, take for those of "
              "one host; 0 = as many as the hosts of the run have",
              1e6),

      flag("strategy", "auto", Effect::kLayout, HERD_FIELD(strategy.automatic),
           "choose the ZeRO stage (from zero up), recompute, micro_batch and keep_gathered whose step is predicted to "
           "be "
           "shortest within memory's budgets"),
      integer("strategy", "zero", Effect::kLayout, HERD_FIELD(strategy.zero), 0,
              "what ZeRO shards: 1 states, 2 gradients too, 3 weights too", 3),
      text("strategy", "shard", Effect::kLayout, HERD_FIELD(strategy.shard), {"slices", "layers"},
           "how ZeRO divides it: slices = each data rank has an equal slice of every parameter group; layers = each "
           "group is one rank's as a whole, so that ranks have about as many parameters each"),
      flag("strategy", "sequence_parallel", Effect::kLayout, HERD_FIELD(strategy.sequence_parallel),
           "with mesh.tp, norms, sums and dropout work on a part of the rows, and their inputs are kept in parts"),
      flag("strategy", "keep_gathered", Effect::kLayout, HERD_FIELD(strategy.keep_gathered),
           "with sequence_parallel, attention and feed-forward keep the inputs that they gather until their backward; "
           "false = these are gathered again, so that parts of them are kept: less memory, two gathers a layer more"),
      text("strategy", "order", Effect::kLayout, HERD_FIELD(strategy.order), {"micro_batch_major", "layer_major"},
           "order of passes without a pipeline; layer_major = all micro-batches go through a layer before the next, so "
           "that weights that are fetched or gathered come once a pass of the batch; takes the activations of all "
           "micro-batches"),
      integer(
          "strategy", "interleave_micro_batches", Effect::kLayout, HERD_FIELD(strategy.interleave_micro_batches), 1,
          "with mesh.tp or mesh.ep, so many micro-batches take turns, so that collectives inside the layers of one are "
          "on their way while another computes; takes the activations of as many; 1 = each by itself",
          16),
      Key{"strategy",
          "prefetch",
          Effect::kLayout,
          AutoField{HERD_FIELD(strategy.prefetch)},
          0,
          64,
          false,
          {},
          "how many blocks ahead zero = 3 gathers weights; a buffer for each; auto = as many as shorten the step"},
      Key{"strategy",
          "keep_whole",
          Effect::kLayout,
          AutoField{HERD_FIELD(strategy.keep_whole)},
          0,
          1e6,
          false,
          {},
          "of how many blocks zero = 3 keeps the weights whole through all passes of a step, gathered once, after the "
          "update; auto = as many as shorten the step within memory.device_budget; beside a gather_codec these are "
          "exact, so another number gives other losses, and auto = 0"},
      text("strategy", "recompute", Effect::kLayout, HERD_FIELD(strategy.recompute),
           {"none", "full", "selective", "sqrt", "every:K"}, "which activations backward computes again"),
      text("strategy", "precision", Effect::kTraining, HERD_FIELD(strategy.precision), {"fp32", "bf16", "fp16"},
           "16 bits: weights and gradients; updates are of fp32 weights, whose lower halves bf16 keeps, fp16 a whole "
           "copy"),
      text("strategy", "gradient_precision", Effect::kTraining, HERD_FIELD(strategy.gradient_precision),
           {"same", "fp32"},
           "of what is summed over micro-batches and ranks; same: as precision says; fp32 takes 2 bytes a parameter "
           "more than 16 bits"),
      text("strategy", "pipeline", Effect::kLayout, HERD_FIELD(strategy.pipeline),
           {"gpipe", "1f1b", "interleaved", "zero_bubble_h1", "zero_bubble_v", "file:PATH"},
           "order of micro-batches in a pipeline; a file's form: docs/formats/pipeline_order.md"),
      Key{"strategy",
          "stages_per_rank",
          Effect::kLayout,
          AutoField{HERD_FIELD(strategy.stages_per_rank)},
          1,
          1e6,
          false,
          {},
          "stages of the pipeline on each of its ranks; auto = 2 for interleaved and zero_bubble_v, else 1"},
      text("strategy", "offload", Effect::kLayout, HERD_FIELD(strategy.offload),
           {"none", "states", "window", "nvme", "nvme_gradients", "nvme_all"},
           "what leaves the device's memory: states = optimizer states, to the host, where updates run; nvme = those, "
           "to files of each rank; nvme_gradients = gradients, too; window = states and weights, to the host; nvme_all "
           "= states, gradients and weights, to files"),
      Key{"strategy",
          "window",
          Effect::kLayout,
          AutoField{HERD_FIELD(strategy.window)},
          1,
          1e6,
          false,
          {},
          "with offload = window or nvme_all, of how many passes over blocks weights may be on the device at once, the "
          "running one included; auto = as few as nearly hide the copies"},
      Key{"strategy",
          "file_layers",
          Effect::kLayout,
          AutoField{HERD_FIELD(strategy.file_layers)},
          0,
          1e6,
          false,
          {},
          "with offload = window, how many of the last layers keep weights and states in files of memory.nvme_path, "
          "from which they pass through the host; auto = as few as memory.host_budget asks for"},
      text("strategy", "direct_host", Effect::kLayout, HERD_FIELD(strategy.direct_host), {},
           "with offload = window or nvme_all, blocks whose passes read weights straight from the host's memory and "
           "wait for no copy: names such as embedding, h.3 and head, or patterns with *, separated by blanks; auto = "
           "those at both "
           "ends of the chain with which the step is predicted to be shortest"),
      text("strategy", "offload_activations", Effect::kLayout, HERD_FIELD(strategy.offload_activations),
           {"none", "host", "nvme"},
           "where inputs of recomputed blocks wait from their forward to their backward: none = on the device; host = "
           "in the host's memory; nvme = in a file of each rank"),
      flag("strategy", "delayed_update", Effect::kTraining, HERD_FIELD(strategy.delayed_update),
           "with strategy.offload = states or nvme: the host updates beside the next step's passes, which read weights "
           "that lack the newest update: other losses"),
      text("strategy", "context", Effect::kLayout, HERD_FIELD(strategy.context), {"all_to_all", "ring", "hybrid"},
           "how mesh.cp ranks share attention; all_to_all = each works on all tokens of its heads; ring = each on its "
           "own tokens, keys and values pass around"),
      text(
          "strategy", "compression", Effect::kTraining, HERD_FIELD(strategy.compression),
          {"none", "bf16", "topk", "int8", "int4"},
          "of gradients between ranks; bf16 = they are sent and summed in 16 bits, and half as many bytes move; topk = "
          "the largest; int8, int4 = blocks of 256 with a scale; these three keep what they lose for the next step, "
          "but with zero = 2 and 3"),
      number("strategy", "compression_ratio", Effect::kTraining, HERD_FIELD(strategy.compression_ratio), 0, 1,
             "topk: part of a group's elements that each rank sends, each in 8 bytes", true),
      text("strategy", "compression_levels", Effect::kTraining, HERD_FIELD(strategy.compression_levels),
           {"multiples", "quantiles"},
           "int8 and int4: multiples of a step, or levels chosen from the distribution of the gradient"),
      integer("strategy", "compression_warmup", Effect::kTraining, HERD_FIELD(strategy.compression_warmup), 0,
              "first steps in which topk, int8 and int4 leave gradients as they are"),
      text("strategy", "compression_exclude", Effect::kTraining, HERD_FIELD(strategy.compression_exclude), {},
           "parameters whose gradients topk, int8 and int4 leave as they are: names or patterns with *, separated by "
           "blanks; vectors, such as norms and biases, always are"),
      text("strategy", "gather_codec", Effect::kTraining, HERD_FIELD(strategy.gather_codec), {"none", "int8"},
           "of the weights that strategy.zero = 3 gathers; int8 = blocks of 256 with a scale, a byte for each weight: "
           "passes run on what comes of it, updates on the exact weights"),
      flag(
          "strategy", "secondary_shard", Effect::kLayout, HERD_FIELD(strategy.secondary_shard),
          "with strategy.zero = 3: what the first gather of a step brings to a host stays there, a part on each of its "
          "ranks, so that later gathers of the step never leave the host"),
      text("strategy", "sync", Effect::kTraining, HERD_FIELD(strategy.sync), {"all_reduce", "server", "server_async"},
           "how gradients become new weights; all_reduce = ranks sum them, and each updates; server = ranks push them "
           "to parameter servers, which update once all have come, and pull the weights; server_async = they update "
           "with each push, and ranks wait for nobody, or as strategy.staleness says: other losses"),
      integer(
          "strategy", "servers", Effect::kLayout, HERD_FIELD(strategy.servers), 0,
          "with sync = server or server_async, so many data ranks serve, the first of them, each an equal share of all "
          "elements; 0 = every data rank"),
      integer(
          "strategy", "dedicated_servers", Effect::kLayout, HERD_FIELD(strategy.dedicated_servers), 0,
          "with sync = server or server_async, so many ranks of the job serve and do nothing else, the last of them, "
          "each an equal share of all elements; [mesh] covers the others; 0 = data ranks serve",
          1e6),
      integer("strategy", "staleness", Effect::kTraining, HERD_FIELD(strategy.staleness), -1,
              "with sync = server_async, a rank that is more than so many steps ahead of the slowest one waits; 0 = as "
              "with server, -1 = no bound",
              1e6),
      bytes(
          "strategy", "bucket", Effect::kLayout, +[](RunFile& run) -> int64_t& { return run.strategy.bucket; }, 1,
          "gradient bytes that are reduced together, as soon as they are complete; with offload = nvme, also those of "
          "the "
          "pieces in which a longer group is updated"),
      text("strategy", "schedule", Effect::kLayout, HERD_FIELD(strategy.schedule), {"fifo", "priority"},
           "in which order gradients of data ranks are summed; fifo = as they are complete, in buckets; priority = "
           "those "
           "that the next forward needs first in front, and a block's forward waits for its own update alone"),
      Key{"strategy",
          "partition_bytes",
          Effect::kLayout,
          AutoField{HERD_FIELD(strategy.partition_bytes)},
          4,
          1e9,
          false,
          {},
          "with schedule = priority, gradient bytes that are summed at a time; auto = as few as cost no time"},
      Key{"strategy",
          "credit",
          Effect::kLayout,
          AutoField{HERD_FIELD(strategy.credit)},
          0,
          1e6,
          false,
          {},
          "with schedule = priority, partitions that each backward pass hands over before it waits for more urgent "
          "ones; "
          "auto = what makes the step shortest"},

      text("device", "kind", Effect::kLayout, HERD_FIELD(device.kind), {"auto", "cpu", "cuda", "extension"},
           "what ranks compute on; cuda = a GPU each, taken in turn by the ranks of a host; auto = cuda where herd and "
           "torch find a GPU, else cpu; extension = a device that an extension of torch adds (PrivateUse1)"),
      bytes(
          "memory", "device_budget", Effect::kNone, +[](RunFile& run) -> int64_t& { return run.memory.device_budget; },
          0, "memory of a rank's device; going over stops the run with a table of what is live; 0 = no limit"),
      bytes(
          "memory", "host_budget", Effect::kNone, +[](RunFile& run) -> int64_t& { return run.memory.host_budget; }, 0,
          "host memory of a rank; 0 = no limit"),
      rate(
          "memory", "link", Effect::kNone, +[](RunFile& run) -> int64_t& { return run.memory.link; },
          "rate of copies between the device and the host, each way, like 8GB/s: on CPUs, where both are one memory, "
          "copies are slowed to it, and predictions know it; 0 = no limit"),
      text("memory", "nvme_path", Effect::kNone, HERD_FIELD(memory.nvme_path), {},
           "folder in which offload and offload_activations = nvme and file_layers keep a file for each rank, on a "
           "drive of each host; "
           "several with a colon between each two, like /drive1/herd:/drive2/herd, share the values; auto = nvme in "
           "the run's folder"),
      rate(
          "memory", "nvme_bandwidth", Effect::kNone,
          +[](RunFile& run) -> int64_t& { return run.memory.nvme_bandwidth; },
          "rate at which a rank reads and writes all those files together, for predictions; 0 = measured before the "
          "first step"),

      text("comm", "transport", Effect::kLayout, HERD_FIELD(comm.transport), {"auto", "shm", "inproc"},
           "how ranks reach each other; auto = shared memory within a host, TCP inside TLS between hosts"),
      text("comm", "algorithm", Effect::kLayout, HERD_FIELD(comm.algorithm), {},
           "of the gradient all-reduce, which ZeRO has among copies of shards alone; `herd explain all_reduce` lists "
           "them; "
           "auto = the fastest predicted"),
      text("comm", "device_engine", Effect::kLayout, HERD_FIELD(comm.device_engine), {"auto", "staged", "ipc", "nccl"},
           "how ranks move the memory of GPUs: staged = through page-locked memory of the host, ipc = from GPU to GPU "
           "within a host, nccl where each rank has a GPU of its own; auto = the last of these that can be had"),
      text(
          "comm", "topology", Effect::kLayout, HERD_FIELD(comm.topology), {},
          "machines that algorithms are chosen for: a file of docs/formats/topology.md, torus:4x4, mesh:4x4, hosts:4x8 "
          "or racks:2x4x8, of as many ranks as the run; auto = HERD_TOPOLOGY, else what is found"),
      number("comm", "deadline_s", Effect::kNone, HERD_FIELD(comm.deadline_s), 0, 1e6,
             "seconds that a collective may take", true),

      integer("checkpoint", "every", Effect::kNone, HERD_FIELD(checkpoint.every), -1,
              "steps between checkpoints; 0 = only the last, -1 = none"),
      integer("checkpoint", "keep", Effect::kNone, HERD_FIELD(checkpoint.keep), 1, "newest checkpoints that are kept",
              1e6),
      text(
          "checkpoint", "resume", Effect::kNone, HERD_FIELD(checkpoint.resume), {},
          "auto = go on at the newest whole one of the folder's run; none = a new run; else the folder of a checkpoint "
          "that a new run begins with. A restart goes on with its own run"),
      text("checkpoint", "used_folder", Effect::kNone, HERD_FIELD(checkpoint.used_folder), {"refuse", "set_aside"},
           "what a new run does with a run that is in its folder; set_aside = moves it to set_aside/<its id> in it"),

      flag(
          "health", "check_finite", Effect::kNone, HERD_FIELD(health.check_finite),
          "stop at a loss or gradient that is no finite number, naming block, rank and step; resume from no checkpoint "
          "that holds one"),
      integer("health", "replica_hash_every", Effect::kNone, HERD_FIELD(health.replica_hash_every), 0,
              "steps between comparisons of what ranks hold in common; 0 = never"),

      text("log", "dir", Effect::kNone, HERD_FIELD(log.dir), {}, "folder of all runs"),
      text("log", "name", Effect::kNone, HERD_FIELD(log.name), {}, "folder of this run in it"),
      integer("log", "every", Effect::kNone, HERD_FIELD(log.every), 1, "steps between lines on the console"),
      integer("log", "trace_steps", Effect::kNone, HERD_FIELD(log.trace_steps), 0,
              "steps that the trace of the run holds; 0 = no trace"),
  };
}

#undef HERD_FIELD

// Writes the largest binary unit that divides the bytes, so that the text is exact.
std::string toml_bytes(int64_t bytes) {
  const char* units[] = {"TiB", "GiB", "MiB", "KiB"};
  int64_t factor = int64_t{1} << 40;
  for (const char* unit : units) {
    if (bytes != 0 && bytes % factor == 0) return "\"" + std::to_string(bytes / factor) + unit + "\"";
    factor >>= 10;
  }
  return std::to_string(bytes);
}

// Writes the largest decimal unit that divides the bytes a second.
std::string toml_rate(int64_t bytes) {
  const char* units[] = {"TB/s", "GB/s", "MB/s", "KB/s"};
  int64_t factor = 1'000'000'000'000;
  for (const char* unit : units) {
    if (bytes != 0 && bytes % factor == 0) return "\"" + std::to_string(bytes / factor) + unit + "\"";
    factor /= 1000;
  }
  return std::to_string(bytes);
}

// Makes one visitor for std::visit out of several lambdas.
template <class... F>
struct Match : F... {
  using F::operator()...;
};
template <class... F>
Match(F...) -> Match<F...>;

}  // namespace

std::string toml_quoted(const std::string& value) {
  std::string quoted = "\"";
  for (const char c : value) {
    char escape[8];
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      std::snprintf(escape, sizeof escape, "\\u%04X", static_cast<unsigned>(static_cast<unsigned char>(c)));
      quoted += escape;
    } else {
      quoted += c;
    }
  }
  return quoted + "\"";
}

std::string toml_number(double value) {
  std::string text = format_number(value);
  return text.find_first_of(".en") == std::string::npos ? text + ".0" : text;
}

std::string_view on_resume(Effect effect) {
  switch (effect) {
    case Effect::kModel:
    case Effect::kRun:
      return "refused";
    case Effect::kTraining:
      return "other losses";
    case Effect::kLayout:
      return "same losses";
    case Effect::kBeginning:
      return "not read";
    case Effect::kNone:
      return "same bits";
  }
  return "";
}

std::string Key::full_name() const { return std::string(section) + "." + std::string(name); }

std::span<const Key> run_keys() {
  static const std::vector<Key> keys = make_keys();
  return keys;
}

const Key& run_key(std::string_view full_name) {
  for (const Key& key : run_keys()) {
    if (key.full_name() == full_name) return key;
  }
  throw Error(Code::kBug, "the run file has no key " + std::string(full_name));
}

KeyValue value_of(const Key& key, const RunFile& run) {
  RunFile copy = run;  // the fields are accessors of a mutable RunFile
  return std::visit(Match{[&](BytesField field) -> KeyValue { return field.at(copy); },
                          [&](AutoField field) -> KeyValue { return field.at(copy); },
                          [&](auto field) -> KeyValue { return field(copy); }},
                    key.field);
}

void set_value(const Key& key, RunFile& run, const KeyValue& value) {
  const auto set = [&](auto& target) {
    const auto* new_value = std::get_if<std::remove_reference_t<decltype(target)>>(&value);
    HERD_CHECK(new_value != nullptr, key.full_name() + " is " + type_name(key));
    target = *new_value;
  };
  std::visit(Match{[&](BytesField field) { set(field.at(run)); }, [&](AutoField field) { set(field.at(run)); },
                   [&](auto field) { set(field(run)); }},
             key.field);
}

std::string type_name(const Key& key) {
  return std::visit(Match{[](IntegerField) { return "integer"; }, [](NumberField) { return "number"; },
                          [](BoolField) { return "true or false"; }, [](TextField) { return "text"; },
                          [](PairField) { return "pair of numbers"; },
                          [](BytesField field) { return field.per_second ? "bytes a second" : "bytes"; },
                          [](AutoField) { return "integer or auto"; }},
                    key.field);
}

std::string range_text(const Key& key) {
  std::string choices;
  for (const auto choice : key.choices) choices += (choices.empty() ? "" : " | ") + std::string(choice);
  if (!choices.empty() || std::holds_alternative<TextField>(key.field)) return choices;
  if (std::holds_alternative<BoolField>(key.field)) return "";
  if (key.max >= kMany) return (key.above_min ? "> " : ">= ") + format_number(key.min);
  const std::string begin = (key.above_min ? "in (" : "in [") + format_number(key.min) + ", ";
  return key.max == kBelowOne ? begin + "1)" : begin + format_number(key.max) + "]";
}

std::string value_toml(const Key& key, const RunFile& run) {
  RunFile copy = run;  // the fields are accessors of a mutable RunFile
  return std::visit(
      Match{
          [&](IntegerField field) { return std::to_string(field(copy)); },
          [&](NumberField field) { return toml_number(field(copy)); },
          [&](BoolField field) { return std::string(field(copy) ? "true" : "false"); },
          [&](TextField field) { return toml_quoted(field(copy)); },
          [&](PairField field) { return "[" + toml_number(field(copy)[0]) + ", " + toml_number(field(copy)[1]) + "]"; },
          [&](BytesField field) { return field.per_second ? toml_rate(field.at(copy)) : toml_bytes(field.at(copy)); },
          [&](AutoField field) {
            return field.at(copy) == kAuto ? std::string("\"auto\"") : std::to_string(field.at(copy));
          }},
      key.field);
}

std::string run_file_guide(const std::map<std::string, std::string>& refused) {
  std::string out =
      "# The run file\n\n"
      "A run is one TOML file: `herd train FILE.toml [section.key=value ...]`. Every key has a default, so an empty "
      "file "
      "is a run too;\nwhat stands on the command line wins. An unknown key, a wrong type or an impossible number stops "
      "the run before it starts, with\nthe line, the rule and the nearest valid name. The resolved file is stored "
      "beside "
      "the run as `config.toml`.\n\n"
      "Sequences per optimizer step (`train.batch`) do not depend on the number of ranks: the ranks share them, floor "
      "or "
      "ceil each, and\na rank runs ceil(its share / `train.micro_batch`) micro-batches, the same count on all "
      "ranks.\n\n"
      "What a run that goes on from a checkpoint gives with another value: refused; other losses from there on; the "
      "same losses but for\nrounding; the same bits; or the value is not read, since the run has begun.\n\n"
      "Where a cell says **not yet**, the file may state these values and herd plan may answer by equations, but this "
      "version does not\ntrain them.\n\n"
      "This page is generated from the table in `herd/spec/run_keys.cpp`.\n";
  const RunFile defaults;
  std::string_view section;
  for (const Key& key : run_keys()) {
    if (key.section != section) {
      section = key.section;
      out += "\n## [" + std::string(section) +
             "]\n\n| key | type | default | allowed | resumed with another | meaning |\n|---|---|---|---|---|---|\n";
    }
    std::string allowed;
    for (const char c : range_text(key)) allowed += c == '|' ? std::string("\\|") : std::string(1, c);
    if (const auto found = refused.find(key.full_name()); found != refused.end())
      allowed += (allowed.empty() ? "" : "; ") + ("**not yet**: " + found->second);
    out += "| `" + std::string(key.name) + "` | " + type_name(key) + " | `" + value_toml(key, defaults) + "` | " +
           allowed + " | " + std::string(on_resume(key.effect)) + " | " + std::string(key.doc) + " |\n";
  }
  return out;
}

std::string run_keys_help() {
  constexpr size_t kMeaningColumn = 34;
  std::string out = "Keys of the run file, with their defaults; on the command line as section.key=value\n";
  const RunFile defaults;
  std::string_view section;
  for (const Key& key : run_keys()) {
    if (key.section != section) {
      section = key.section;
      out += "[" + std::string(section) + "]\n";
    }
    std::string line = "  " + std::string(key.name) + " = " + value_toml(key, defaults);
    line.resize(std::max(line.size() + 2, kMeaningColumn), ' ');
    const std::string allowed = range_text(key);
    out += line + std::string(key.doc) + (allowed.empty() ? "" : " (" + allowed + ")") + "\n";
  }
  return out;
}

}  // namespace herd::spec
