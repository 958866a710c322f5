// Defines the run file, everything that defines a run, in TOML. run_keys.h declares each key once (name, type, range,
// text); parsing, printing and docs/guide/run_file.md come from that table, and defaults from the initialisers below.
// Threads: plain data and pure functions.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace herd::spec {

class ChainTable;

inline constexpr int64_t kAuto = -1;  // a number that herd chooses: "auto"

struct RunFile {
  struct Model {
    std::string kind = "gpt";
    int64_t layers = 12, width = 768, heads = 12;
    int64_t kv_heads = 0;    // 0 = heads; never 0 after parsing
    int64_t head_width = 0;  // 0 = width / heads; never 0 after parsing
    int64_t ffn = 0;         // 0 = 4 * width; never 0 after parsing
    int64_t context = 256, vocab = 4096;
    double dropout = 0;
    bool tie_embeddings = true;
    std::string norm = "layernorm";
    double norm_eps = 1e-5;
    double rope_theta = 10000;
    std::string rope_scaling = "none";
    double rope_factor = 1, rope_low_freq_factor = 1, rope_high_freq_factor = 4;
    int64_t rope_original_context = 8192;
    std::string weights = "none";  // a checkpoint whose weights the run starts from; none = weights from the seed
    std::string frozen = "none";   // patterns of parameters that are not trained (frozen.h)
    bool qkv_bias = false;         // of llama and moe: queries, keys and values have a bias; those of gpt always have
    bool qk_norm = false;          // of llama and moe: an RMS norm of each head of queries and keys
    // Of a mixture of experts (kind = "moe").
    int64_t experts = 8, top_k = 2, shared_experts = 0;
    bool shared_gate = false;  // a sigmoid of each token scales what the shared experts give it
    int64_t dense_layers = 0;  // first layers, which have a feed-forward network of width ffn in place of experts
    int64_t expert_ffn = 0;    // 0 = ffn
    std::string router = "softmax";
    bool normalize_weights = true;
    double capacity_factor = 0;  // 0 = no token is dropped
    double balance_loss = 0.01, z_loss = 0;
    double bias_balancing = 0;  // speed of the routers' biases; 0 = none
    bool is_moe() const { return kind == "moe"; }
    bool is_bert() const { return kind == "bert"; }
    bool is_rotary() const { return kind == "llama" || kind == "moe"; }
    int64_t width_of_expert() const { return expert_ffn > 0 ? expert_ffn : ffn > 0 ? ffn : 4 * width; }
    bool has_router_losses() const { return is_moe() && (balance_loss > 0 || z_loss > 0); }
    // Routers whose losses or capacity are of whole sequences.
    bool routes_whole_sequences() const { return is_moe() && (has_router_losses() || capacity_factor > 0); }
    bool has_shared_gate() const { return is_moe() && shared_experts > 0 && shared_gate; }
    bool has_qkv_bias() const { return is_rotary() && qkv_bias; }
    bool has_qk_norm() const { return is_rotary() && qk_norm; }
    bool operator==(const Model&) const = default;
  } model;
  struct Data {
    std::string kind = "tokens", path = "data/kjv";
    std::string packing = "none";
    double masked_fraction = 0.15;  // of bert: tokens of a sequence that are predicted
    int64_t mask_token = -1;        // of bert: the token in their place; -1 = the first one that the data has not
    bool packs_documents() const { return packing == "documents"; }
    bool operator==(const Data&) const = default;
  } data;
  struct Train {
    int64_t steps = 200, batch = 12, micro_batch = 2, seed = 1;
    int64_t eval_every = 50;  // steps
    int64_t eval_batches = 8;
    double max_minutes = 0;  // limit of the job, restarts included; 0 = no limit
    int64_t threads = 0;     // torch threads of a rank; 0 = cores / ranks of the host
    std::string record_routing = "none", replay_routing = "none";  // folders of the experts that tokens go to
    bool records_routing() const { return record_routing != "none"; }
    bool replays_routing() const { return replay_routing != "none"; }
    bool operator==(const Train&) const = default;
  } train;
  struct Optimizer {
    std::string kind = "adamw";
    double lr = 3e-4, lr_min = 0;
    std::array<double, 2> betas = {0.9, 0.95};
    double eps = 1e-8, momentum = 0.9, weight_decay = 0.1;
    int64_t freeze_step = 0;  // of AdamW: steps after which the second moment stands still; 0 = none
    std::string momentum_precision = "fp32";
    int64_t warmup_steps = 0;
    std::string schedule = "cosine";
    double clip = 1;  // 0 = off
    bool operator==(const Optimizer&) const = default;
  } optimizer;
  struct Mesh {
    int64_t dp = 0;  // 0 = the ranks that the other axes leave over
    int64_t fsdp = 1, tp = 1, pp = 1, cp = 1, ep = 1;
    int64_t ranks_per_host = 0;  // 0 = as the cluster has them
    bool operator==(const Mesh&) const = default;
  } mesh;
  struct Strategy {
    int64_t zero = 0;
    std::string shard = "slices";  // what ZeRO gives a data rank of each parameter group: slices, layers
    std::string recompute = "none", precision = "fp32", gradient_precision = "same", pipeline = "1f1b",
                offload = "none", compression = "none", gather_codec = "none", context = "all_to_all";
    double compression_ratio = 0.01;               // topk: part of the elements that each rank sends
    std::string compression_levels = "multiples";  // of int8 and int4
    int64_t compression_warmup = 0;                // steps whose gradients are not compressed
    std::string compression_exclude = "none";      // patterns of parameters whose gradients stay in fp32
    std::string sync = "all_reduce";               // how gradients become weights: all_reduce, server, server_async
    int64_t servers = 0;                           // data ranks that serve with sync = "server.."; 0 = all of them
    int64_t dedicated_servers = 0;                 // with sync = "server..": the last ranks, which serve alone
    int64_t staleness = -1;                        // with server_async: steps ahead of the slowest; -1 = no bound
    bool automatic = false;                        // auto: herd chooses zero, recompute and micro_batch
    bool secondary_shard = false;                  // ZeRO-3: a second shard of weights, over the ranks of a host
    bool sequence_parallel = true;                 // with mesh.tp: norms, sums and dropout work on a part of the rows
    bool keep_gathered = true;                     // with sequence_parallel: blocks keep gathered inputs for backward
    int64_t prefetch = kAuto;                      // block passes ahead of their use at which ZeRO-3 gathers weights
    int64_t keep_whole = kAuto;                    // parameter groups whose weights ZeRO-3 keeps whole through a step
    std::string offload_activations = "none";      // where inputs of recomputed blocks wait for backward
    bool delayed_update = false;                   // with offload: a step's update runs beside the next step's passes
    int64_t window = kAuto;                   // block passes whose weights are on the device with offload = "window"
    int64_t file_layers = kAuto;              // last layers whose weights and states lie in files, with a window
    std::string direct_host = "none";         // blocks whose passes read weights on the host, with offload = "window"
    int64_t stages_per_rank = kAuto;          // of a pipeline
    std::string order = "micro_batch_major";  // of passes without a pipeline: micro_batch_major, layer_major
    int64_t interleave_micro_batches = 1;     // with mesh.tp or ep: those that take turns; 1 = each by itself
    int64_t bucket = 25 << 20;                // bytes of gradient reduced at a time
    std::string schedule = "fifo";            // order of reductions: fifo, priority
    int64_t partition_bytes = kAuto;          // priority: bytes of gradient reduced at a time
    int64_t credit = kAuto;                   // priority: partitions handed over after each backward pass
    bool operator==(const Strategy&) const = default;
  } strategy;
  struct Device {
    std::string kind = "auto";  // of device that a rank computes on
    bool operator==(const Device&) const = default;
  } device;
  struct Memory {
    int64_t device_budget = 0, host_budget = 0;  // bytes per rank; 0 = no limit
    int64_t link = 0;                            // bytes a second to which copies are slowed; 0 = no limit
    std::string nvme_path = "auto";              // folders of files that strategy.offload = "nvme" keeps, as in PATH
    int64_t nvme_bandwidth = 0;                  // bytes a second of those files; 0 = measured
    bool operator==(const Memory&) const = default;
  } memory;
  struct Comm {
    std::string transport = "auto", algorithm = "auto", topology = "auto";
    std::string device_engine = "auto";  // how collectives on a device's memory move their bytes
    double deadline_s = 60;
    bool operator==(const Comm&) const = default;
  } comm;
  struct Checkpoint {
    int64_t every = 100;  // steps
    int64_t keep = 2;     // newest checkpoints that are kept
    std::string resume = "auto";
    std::string used_folder = "refuse";  // what a new run does with a folder of another: refuse, set_aside
    bool operator==(const Checkpoint&) const = default;
  } checkpoint;
  struct Health {
    bool check_finite = true;
    int64_t replica_hash_every = 100;  // steps; 0 = off
    bool operator==(const Health&) const = default;
  } health;
  struct Log {
    std::string dir = "runs", name = "run";
    int64_t every = 1;        // steps
    int64_t trace_steps = 2;  // steps that the trace of a run holds; 0 = none
    bool operator==(const Log&) const = default;
  } log;
  // Table of a chain of own blocks (herd/chain), which no key describes; set where model.kind = "chain", by the program
  // that has the blocks. The text of a run file does not hold it.
  std::shared_ptr<const ChainTable> chain = nullptr;
  bool operator==(const RunFile&) const = default;
};

// Holds the model of the weights that a run begins with.
struct GivenModel {
  RunFile::Model model;
  std::string source;  // place of the weights, for messages
};
// Finds that model from the values that a run file states, before its rules are checked; nothing where a run begins
// with no weights.
using FindModel = std::function<std::optional<GivenModel>(const RunFile& stated)>;

// Read a run file or its text, then each override "section.key=value", where a string needs no quotes. A key that is
// left out gets its default; keys that say what a model is get the value of the model that `find_model` finds.
// Throw kBadConfig with key, line (or override), the rule with its values, and for an unknown name the nearest valid
// one. They also throw as check_same_model(), and kStorage if the file can't be read.
RunFile parse_run_file(const std::string& path, std::span<const std::string> overrides = {},
                       const FindModel& find_model = {});
RunFile parse_run_text(std::string_view toml, const std::string& name, std::span<const std::string> overrides = {},
                       const FindModel& find_model = {});

// Returns the folders that memory.nvme_path names; none where it is "auto".
std::vector<std::string> nvme_folders(const RunFile& run);

// Writes every key with its value, so that parse_run_text(to_toml(run)) == run.
std::string to_toml(const RunFile& run);

}  // namespace herd::spec
