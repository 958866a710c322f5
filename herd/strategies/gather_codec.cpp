#include "herd/strategies/gather_codec.h"

#include <algorithm>
#include <map>
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

// Tells whether the op gathers weights that come and go: whole ones for a pass, or those of a host.
bool gathers_for_passes(const program::Program& step, const Op& op) {
  return op.kind == OpKind::kAllGather && op.writes.at(0).kind == ValueKind::kWeight &&
         !step.values.at(op.writes[0]).persistent;
}

// Returns the number of the piece that a fetch puts into a weight; 0 of an op that writes all of it.
int piece_of(const Op& op) {
  return op.kind == OpKind::kFetch && op.lane == program::Lane::kCopyIn ? op.reads.at(0).tensor : 0;
}

}  // namespace

std::string GatherCodec::name() const { return "weights gathered in " + std::string(codec_name(codec_)); }

program::Program GatherCodec::rewrite(program::Program step) const {
  const auto shard_of = [&](int group) { return program::weight(group, program::kWhole.shard_on(axes_.of(group))); };
  std::set<int> coded;  // groups that are gathered in the codec
  const auto in_this_codec = [&](const Value& value) { return in_codec(value, codec_); };
  const auto encoded_bytes = [&](int group) {  // of the shard that a rank keeps
    const int64_t elements = step.values.at(shard_of(group)).bytes / size_of(dtype_);
    return kernels::encoded_bytes({.kind = kernels::CodecKind::kInt8}, elements);
  };
  for (const Op& op : step.ops) {
    if (!gathers_for_passes(step, op)) continue;
    const Value& to = op.writes[0];
    const int64_t bytes = encoded_bytes(to.index);
    const int64_t shards_in = step.values.at(to).bytes / step.values.at(shard_of(to.index)).bytes;
    if (coded.insert(to.index).second)
      step.values[in_this_codec(shard_of(to.index))] = {.bytes = bytes, .persistent = true};
    step.values[in_this_codec(to)] = {.bytes = shards_in * bytes, .pooled = to.placement.is_whole()};
  }
  std::map<Value, int> last_piece;
  for (const Op& op : step.ops)
    for (const Value& value : op.writes) last_piece[value] = std::max(last_piece[value], piece_of(op));
  std::vector<Op> ops;
  for (Op& op : step.ops) {
    if (gathers_for_passes(step, op)) {
      const Value made = op.writes[0], encoded = in_this_codec(made);
      op.reads = {in_this_codec(op.reads.at(0))};
      op.writes = {encoded};
      ops.push_back(std::move(op));
      if (made.placement.is_whole()) ops.push_back({.kind = OpKind::kDecode, .reads = {encoded}, .writes = {made}});
      continue;
    }
    std::vector<Value> written;
    for (const Value& value : op.writes) {
      if (coded.contains(value.index) && value == shard_of(value.index) && piece_of(op) == last_piece[value])
        written.push_back(value);
    }
    const program::Lane lane = op.lane;
    ops.push_back(std::move(op));
    for (const Value& value : written)
      ops.push_back({.kind = OpKind::kEncode, .lane = lane, .reads = {value}, .writes = {in_this_codec(value)}});
  }
  std::erase_if(step.values, [&](const auto& entry) {  // plain shards of hosts, which nothing makes any more
    const Value& value = entry.first;
    return coded.contains(value.index) && value.kind == ValueKind::kWeight && value.codec == Codec::kPlain &&
           !value.placement.is_whole() && value.placement != shard_of(value.index).placement &&
           value.tier == program::Tier::kDevice;
  });
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
            return std::make_unique<GatherCodec>(shard_axes(step), codec, step.model.compute_dtype);
          },
          .extend_proof = [](const StepContext& step,
                             program::Proof& proof) { proof.weight_codec = weight_codec(step.run, step.layout); },
          .supports = {{"strategy.gather_codec", {"int8"}}}};
}

}  // namespace herd::strategies
