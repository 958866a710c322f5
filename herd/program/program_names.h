// Names of ops, lanes and values, as people and text files write them. Threads: pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "herd/program/program.h"

namespace herd::program {

std::string_view op_name(OpKind kind);       // "forward"
std::string_view lane_name(Lane lane);       // "compute"
std::string_view tier_name(Tier tier);       // "device"
std::string_view codec_name(Codec codec);    // "bf16"
std::string_view kind_name(ValueKind kind);  // "weights", for tables and charts

// "w7", "w7.shard(dp)", "x3.0.partial(tp)", "g7.bf16", "w7.shard(dp).host", "factor". The tier is left out where values
// of the kind usually are: on the host for losses, norms and the factor, else on the device.
std::string value_name(const Mesh& mesh, const Value& value);

// Nothing if the text names none.
std::optional<OpKind> parse_op_kind(std::string_view text);
std::optional<Lane> parse_lane(std::string_view text);
std::optional<Tier> parse_tier(std::string_view text);
std::optional<Value> parse_value(const Mesh& mesh, std::string_view text);

// What an op is of, without its kind: "block7 mb0", "g7 g6 on dp", "w7", "block3 mb0 on pp to 1".
std::string subject(const Program& step, const Op& op);

// "all_gather of w7 on fsdp".
std::string describe(const Program& step, const Op& op);
// The program's rank and where it is in the mesh, as the mesh names it: "rank 3 (dp 1, pp 0)".
std::string rank_name(const Program& step);

std::string axis_name(const Mesh& mesh, int axis);

// Short constructors of values, in the tier where those of the kind usually are.
Value weight(int group, Placement placement = kWhole);
Value gradient(int group, Placement placement = kWhole);
Value state(int group, Placement placement = kWhole);
Value activation(int block, int micro_batch);
Value activation_gradient(int block, int micro_batch);
Value graph(int block, int micro_batch);
Value pending(int block, int micro_batch);
Value target(int micro_batch);
Value loss(int micro_batch);
Value norm(int group);
Value factor();
Value cache(int block);
Value logits(int micro_batch);

// The same value, placed otherwise, written otherwise, or in another tier.
Value placed(Value value, Placement placement);
Value in_codec(Value value, Codec codec);
Value in_tier(Value value, Tier tier);

}  // namespace herd::program
