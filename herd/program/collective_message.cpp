#include "herd/program/collective_message.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "herd/program/program_names.h"

namespace herd::program {

namespace {

int64_t size_of_part(int64_t bytes, const Op& op) {
  const ElementRange range = part_of(bytes, op);
  return range.end - range.begin;
}

}  // namespace

int64_t message_bytes(const Program& step, const Op& op) {
  int64_t in = 0, out = 0;
  if (is_rooted(op)) {
    for (const Value& value : moved_values(op)) in += step.values.at(value).bytes;
    return in;
  }
  for (size_t i = 0; i < std::min(op.reads.size(), op.writes.size()); ++i) in += step.values.at(op.reads[i]).bytes;
  for (const Value& value : op.writes) out += step.values.at(value).bytes;
  if (gathers_routing(op)) return out - in;
  if (moves_rows_of_experts(op)) return std::min(in, out);  // those of this rank; the others are a bound
  return size_of_part(std::max(in, out), op);
}

ElementRange part_of(int64_t elements, const Op& op) {
  return {elements * op.part / op.parts, elements * (op.part + 1) / op.parts};
}

int64_t served_bytes(const Program& step, const Op& op) {
  return size_of_part(step.values.at(op.kind == OpKind::kPush ? op.reads.at(0) : op.writes.at(0)).bytes, op);
}

int64_t served_part(const Program& step, const Op& op, int64_t bytes) {
  if (op.kind == OpKind::kPull || op.reads.at(0).codec == Codec::kPlain) return size_of_part(bytes, op);
  const Value plain = in_codec(op.reads[0], Codec::kPlain);
  return std::llround(static_cast<double>(bytes) * static_cast<double>(served_bytes(step, op)) /
                      static_cast<double>(step.values.at(plain).bytes));
}

int64_t served_bytes_sent(const Program& step, const Op& op) {
  const Value& room =
      op.kind == OpKind::kPush ? op.writes.at(0) : op.reads.at(0);  // for a part of each rank's gradient
  const int64_t ranks = step.mesh.size(op.axis), part = step.values.at(room).bytes / ranks;
  const int64_t served = served_part(step, op, part);
  return op.kind == OpKind::kPush ? served_bytes(step, op) - served : (ranks - 1) * served;
}

OpKind traffic_kind(const Op& op) {
  return !op.writes.empty() && op.writes[0].codec == Codec::kTopK ? OpKind::kAllGather : op.kind;
}

bool moves_rows_of_experts(const Op& op) {
  return op.kind == OpKind::kAllToAll && op.reads.size() > 1 && op.reads[1].kind == ValueKind::kRouting;
}

bool gathers_routing(const Op& op) {
  return op.kind == OpKind::kAllGather && !op.reads.empty() && op.reads[0].kind == ValueKind::kRouting;
}

bool is_collective(const Op& op) {
  return op.kind == OpKind::kAllGather || op.kind == OpKind::kAllReduce || op.kind == OpKind::kReduceScatter ||
         op.kind == OpKind::kAllToAll || is_rooted(op);
}

std::vector<Value> moved_values(const Op& op) {
  std::vector<Value> moved = op.kind == OpKind::kBroadcast ? op.writes : op.reads;
  std::erase_if(moved, [&](const Value& value) { return value.placement.is_owned(op.axis); });
  return moved;
}

std::map<int, int> weight_shard_axes(const Program& step) {
  std::map<int, int> axes;
  for (const auto& [value, info] : step.values) {
    const bool parameters = value.kind == ValueKind::kWeight || value.kind == ValueKind::kGradient;
    if (parameters && value.placement.shard != 0)
      axes.emplace(value.index, std::countr_zero(value.placement.shard));  // the first of several is the primary one
  }
  for (const Op& op : step.ops) {  // a rank may own nothing
    if (!is_rooted(op)) continue;
    for (const Value& value : moved_values(op)) axes.emplace(value.index, op.axis);
  }
  return axes;
}

}  // namespace herd::program
