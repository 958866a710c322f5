#include "herd/strategies/gather_codec.h"

#include <set>
#include <utility>
#include <vector>

#include "herd/base/check.h"
#include "herd/base/error.h"
#include "herd/kernels/codec.h"
#include "herd/program/collective_message.h"
#include "herd/program/program_names.h"
#include "herd/strategies/zero1.h"

namespace herd::strategies {

using program::Codec;
using program::Op;
using program::OpKind;
using program::Value;
using program::ValueKind;

namespace {

// Tells whether the op gathers weights that are whole only for a pass.
bool gathers_for_pass(const program::Program& step, const Op& op, int axis) {
  return op.kind == OpKind::kAllGather && op.axis == axis && is_plain_whole(op.writes.at(0), ValueKind::kWeight) &&
         !step.values.at(op.writes[0]).persistent;
}

}  // namespace

std::string GatherCodec::name() const { return "weights gathered in " + std::string(codec_name(codec_)); }

program::Program GatherCodec::rewrite(program::Program step) const {
  const program::Placement shards = program::kWhole.shard_on(axis_);
  const int ranks = step.mesh.size(axis_);
  std::set<int> coded;  // groups that are gathered in the codec
  for (const Op& op : step.ops) {
    if (gathers_for_pass(step, op, axis_)) coded.insert(op.writes[0].index);
  }
  const auto in_this_codec = [&](const Value& value) { return in_codec(value, codec_); };
  for (const int group : coded) {
    const Value shard = program::weight(group, shards);
    const int64_t elements = step.values.at(shard).bytes / static_cast<int64_t>(size_of(dtype_));
    const int64_t bytes = kernels::encoded_bytes({.kind = kernels::CodecKind::kInt8}, elements);
    step.values[in_this_codec(shard)] = {.bytes = bytes, .persistent = true};
    step.values[in_this_codec(program::weight(group))] = {.bytes = ranks * bytes, .pooled = true};
  }
  std::vector<Op> ops;
  for (Op& op : step.ops) {
    if (gathers_for_pass(step, op, axis_)) {
      const Value whole = op.writes[0], encoded = in_this_codec(whole);
      op.reads = {in_this_codec(op.reads.at(0))};
      op.writes = {encoded};
      ops.push_back(std::move(op));
      ops.push_back({.kind = OpKind::kDecode, .reads = {encoded}, .writes = {whole}});
      continue;
    }
    std::vector<Value> written;
    for (const Value& value : op.writes) {
      if (coded.contains(value.index) && value == program::weight(value.index, shards)) written.push_back(value);
    }
    const program::Lane lane = op.lane;
    ops.push_back(std::move(op));
    for (const Value& value : written)
      ops.push_back({.kind = OpKind::kEncode, .lane = lane, .reads = {value}, .writes = {in_this_codec(value)}});
  }
  step.ops = std::move(ops);
  return step;
}

Codec weight_codec(const spec::RunFile& run, const spec::Layout& layout) {
  if (run.strategy.gather_codec == "none" || layout.gradient_ranks() == 1) return Codec::kPlain;
  const auto codec = program::parse_codec(run.strategy.gather_codec);
  HERD_CHECK(codec.has_value(), "a codec of strategy.gather_codec: " + run.strategy.gather_codec);
  return *codec;
}

Technique gather_codec_row() {
  return {.name = "gather codec",
          .rewrite_for = [](const StepContext& step) -> std::unique_ptr<Strategy> {
            const Codec codec = weight_codec(step.run, step.layout);
            if (codec == Codec::kPlain) return nullptr;
            if (const int stage = zero_stage(step.run, step.layout); stage < 3)
              throw Error(Code::kBadConfig,
                          "strategy.gather_codec = \"" + step.run.strategy.gather_codec +
                              "\" is of weights that strategy.zero = 3 gathers for each pass, and strategy.zero = " +
                              std::to_string(stage) + " keeps them whole\n  fix: strategy.gather_codec = \"none\"");
            return std::make_unique<GatherCodec>(shard_axis(step.run, step.layout), codec, step.model.compute_dtype);
          },
          .extend_proof = [](const StepContext& step,
                             program::Proof& proof) { proof.weight_codec = weight_codec(step.run, step.layout); },
          .supports = {{"strategy.gather_codec", {"int8"}}}};
}

}  // namespace herd::strategies
