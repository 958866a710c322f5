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
std::string_view kind_name(ValueKind kind);  // "weights", for tables and charts
std::string value_name(const Value& value);  // "w7.whole", "x3.0", "factor"

// Nothing if the text names none.
std::optional<OpKind> parse_op_kind(std::string_view text);
std::optional<Lane> parse_lane(std::string_view text);
std::optional<Tier> parse_tier(std::string_view text);
std::optional<Value> parse_value(std::string_view text);

// What an op is of, without its kind: "block7 mb0", "g7 g6 on dp", "w7", "block3 mb0 on pp to 1".
std::string subject(const Program& step, const Op& op);

// "all_gather of w7 on fsdp".
std::string describe(const Program& step, const Op& op);
// The program's rank and where it is in the mesh, as the mesh names it: "rank 3 (dp 1, pp 0)".
std::string rank_name(const Program& step);

std::string axis_name(const Mesh& mesh, int axis);

// Short constructors of values.
Value weight(int group, Form form = Form::kWhole);
Value gradient(int group, Form form = Form::kWhole);
Value state(int group, Form form = Form::kNone);
Value activation(int block, int micro_batch);
Value activation_gradient(int block, int micro_batch);
Value graph(int block, int micro_batch);
Value pending(int block, int micro_batch);
Value target(int micro_batch);
Value loss(int micro_batch);
Value norm(int group);
Value factor();

}  // namespace herd::program
