#include "herd/strategies/encoded_shards.h"

#include <utility>
#include <vector>

#include "herd/kernels/codec.h"
#include "herd/program/program_names.h"

namespace herd::strategies {

using program::Op;
using program::OpKind;
using program::Value;

std::string EncodedShards::name() const {
  return "shards of gradients summed of " + std::string(program::codec_name(codec_));
}

program::Program EncodedShards::rewrite(program::Program step) const {
  const auto kind = codec_ == program::Codec::kInt4 ? kernels::CodecKind::kInt4 : kernels::CodecKind::kInt8;
  std::vector<Op> ops;
  const auto in_this_codec = [&](std::vector<Value> values) {
    for (Value& value : values) value = in_codec(value, codec_);
    return values;
  };
  for (Op& op : step.ops) {
    const bool sums = op.kind == OpKind::kReduceScatter && op.writes.at(0).kind == program::ValueKind::kGradient;
    if (!sums) {
      ops.push_back(std::move(op));
      continue;
    }
    const std::vector<Value> shards = op.writes,
                             wholes(op.reads.begin(), op.reads.begin() + static_cast<long>(shards.size()));
    for (size_t i = 0; i < shards.size(); ++i) {
      const int64_t elements = step.values.at(shards[i]).bytes / size_of(dtype_);
      const int64_t bytes = step.mesh.size(op.axis) * kernels::encoded_bytes({.kind = kind}, elements);
      step.values[in_codec(wholes[i], codec_)] =
          step.values[in_codec(shards[i], codec_)] = {.bytes = bytes, .pooled = true};
    }
    std::vector<Value> encoded = in_this_codec(wholes);
    const std::vector<Value> terms = in_this_codec(shards);
    ops.push_back({.kind = OpKind::kEncode, .reads = wholes, .writes = encoded});
    const bool by_hosts = local_axis_ != kNoAxis;
    if (by_hosts) {
      std::vector<Value> host_terms = encoded, host_sums = encoded;
      for (size_t i = 0; i < encoded.size(); ++i) {
        const int64_t bytes = step.values.at(encoded[i]).bytes;
        host_terms[i].placement = program::kWhole.shard_on(local_axis_);
        host_sums[i].placement = host_terms[i].placement.partial_on(hosts_axis_);
        step.values[host_terms[i]] = {.bytes = bytes, .pooled = true};
        step.values[host_sums[i]] =
            step.values[terms[i]] = {.bytes = bytes / step.mesh.size(local_axis_), .pooled = true};
      }
      ops.push_back(
          {.kind = OpKind::kAllToAll, .lane = op.lane, .reads = encoded, .writes = host_terms, .axis = local_axis_});
      ops.push_back({.kind = OpKind::kEncode, .lane = op.lane, .reads = host_terms, .writes = host_sums});
      encoded = host_sums;
    }
    ops.push_back({.kind = OpKind::kAllToAll,
                   .lane = op.lane,
                   .reads = encoded,
                   .writes = terms,
                   .axis = by_hosts ? hosts_axis_ : op.axis});
    Op decode{.kind = OpKind::kDecode, .lane = op.lane, .reads = terms, .writes = shards};
    if (op.reads.size() > shards.size()) decode.reads.insert(decode.reads.end(), shards.begin(), shards.end());
    ops.push_back(std::move(decode));
  }
  step.ops = std::move(ops);
  return step;
}

}  // namespace herd::strategies
