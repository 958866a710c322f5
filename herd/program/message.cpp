#include "herd/program/message.h"

#include <algorithm>

namespace herd::program {

int64_t message_bytes(const Program& step, const Op& op) {
  int64_t in = 0, out = 0;
  for (size_t i = 0; i < std::min(op.reads.size(), op.writes.size()); ++i) in += step.values.at(op.reads[i]).bytes;
  for (const Value& value : op.writes) out += step.values.at(value).bytes;
  return std::max(in, out);
}

bool scatters(const Op& op) {
  return op.kind == OpKind::kReduce && !op.writes.empty() && op.reads[0].form == Form::kFull &&
         op.writes[0].form == Form::kShard;
}

std::string shard_axis(const Program& step) {
  for (const Op& op : step.ops) {
    if (scatters(op)) return op.axis;
  }
  return "";
}

}  // namespace herd::program
