#include "herd/program/value_memory.h"

#include "herd/program/collective_message.h"
#include "herd/program/program_names.h"

namespace herd::program {
namespace {

// Returns the partial sum by the whole that is made of it in place.
std::map<Value, Value> in_place_sums(const Program& step) {
  std::map<Value, Value> partial_of, whole_of;
  for (const Op& op : step.ops) {
    if (op.kind != OpKind::kAllReduce || op.reads.size() != op.writes.size()) continue;
    for (size_t i = 0; i < op.reads.size(); ++i) {
      const Value &partial = op.reads[i], &whole = op.writes[i];
      if (!is_activation_or_gradient(whole) || partial == whole || placed(partial, whole.placement) != whole) continue;
      partial_of.emplace(whole, partial);
      whole_of.emplace(partial, whole);
    }
  }
  std::set<Value> live;
  for (int round = 0; round < 2; ++round) {  // the second round starts with what the first left over
    for (const Op& op : step.ops) {
      for (const Value& value : op.writes) {
        if (op.kind == OpKind::kRelease) {
          live.erase(value);
          continue;
        }
        const auto whole = whole_of.find(value);
        if (live.insert(value).second && whole != whole_of.end() && live.contains(whole->second))
          partial_of.erase(whole->second);
      }
    }
  }
  return partial_of;
}

}  // namespace

ValueMemory::ValueMemory(const Program& step) : partial_of_(in_place_sums(step)) {}

const Value& ValueMemory::owner(const Value& value) const {
  const auto partial = partial_of_.find(value);
  return partial == partial_of_.end() ? value : partial->second;
}

bool ValueMemory::take(const Value& value) {
  std::set<Value>& live = live_[owner(value)];
  const bool takes = live.empty();
  live.insert(value);
  return takes;
}

bool ValueMemory::give_back(const Value& value) {
  std::set<Value>& live = live_[owner(value)];
  return live.erase(value) > 0 && live.empty();
}

}  // namespace herd::program
