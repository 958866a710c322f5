#include <algorithm>
#include <filesystem>
#include <set>
#include <string>

#include "herd/base/error.h"
#include "herd/spec/run_file_rules_internal.h"

namespace herd::spec {
namespace {

constexpr double kMostElements = 1e17;  // 2^63 is 92 times as many, which leaves room for bytes, gradients and states

void require(bool holds, const std::string& rule, const std::string& fix) {
  if (!holds) throw Error(Code::kBadConfig, rule + "\n  fix: " + fix);
}

int64_t divisor_at_most(int64_t number, int64_t limit) {
  constexpr int64_t kMostTried = 100000;
  for (int64_t d = std::min({limit, number, kMostTried}); d > 1; --d) {
    if (number % d == 0) return d;
  }
  return 1;
}

// The folder of a run stays inside log.dir, and is not log.dir itself.
void check_name(const std::string& name) {
  const auto normal = std::filesystem::path(name).lexically_normal();
  const bool inside = !normal.empty() && !normal.is_absolute() && *normal.begin() != ".." && *normal.begin() != ".";
  require(inside, "log.name must name a folder inside log.dir, got \"" + name + "\"",
          "log.name = \"run\", and log.dir for where it is to be");
}

// Refuses a model whose weights, or whose activations of one micro-batch, are too many to count their bytes in 64 bits.
void check_sizes(const RunFile& run) {
  const auto& model = run.model;
  const auto as_double = [](int64_t value) { return static_cast<double>(value); };
  const double inner = as_double(std::max({model.width, model.ffn, model.expert_ffn, model.heads * model.head_width}));
  const double copies = model.is_moe() ? as_double(model.experts + model.shared_experts) : 1;
  const double weights = as_double(model.layers) * inner * as_double(model.width) * (4 + 4 * copies) +
                         as_double(model.vocab) * as_double(model.width);
  const double kept_per_token =
      as_double(model.layers) * (40 * inner * (model.is_moe() ? as_double(model.top_k + model.shared_experts) : 1) +
                                 5 * as_double(model.heads) * as_double(model.context));
  const double elements = std::max(weights, as_double(run.train.micro_batch) * as_double(model.context) *
                                                (kept_per_token + 4 * as_double(model.vocab)));
  require(elements <= kMostElements,
          "the model's elements are too many to count: layers " + std::to_string(model.layers) + ", width " +
              std::to_string(model.width) + ", ffn " + std::to_string(model.ffn) + ", vocab " +
              std::to_string(model.vocab) + ", context " + std::to_string(model.context) + ", micro_batch " +
              std::to_string(run.train.micro_batch),
          "model.context = 1024, train.micro_batch = 1, or a smaller model");
}

// Refuses a key that models of another kind have. `stated` is the key with its value, `without` the key's default.
void require_kind(bool holds, const RunFile::Model& model, const std::string& stated, const std::string& kinds,
                  const std::string& without) {
  require(holds, stated + " is of " + kinds + ", but model.kind = \"" + model.kind + "\"",
          without + ", or model.kind = \"" + kinds.substr(0, kinds.find(' ')) + "\"");
}

void check_rotary(const RunFile::Model& model) {
  if (!model.is_rotary()) {
    const std::string kinds = "llama and moe";
    require_kind(model.rope_scaling == "none", model, "model.rope_scaling = \"" + model.rope_scaling + "\"", kinds,
                 "model.rope_scaling = \"none\"");
    require_kind(!model.qkv_bias, model, "model.qkv_bias = true", kinds, "model.qkv_bias = false");
    require_kind(!model.qk_norm, model, "model.qk_norm = true", kinds, "model.qk_norm = false");
    return;
  }
  require(model.head_width % 2 == 0,
          "heads of " + model.kind + " turn in pairs of elements: model.head_width must be even, got " +
              std::to_string(model.head_width),
          "model.head_width = " + std::to_string(model.head_width + 1));
  require(model.rope_scaling != "llama3" || model.rope_low_freq_factor < model.rope_high_freq_factor,
          "model.rope_low_freq_factor must be less than model.rope_high_freq_factor: " +
              std::to_string(model.rope_low_freq_factor) + " and " + std::to_string(model.rope_high_freq_factor),
          "model.rope_low_freq_factor = 1 and model.rope_high_freq_factor = 4");
}

void check_experts(const RunFile& run) {
  const RunFile::Model& model = run.model;
  if (!model.is_moe()) {
    require_kind(!model.shared_gate, model, "model.shared_gate = true", "moe", "model.shared_gate = false");
    require_kind(model.dense_layers == 0, model, "model.dense_layers = " + std::to_string(model.dense_layers), "moe",
                 "model.dense_layers = 0");
    require_kind(!run.train.records_routing(), model, "train.record_routing = \"" + run.train.record_routing + "\"",
                 "moe", "train.record_routing = \"none\"");
    require_kind(!run.train.replays_routing(), model, "train.replay_routing = \"" + run.train.replay_routing + "\"",
                 "moe", "train.replay_routing = \"none\"");
    return;
  }
  const auto& train = run.train;
  require(!train.records_routing() || !train.replays_routing() ||
              std::filesystem::path(train.record_routing).lexically_normal() !=
                  std::filesystem::path(train.replay_routing).lexically_normal(),
          "train.record_routing and train.replay_routing name one folder, \"" + train.record_routing +
              "\", whose record a run would write over",
          "another folder for train.record_routing, or \"none\"");
  require(model.top_k <= model.experts,
          "model.top_k must not exceed model.experts: " + std::to_string(model.top_k) + " > " +
              std::to_string(model.experts),
          "model.top_k = " + std::to_string(std::min<int64_t>(2, model.experts)));
  require(model.dense_layers < model.layers,
          "model.dense_layers must be less than model.layers, of which at least one has experts: " +
              std::to_string(model.dense_layers) + " and " + std::to_string(model.layers),
          "model.dense_layers = " + std::to_string(model.layers - 1) + ", or model.kind = \"llama\" without it");
  require(!model.shared_gate || model.shared_experts > 0,
          "model.shared_gate is of shared experts, and model.shared_experts = 0",
          "model.shared_experts = 1, or model.shared_gate = false");
  require(model.bias_balancing == 0 || run.strategy.sync != "server_async",
          "model.bias_balancing = " + std::to_string(model.bias_balancing) +
              " moves biases by the tokens of all ranks in each step, which strategy.sync = \"server_async\" never "
              "waits for",
          "strategy.sync = \"server\", or model.bias_balancing = 0");
}

void check_servers(const RunFile& run) {
  const auto& strategy = run.strategy;
  if (strategy.dedicated_servers == 0) return;
  const std::string servers = "strategy.dedicated_servers = " + std::to_string(strategy.dedicated_servers);
  require(strategy.sync != "all_reduce",
          servers + " has nobody to serve: with strategy.sync = \"all_reduce\" ranks update by themselves",
          "strategy.sync = \"server\", or strategy.dedicated_servers = 0");
  require(strategy.servers == 0,
          servers + " serve in place of ranks that train, and strategy.servers = " + std::to_string(strategy.servers) +
              " asks for these",
          "strategy.servers = 0, or strategy.dedicated_servers = 0");
}

void check_packing(const RunFile& run) {
  if (!run.data.packs_documents()) return;
  const std::string packing = "data.packing = \"documents\"", fix = "data.packing = \"none\"";
  require(run.model.kind == "gpt" || run.model.kind == "llama" || run.model.is_moe(),
          packing + " is of decoders whose sequences can be of several documents, gpt, llama and moe; model.kind = \"" +
              run.model.kind + "\" is not",
          fix + ", or model.kind = \"llama\"");
  require(run.data.kind != "function",
          packing + " is of tokens that herd reads, but data.kind = \"function\" makes its own batches", fix);
}

bool has_rms_norm(const RunFile::Model& model) { return model.is_rotary() || model.kind == "t5"; }

void require_divides(const char* what, int64_t divisor, const char* whole_name, int64_t whole) {
  if (whole % divisor == 0) return;
  const std::string divisor_text = std::to_string(divisor), whole_text = std::to_string(whole);
  throw Error(Code::kBadConfig, std::string(what) + " must divide " + whole_name + ": " + whole_text + " % " +
                                    divisor_text + " = " + std::to_string(whole % divisor) + "\n  fix: " + what +
                                    " = " + std::to_string(divisor_at_most(whole, divisor)));
}

}  // namespace

void fill_derived(RunFile& run) {
  const auto& model = run.model;
  if (model.head_width == 0) require_divides("model.heads", model.heads, "model.width", model.width);
  if (model.head_width == 0) run.model.head_width = model.width / model.heads;
  if (model.norm.empty()) run.model.norm = has_rms_norm(model) ? "rmsnorm" : "layernorm";
  if (run.model.kv_heads == 0) run.model.kv_heads = run.model.heads;
  if (run.model.ffn == 0) run.model.ffn = 4 * run.model.width;
}

void check_rules(const RunFile& run) {
  check_name(run.log.name);
  check_sizes(run);
  const auto& model = run.model;
  require_divides("model.kv_heads", model.kv_heads, "model.heads", model.heads);
  check_rotary(model);
  check_experts(run);
  check_packing(run);
  check_servers(run);
  require(
      model.norm == "rmsnorm" || !has_rms_norm(model),
      "model.kind = \"" + model.kind + "\" has RMS norms: model.norm must be \"rmsnorm\", got \"" + model.norm + "\"",
      "model.norm = \"rmsnorm\", or leave it out");
  const auto& optimizer = run.optimizer;
  require(optimizer.lr_min <= optimizer.lr,
          "optimizer.lr_min must not exceed optimizer.lr: " + std::to_string(optimizer.lr_min) + " > " +
              std::to_string(optimizer.lr),
          "optimizer.lr_min = 0");
  require(optimizer.warmup_steps <= run.train.steps,
          "optimizer.warmup_steps must not exceed train.steps: " + std::to_string(optimizer.warmup_steps) + " > " +
              std::to_string(run.train.steps),
          "optimizer.warmup_steps = " + std::to_string(run.train.steps / 10));
  require(optimizer.freeze_step == 0 || optimizer.kind == "adamw",
          "optimizer.freeze_step = " + std::to_string(optimizer.freeze_step) +
              " freezes the second moment of AdamW, and optimizer.kind = \"" + optimizer.kind + "\" has none",
          "optimizer.freeze_step = 0, or optimizer.kind = \"adamw\"");
  const bool is_chain = model.kind == "chain";  // its blocks are counted by the trace, not by model.layers
  const int64_t stacks = model.kind == "t5" ? 2 : 1, blocks = stacks * model.layers + 2;
  require(is_chain || run.mesh.pp <= blocks,
          "mesh.pp must not exceed the blocks of the model: " + std::to_string(run.mesh.pp) + " > " +
              (stacks > 1 ? std::to_string(stacks) + " * " : "") + "layers " + std::to_string(model.layers) + " + 2",
          "mesh.pp = " + std::to_string(blocks) + " or less");
  require(run.strategy.interleave_micro_batches == 1 || (run.mesh.pp == 1 && (run.mesh.tp > 1 || run.mesh.ep > 1)),
          "strategy.interleave_micro_batches = " + std::to_string(run.strategy.interleave_micro_batches) +
              " needs mesh.tp > 1 or mesh.ep > 1, whose collectives it hides, and mesh.pp = 1, since a pipeline has an "
              "order of its own, got mesh.tp = " +
              std::to_string(run.mesh.tp) + ", mesh.ep = " + std::to_string(run.mesh.ep) +
              " and mesh.pp = " + std::to_string(run.mesh.pp),
          "strategy.interleave_micro_batches = 1");
  require(
      run.strategy.order != "layer_major" || run.mesh.pp == 1,
      "strategy.order = \"layer_major\" needs mesh.pp = 1, since a pipeline has an order of its own, got mesh.pp = " +
          std::to_string(run.mesh.pp),
      "strategy.order = \"micro_batch_major\" with strategy.pipeline = \"gpipe\"");
  require(run.strategy.order != "layer_major" || run.strategy.interleave_micro_batches == 1,
          "strategy.order = \"layer_major\" takes all micro-batches through a layer, so none take turns, got "
          "strategy.interleave_micro_batches = " +
              std::to_string(run.strategy.interleave_micro_batches),
          "strategy.interleave_micro_batches = 1");
  require(run.strategy.direct_host == "none" || run.strategy.offload == "window" || run.strategy.offload == "nvme_all",
          "strategy.direct_host = \"" + run.strategy.direct_host +
              "\" reads weights that strategy.offload = \"window\" or \"nvme_all\" brings to the host, got "
              "strategy.offload = \"" +
              run.strategy.offload + "\"",
          "strategy.direct_host = \"none\", or strategy.offload = \"window\" or \"nvme_all\"");
  require(run.strategy.file_layers <= 0 || run.strategy.offload == "window",
          "strategy.file_layers = " + std::to_string(run.strategy.file_layers) +
              " moves what strategy.offload = \"window\" keeps on the host to files, got strategy.offload = \"" +
              run.strategy.offload + "\"",
          "strategy.file_layers = 0, or strategy.offload = \"window\"");
  std::set<std::string> folders;
  for (const std::string& folder : nvme_folders(run)) {
    require(
        !folder.empty() && folders.insert(std::filesystem::path(folder).lexically_normal().string()).second,
        "memory.nvme_path names folders with a colon between each two, each once, got \"" + run.memory.nvme_path + "\"",
        "memory.nvme_path = \"/drive1/herd:/drive2/herd\"");
  }
  const std::string& recompute = run.strategy.recompute;
  const int64_t layers = stacks * model.layers;
  require(
      is_chain || !recompute.starts_with("every:") || std::stoll(recompute.substr(6)) <= layers,
      "K of strategy.recompute = \"every:K\" must not exceed the layers: " + recompute.substr(recompute.find(':') + 1) +
          " > " + (stacks > 1 ? std::to_string(stacks) + " * " : "") + std::to_string(model.layers),
      "strategy.recompute = \"every:" + std::to_string(layers) + "\" or less");
}

}  // namespace herd::spec
