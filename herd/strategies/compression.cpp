#include "herd/strategies/compression.h"

#include <algorithm>
#include <set>
#include <vector>

#include "herd/base/error.h"
#include "herd/kernels/encoded_parts.h"
#include "herd/program/collective_message.h"
#include "herd/program/program_names.h"
#include "herd/strategies/encoded_shards.h"
#include "herd/strategies/server_sync.h"
#include "herd/strategies/zero1.h"

namespace herd::strategies {

using program::Lane;
using program::Op;
using program::OpKind;
using program::Tier;
using program::Value;

namespace {

bool reduces_gradients(const Op& op) {
  return is_collective(op) && !op.writes.empty() && op.writes[0].kind == program::ValueKind::kGradient;
}

// Says how many bytes the encoded form of a gradient has, and its residual.
struct EncodedBytes {
  int64_t message = 0, residual = 0;
};

// Rewrites a step so that reductions of gradients read and write the codec. Takes the ops in order.
class ReductionEncoder {
 public:
  // `num_exact` counts the elements of each group that stay exact; `num_servers` get pushes.
  ReductionEncoder(program::Program step, const GradientCodec& codec, std::vector<int64_t> num_exact, int num_servers)
      : step_(std::move(step)), codec_(codec), num_exact_(std::move(num_exact)), num_servers_(num_servers) {}

  program::Program rewrite() {
    for (Op& op : step_.ops) {
      if (op.kind == OpKind::kPush)
        add_push(std::move(op));
      else if (reduces_gradients(op))
        add_reduction(std::move(op));
      else
        add_other(std::move(op));
    }
    step_.ops = std::move(ops_);
    return std::move(step_);
  }

 private:
  // Adds a reduction, after an op that encodes those of its gradients that are not encoded yet. Its sums stay encoded
  // until an op reads one. Gradients that are exact throughout are reduced as they are, by an op of their own.
  void add_reduction(Op op) {
    Op exact = op;
    std::erase_if(exact.reads, [&](const Value& value) { return !is_exact(value); });
    std::erase_if(exact.writes, [&](const Value& value) { return !is_exact(value); });
    std::erase_if(op.reads, [&](const Value& value) { return is_exact(value); });
    std::erase_if(op.writes, [&](const Value& value) { return is_exact(value); });
    if (!exact.writes.empty()) ops_.push_back(std::move(exact));
    if (op.writes.empty()) return;
    std::vector<Value> not_encoded;
    for (const Value& value : op.reads) {
      if (!encoded_sums_.contains(value)) not_encoded.push_back(value);
    }
    if (!not_encoded.empty()) add_encode(not_encoded, step_.mesh.size(op.axis));
    for (const Value& value : op.reads) encoded_sums_.erase(value);
    encoded_sums_.insert(op.writes.begin(), op.writes.end());
    op.reads = declare_encoded(op.reads, step_.mesh.size(op.axis));
    op.writes = declare_encoded(op.writes, step_.mesh.size(op.axis));
    ops_.push_back(std::move(op));
  }

  // Adds a push of what an op before it encodes. Servers decode it.
  void add_push(Op op) {
    if (!is_exact(op.reads[0])) {
      add_encode(codec_.tier == Tier::kDevice ? Lane::kCompute : Lane::kHost, op.reads, op.reads,
                 step_.mesh.size(op.axis));
      // In steps of the warm-up the push works on what is not encoded, which is to have no other in its place.
      if (codec_.warmup_steps > 0) step_.values.at(op.reads[0]).pooled = false;
      op.reads = declare_encoded(op.reads, step_.mesh.size(op.axis));
    }
    ops_.push_back(std::move(op));
  }

  // A device's gradients are encoded on the host, one by one, so that few copies of them lie there at a time.
  void add_encode(const std::vector<Value>& gradients, int num_ranks) {
    if (codec_.tier == Tier::kDevice) return add_encode(Lane::kCompute, gradients, gradients, num_ranks);
    for (const Value& value : gradients) {
      ops_.push_back({.kind = OpKind::kEvict, .lane = Lane::kCopyOut, .reads = {value}, .writes = {on_host(value)}});
      add_encode(Lane::kHost, {on_host(value)}, {value}, num_ranks);
    }
  }

  // `plain` are `gradients` in the codec's tier.
  void add_encode(Lane lane, const std::vector<Value>& plain, const std::vector<Value>& gradients, int num_ranks) {
    Op encode{.kind = OpKind::kEncode, .lane = lane, .reads = plain, .writes = declare_encoded(gradients, num_ranks)};
    for (const Value& value : gradients) {
      if (!codec_.keeps_residuals()) break;
      const Value kept = in_tier(program::residual(value.index), codec_.tier);
      step_.values[kept] = {.bytes = bytes_of(value, num_ranks).residual, .persistent = true};
      encode.reads.push_back(kept);
      encode.writes.push_back(kept);
    }
    ops_.push_back(std::move(encode));
  }

  void add_decode(const std::vector<Value>& gradients) {
    std::vector<Value> encoded = gradients;
    for (Value& value : encoded) value = encoded_form(value);
    if (codec_.tier == Tier::kDevice) {
      ops_.push_back({.kind = OpKind::kDecode, .reads = std::move(encoded), .writes = gradients});
      return;
    }
    for (size_t i = 0; i < gradients.size(); ++i) {
      const Value host = on_host(gradients[i]);
      ops_.push_back({.kind = OpKind::kDecode, .lane = Lane::kHost, .reads = {encoded[i]}, .writes = {host}});
      ops_.push_back({.kind = OpKind::kFetch, .lane = Lane::kCopyIn, .reads = {host}, .writes = {gradients[i]}});
    }
  }

  // Returns the plain gradient on the host, and adds it to the values of the step.
  Value on_host(const Value& gradient) {
    const Value host = in_tier(gradient, Tier::kHost);
    step_.values[host] = {.bytes = step_.values.at(gradient).bytes, .pooled = true};
    return host;
  }

  Value encoded_form(const Value& gradient) const { return in_tier(in_codec(gradient, codec_.form), codec_.tier); }

  // Adds any other op. Decodes all encoded sums before it if it reads one of them, or is the first update: whatever
  // needs the norm of all gradients comes in between.
  void add_other(Op op) {
    const auto is_encoded = [&](const Value& value) { return encoded_sums_.contains(value); };
    const bool updates = op.kind == OpKind::kStep && !encoded_sums_.empty();
    if (updates || std::ranges::any_of(op.reads, is_encoded)) {
      add_decode({encoded_sums_.begin(), encoded_sums_.end()});
      encoded_sums_.clear();
    }
    ops_.push_back(std::move(op));
  }

  // Adds the values in the codec to the values of the step, and returns them.
  std::vector<Value> declare_encoded(std::vector<Value> values, int num_ranks) {
    for (Value& value : values) {
      program::ValueInfo info = step_.values.at(value);
      info.bytes = bytes_of(value, num_ranks).message;
      info.pooled = false;
      value = encoded_form(value);
      step_.values[value] = info;
    }
    return values;
  }

  int64_t elements_of(const Value& value) const {
    return step_.values.at(value).bytes / static_cast<int64_t>(sizeof(float));
  }

  bool is_exact(const Value& value) const {
    return codec_.keeps_residuals() && num_exact_.at(static_cast<size_t>(value.index)) >= elements_of(value);
  }

  // Exact elements travel, and lie, beside the encoded ones.
  EncodedBytes bytes_of(const Value& value, int num_ranks) const {
    if (!codec_.keeps_residuals()) return {step_.values.at(value).bytes / 2, 0};
    const int64_t exact = 4 * num_exact_.at(static_cast<size_t>(value.index));
    if (num_servers_ > 0) {
      const kernels::EncodedParts pieces{codec_.settings, elements_of(value), num_servers_};
      return {pieces.message_bytes() + exact, 4 * pieces.elements};
    }
    const kernels::EncodedParts parts{codec_.settings, elements_of(value), num_ranks};
    const int64_t residual = 4 * parts.residual_elements();
    if (parts.is_sparse()) return {parts.incoming_bytes() + exact, residual};
    return {parts.message_bytes() + exact, residual + parts.incoming_bytes()};
  }

  program::Program step_;
  const GradientCodec& codec_;
  std::vector<int64_t> num_exact_;
  int num_servers_;
  std::vector<Op> ops_;
  std::set<Value> encoded_sums_;  // gradients, as the step knows them, whose sums are encoded
};

std::string setting(const spec::RunFile& run) { return "strategy.compression = \"" + run.strategy.compression + "\""; }

// Tells whether gradients are summed into shards after each micro-batch, of terms in a codec in blocks.
bool sums_encoded_shards(const StepContext& step) {
  const std::string& codec = step.run.strategy.compression;
  return (codec == "int8" || codec == "int4") && zero_stage(step.run, step.layout) >= 2;
}

// Throws kBadConfig where the run's gradients cannot be encoded.
void check_run(const StepContext& step, const GradientCodec& codec) {
  const auto refuse = [&](const std::string& rule, const std::string& fix) {
    throw Error(Code::kBadConfig, setting(step.run) + " " + rule + "\n  fix: " + fix);
  };
  const int64_t zero = zero_stage(step.run, step.layout);
  if (sums_encoded_shards(step)) {
    const auto& strategy = step.run.strategy;
    const auto sums_of_zero = "keeps nothing of what it loses with strategy.zero = " + std::to_string(zero);
    if (strategy.compression_levels != "multiples")
      refuse(sums_of_zero + ", and codes multiples alone", "strategy.compression_levels = \"multiples\"");
    if (strategy.compression_warmup > 0)
      refuse(sums_of_zero + ", from the first step on", "strategy.compression_warmup = 0");
    if (strategy.compression_exclude != "none")
      refuse(sums_of_zero + ", of all parameters", "strategy.compression_exclude = \"none\"");
    return;
  }
  if (step.model.gradient_dtype != DType::kF32)
    refuse("encodes fp32 gradients, and these have 16 bits already",
           "strategy.compression = \"none\", or strategy.gradient_precision = \"fp32\"");
  if (zero >= 2)
    refuse("encodes sums that are made once a step, and strategy.zero = " + std::to_string(zero) +
               " adds to them after each micro-batch",
           std::string("strategy.zero = ") +
               (step.layout.fsdp > 1      ? "1"
                : codec.keeps_residuals() ? "0"
                                          : "0 or 1") +
               ", or strategy.compression = \"none\"");
  if (!codec.keeps_residuals()) return;
  if (zero == 1)
    refuse("sums whole gradients, and strategy.zero = 1 sums them into shards",
           "strategy.compression = \"bf16\"" + std::string(step.layout.fsdp > 1 ? "" : ", or strategy.zero = 0"));
  if (step.run.strategy.precision == "fp16")
    refuse("keeps what it loses for the next step, and the loss scale of strategy.precision = \"fp16\" changes",
           "strategy.precision = \"bf16\" with strategy.gradient_precision = \"fp32\", or strategy.compression = "
           "\"none\"");
}

}  // namespace

Compression::Compression(GradientCodec codec, std::vector<spec::ParameterGroupShape> groups, int tp, int num_servers)
    : codec_(std::move(codec)), groups_(std::move(groups)), tp_(tp), num_servers_(num_servers) {}

std::string Compression::name() const {
  return "gradients in " + std::string(program::codec_name(codec_.form)) + " between ranks";
}

program::Program Compression::rewrite(program::Program step) const {
  const int place = step.tensor_place();
  std::vector<int64_t> num_exact;
  for (const spec::ParameterGroupShape& group : groups_) num_exact.push_back(codec_.exact_elements(group, tp_, place));
  return ReductionEncoder(std::move(step), codec_, std::move(num_exact), num_servers_).rewrite();
}

Technique compression_row() {
  return {.name = "compression",
          .rewrite_for = [](const StepContext& step) -> std::unique_ptr<Strategy> {
            const bool pushes = uses_servers(step.run, step.layout);
            if (step.run.strategy.compression == "none" || (step.layout.gradient_ranks() == 1 && !pushes))
              return nullptr;
            GradientCodec codec = gradient_codec(step.run, step.model.groups);
            check_run(step, codec);
            if (sums_encoded_shards(step))
              return std::make_unique<EncodedShards>(codec.form, step.model.gradient_dtype, step.layout.local_axis,
                                                     step.layout.hosts_axis);
            const int servers = pushes ? num_servers(step.run, step.layout) : 0;
            return std::make_unique<Compression>(std::move(codec), step.model.groups, step.model.tp, servers);
          },
          .extend_proof = [](const StepContext& step,
                             program::Proof& proof) { proof.losses_kept = !sums_encoded_shards(step); },
          .supports = {{"strategy.compression", {"bf16", "topk", "int8", "int4"}},
                       {"strategy.compression_ratio", {}},
                       {"strategy.compression_levels", {}},
                       {"strategy.compression_warmup", {}},
                       {"strategy.compression_exclude", {}}}};
}

}  // namespace herd::strategies
