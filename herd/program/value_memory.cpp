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

std::pair<OpKind, int> scratch_key(const Op& op) {
  return {op.kind, moves_rows_of_experts(op) ? op.reads[1].index : op.block};
}

ValueMemory::ValueMemory(const Program& step) : step_(step), partial_of_(in_place_sums(step)) {}

const Value& ValueMemory::owner(const Value& value) const {
  const auto partial = partial_of_.find(value);
  return partial == partial_of_.end() ? value : partial->second;
}

int64_t ValueMemory::refer_to_kept(const Value& graph) {
  int64_t copies = 0;
  const auto kept = step_.kept.find(graph.index);
  if (kept == step_.kept.end()) return 0;
  for (const spec::TensorId tensor : kept->second) {
    const Value value = activation(tensor, graph.micro_batch);
    const auto live = live_.find(owner(value));
    const auto info = step_.values.find(value);
    if (info != step_.values.end() && info->second.slot < 0 && live != live_.end()) {
      live->second.holders.insert(graph);
      referred_[graph].push_back(live->first);
    } else {
      copies += info == step_.values.end() ? 0 : info->second.bytes;
    }
  }
  return copies;
}

std::vector<ValueMemory::Memory> ValueMemory::take(const Value& value) {
  const Value& own = owner(value);
  const auto [live, is_new] = live_.try_emplace(own);
  live->second.holders.insert(value);
  if (!is_new) return {};
  const auto info = step_.values.find(value);
  live->second.bytes = info == step_.values.end() ? 0 : info->second.bytes;
  if (value.kind == ValueKind::kGraph) live->second.bytes += refer_to_kept(value);
  return {{own, live->second.bytes}};
}

bool ValueMemory::release(const Value& owner, const Value& holder, std::vector<Memory>& given) {
  const auto live = live_.find(owner);
  if (live == live_.end() || live->second.holders.erase(holder) == 0) return false;
  if (!live->second.holders.empty()) return true;
  given.push_back({owner, live->second.bytes});
  live_.erase(live);
  return true;
}

std::vector<ValueMemory::Memory> ValueMemory::give_back(const Value& value) {
  std::vector<Memory> given;
  if (!release(owner(value), value, given)) return given;
  if (const auto referred = referred_.extract(value); !referred.empty()) {
    for (const Value& memory : referred.mapped()) release(memory, value, given);
  }
  return given;
}

}  // namespace herd::program
