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

Value encoded(const Value& value) { return in_codec(value, Codec::kBf16); }

bool reduces_gradients(const Op& op) {
  return is_collective(op) && !op.writes.empty() && op.writes[0].kind == program::ValueKind::kGradient;
}

// Rewrites the ops of a step, one after the other.
class Writer {
 public:
  explicit Writer(program::Program step) : step_(std::move(step)) {}

  program::Program run() {
    for (Op& op : step_.ops) {
      if (reduces_gradients(op))
        reduce(std::move(op));
      else
        other(std::move(op));
    }
    step_.ops = std::move(ops_);
    return std::move(step_);
  }

 private:
  // Encodes what the reduction reads and is not encoded yet; its sums stay encoded in waiting_ until an op reads one.
  void reduce(Op op) {
    std::vector<Value> plain;
    for (const Value& value : op.reads) {
      if (!waiting_.contains(value)) plain.push_back(value);
    }
    if (!plain.empty()) ops_.push_back({.kind = OpKind::kEncode, .reads = plain, .writes = declared(plain)});
    for (const Value& value : op.reads) waiting_.erase(value);
    waiting_.insert(op.writes.begin(), op.writes.end());
    op.reads = declared(op.reads);
    op.writes = declared(op.writes);
    ops_.push_back(std::move(op));
  }

  // Decodes all waiting sums before an op that reads one of them.
  void other(Op op) {
    const auto waits = [&](const Value& value) { return waiting_.contains(value); };
    if (std::ranges::any_of(op.reads, waits)) {
      const std::vector<Value> all(waiting_.begin(), waiting_.end());
      ops_.push_back({.kind = OpKind::kDecode, .reads = declared(all), .writes = all});
      waiting_.clear();
    }
    ops_.push_back(std::move(op));
  }

  // Enters the values in bf16 into the step, at half the bytes, and returns them.
  std::vector<Value> declared(std::vector<Value> values) {
    for (Value& value : values) {
      program::ValueInfo info = step_.values.at(value);
      info.bytes /= 2;
      value = encoded(value);
      step_.values[value] = info;
    }
    return values;
  }

  program::Program step_;
  std::vector<Op> ops_;
  std::set<Value> waiting_;  // gradients whose sums are still encoded
};

}  // namespace

std::string Compression::name() const { return "gradients in bf16 between ranks"; }

program::Program Compression::rewrite(program::Program step) const { return Writer(std::move(step)).run(); }

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
                      " adds to them after each micro-batch\n  fix: strategy.zero = 0 or 1, or "
                      "strategy.compression = \"none\"");
            return std::make_unique<Compression>();
          },
          .supports = {{"strategy.compression", {"bf16"}}}};
}

}  // namespace herd::strategies
