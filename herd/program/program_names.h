// Defines the names of ops, lanes and values, as people and text files write them. An unknown axis is written "axis3".
// Threads: pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "herd/program/program.h"
#include "herd/spec/tensor_shape.h"

namespace herd::program {

std::string_view op_name(OpKind kind);       // returns "forward"
std::string_view lane_name(Lane lane);       // returns "compute"
std::string_view tier_name(Tier tier);       // returns "device"
std::string_view codec_name(Codec codec);    // returns "bf16"
std::string_view kind_name(ValueKind kind);  // returns the plural for tables and charts: "weights"

// Returns "w7", "w7.shard(dp)", "w7.owned(dp)", "x3.0.partial(tp)", "x3:1.0", "g7.bf16", "w7.shard(dp).host" or
// "factor". A name leaves out the tier where values of the kind usually lie: the host for losses, norms and the factor,
// else the device.
std::string value_name(const Mesh& mesh, const Value& value);

// Each is the inverse of the function of its name above, and returns nothing for a text that names no value.
// parse_value() takes exactly what value_name() writes, so it refuses leading zeros and axes in another order.
std::optional<OpKind> parse_op_kind(std::string_view text);
std::optional<Codec> parse_codec(std::string_view text);
std::optional<Lane> parse_lane(std::string_view text);
std::optional<Tier> parse_tier(std::string_view text);
std::optional<Value> parse_value(const Mesh& mesh, std::string_view text);

// Returns what an op works on, without its kind: "block7 mb0", "g7 g6 on dp", "w7", "block3 mb0 on pp to 1".
std::string subject(const Program& step, const Op& op);

// Returns the kind and the subject of an op: "all_gather of w7 on fsdp".
std::string describe(const Program& step, const Op& op);
// Returns the program's rank with its place on each axis of the mesh: "rank 3 (dp 1, pp 0)". It leaves out axes that
// are products of others (dp*fsdp) or hold only some members.
std::string rank_name(const Program& step);

std::string axis_name(const Mesh& mesh, int axis);  // returns "dp"

// Each makes the plain value of its kind, in the tier where such values usually lie. Placement is whole if not given.
Value weight(int group, Placement placement = kWhole);
Value gradient(int group, Placement placement = kWhole);
Value state(int group, Placement placement = kWhole);
Value activation(spec::TensorId tensor, int micro_batch);
Value activation_gradient(spec::TensorId tensor, int micro_batch);
spec::TensorId tensor_of(const Value& value);  // returns the tensor that is an activation, or has the gradient
Value graph(int block, int micro_batch);
Value pending(int block, int micro_batch);
Value routing(int block, int micro_batch);
Value target(int micro_batch);
Value loss(int micro_batch);
Value norm(int group);
Value factor();
Value cache(int block);
Value logits(int micro_batch);
Value residual(int group);
Value pushed(int group);

Value placed(Value value, Placement placement);  // returns the value with another placement
Value in_codec(Value value, Codec codec);        // returns the value with another codec
Value in_tier(Value value, Tier tier);           // returns the value in another tier

}  // namespace herd::program
