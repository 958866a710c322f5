#include "herd/strategies/compression.h"

#include <algorithm>
#include <set>
#include <vector>

#include "herd/base/error.h"
#include "herd/program/collective_message.h"
#include "herd/program/program_names.h"
#include "herd/strategies/zero1.h"

namespace herd::strategies {

using program::Codec;
using program::Op;
using program::OpKind;
using program::Value;

namespace {

Value in_bf16(const Value& value) { return in_codec(value, Codec::kBf16); }

bool reduces_gradients(const Op& op) {
  return is_collective(op) && !op.writes.empty() && op.writes[0].kind == program::ValueKind::kGradient;
}

// Rewrites a step so that reductions of gradients read and write bf16. Takes the ops in order.
class ReductionEncoder {
 public:
  explicit ReductionEncoder(program::Program step) : step_(std::move(step)) {}

  program::Program rewrite() {
    for (Op& op : step_.ops) {
      if (reduces_gradients(op))
        add_reduction(std::move(op));
      else
        add_other(std::move(op));
    }
    step_.ops = std::move(ops_);
    return std::move(step_);
  }

 private:
  // Adds a reduction, after an op that encodes those of its gradients that are not encoded yet. Its sums stay encoded
  // until an op reads one.
  void add_reduction(Op op) {
    std::vector<Value> not_encoded;
    for (const Value& value : op.reads) {
      if (!encoded_sums_.contains(value)) not_encoded.push_back(value);
    }
    if (!not_encoded.empty())
      ops_.push_back({.kind = OpKind::kEncode, .reads = not_encoded, .writes = declare_encoded(not_encoded)});
    for (const Value& value : op.reads) encoded_sums_.erase(value);
    encoded_sums_.insert(op.writes.begin(), op.writes.end());
    op.reads = declare_encoded(op.reads);
    op.writes = declare_encoded(op.writes);
    ops_.push_back(std::move(op));
  }

  // Adds any other op. Decodes all encoded sums before it if it reads one of them.
  void add_other(Op op) {
    const auto is_encoded = [&](const Value& value) { return encoded_sums_.contains(value); };
    if (std::ranges::any_of(op.reads, is_encoded)) {
      const std::vector<Value> all(encoded_sums_.begin(), encoded_sums_.end());
      ops_.push_back({.kind = OpKind::kDecode, .reads = declare_encoded(all), .writes = all});
      encoded_sums_.clear();
    }
    ops_.push_back(std::move(op));
  }

  // Adds the values in bf16 to the values of the step, at half the bytes, and returns them.
  std::vector<Value> declare_encoded(std::vector<Value> values) {
    for (Value& value : values) {
      program::ValueInfo info = step_.values.at(value);
      info.bytes /= 2;
      value = in_bf16(value);
      step_.values[value] = info;
    }
    return values;
  }

  program::Program step_;
  std::vector<Op> ops_;
  std::set<Value> encoded_sums_;  // gradients, as the step knows them, whose sums are in bf16
};

}  // namespace

std::string Compression::name() const { return "gradients in bf16 between ranks"; }

program::Program Compression::rewrite(program::Program step) const {
  return ReductionEncoder(std::move(step)).rewrite();
}

Technique compression_row() {
  return {.name = "compression",
          .rewrite_for = [](const StepContext& step) -> std::unique_ptr<Strategy> {
            if (step.run.strategy.compression != "bf16" || step.layout.data_ranks() == 1) return nullptr;
            if (step.model.gradient_dtype != DType::kF32)
              throw Error(Code::kBadConfig,
                          "strategy.compression = \"bf16\" encodes fp32 gradients, and these have 16 bits already\n"
                          "  fix: strategy.compression = \"none\", or strategy.gradient_precision = \"fp32\"");
            if (zero_stage(step.run, step.layout) >= 2)
              throw Error(
                  Code::kBadConfig,
                  "strategy.compression = \"bf16\" encodes sums that are made once a step, and strategy.zero = " +
                      std::to_string(zero_stage(step.run, step.layout)) +
                      " adds to them after each micro-batch\n  fix: strategy.zero = " +
                      (step.layout.fsdp > 1 ? "1" : "0 or 1") + ", or strategy.compression = \"none\"");
            return std::make_unique<Compression>();
          },
          .supports = {{"strategy.compression", {"bf16"}}}};
}

}  // namespace herd::strategies
