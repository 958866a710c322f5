#include "herd/program/excerpts.h"

#include <algorithm>
#include <functional>

#include "herd/program/collective_message.h"
#include "herd/program/lifetimes.h"
#include "herd/program/passes.h"
#include "herd/program/program_names.h"

namespace herd::program {
namespace {

bool backward_needs(const Value& value) {
  return value.kind == ValueKind::kGraph || value.kind == ValueKind::kActivationGradient ||
         value.kind == ValueKind::kGradient || value.kind == ValueKind::kPending;
}

bool is_routing(const Value& value) { return value.kind == ValueKind::kRouting; }

// Tells whether an op moves what routers have chosen, or rows by that.
bool moves_by_routing(const Op& op) { return is_collective(op) && std::ranges::any_of(op.reads, is_routing); }

// Puts a gather or broadcast, or a fetch from the host or a file, before each pass whose weights are whole on the
// device or the host only while they are used. Consecutive passes that use the same weights share it. What it is made
// of comes first: what is gathered in a codec is decoded after, and what hosts gather is gathered inside them.
std::vector<Op> with_gathers(const Program& step, const std::vector<Op>& kept) {
  std::map<Value, const Op*> gathers;
  for (const Op& op : step.ops) {
    const bool brings = op.kind == OpKind::kAllGather || op.kind == OpKind::kBroadcast || op.kind == OpKind::kFetch ||
                        op.kind == OpKind::kDecode;
    if (!brings) continue;
    for (const Value& value : op.writes) gathers[value] = &op;
  }
  std::vector<Op> out;
  const std::function<void(const Value&)> bring = [&](const Value& weight) {
    Op last = *gathers.at(weight);
    if (last.kind == OpKind::kFetch) {  // states that an update gets beside it stay where they are
      const auto at = static_cast<size_t>(std::ranges::find(last.writes, weight) - last.writes.begin());
      last.reads = {last.reads.at(at)}, last.writes = {weight};
    }
    for (const Value& value : last.reads) {
      if (!step.values.at(value).persistent) bring(value);
    }
    out.push_back(std::move(last));
  };
  std::set<Value> previous_weights;  // weights that the previous pass used
  for (const Op& op : kept) {
    std::set<Value> weights;
    for (const Value& value : op.reads) {
      if (value.kind != ValueKind::kWeight || step.values.at(value).persistent) continue;
      if (!previous_weights.contains(value) && weights.insert(value).second) bring(value);
      weights.insert(value);
    }
    if (is_pass(op)) previous_weights = std::move(weights);
    out.push_back(op);
  }
  return out;
}

// Returns the step with the kept ops only: with gathers and releases for them, and without unused values.
Program with_ops(const Program& step, const std::vector<Op>& kept) {
  Program out = step;
  out.ops = with_gathers(step, kept);
  out = add_releases(std::move(out));
  std::set<Value> used_values;
  for (const Op& op : out.ops) {
    for (const auto* side : {&op.reads, &op.writes}) used_values.insert(side->begin(), side->end());
  }
  std::erase_if(out.values,
                [&](const auto& entry) { return !entry.second.persistent && !used_values.contains(entry.first); });
  return out;
}

}  // namespace

Program forward_only(const Program& step) {
  std::vector<Op> kept;
  std::set<std::pair<int, int>> forwarded;  // (block, micro-batch); a second forward is a recompute
  std::set<Value> moved;                    // moved by a collective; recompute moves some again
  for (Op op : step.ops) {
    const bool message = (op.kind == OpKind::kSend || op.kind == OpKind::kReceive) &&
                         (op.reads.empty() ? op.writes : op.reads)[0].kind == ValueKind::kActivation;
    const bool collective =
        op.lane == Lane::kActivations && (op.writes[0].kind == ValueKind::kActivation || is_routing(op.writes[0]));
    const bool first = op.kind == OpKind::kForward ? forwarded.insert({op.block, op.micro_batch}).second
                                                   : collective && moved.insert(op.writes[0]).second;
    if (op.kind != OpKind::kLoad && op.kind != OpKind::kLoss && !message && !first) continue;
    std::erase_if(op.reads, backward_needs);
    std::erase_if(op.writes, backward_needs);
    kept.push_back(std::move(op));
  }
  std::set<Value> read;
  for (const Op& op : kept) read.insert(op.reads.begin(), op.reads.end());
  for (Op& op : kept)  // of what routers have chosen, only what ranks exchange
    std::erase_if(op.writes, [&](const Value& value) { return is_routing(value) && !read.contains(value); });
  return with_ops(step, kept);
}

Program passes_over(const Program& step, const std::set<int>& blocks) {
  std::vector<Op> kept;
  std::set<Value> written;
  for (Op op : step.ops) {
    // Rows go to their experts as in a step, since no other rows fit what routers have chosen.
    const bool moves_rows = moves_by_routing(op) && micro_batch_of(op) == 0 &&
                            blocks.contains(std::ranges::find_if(op.reads, is_routing)->index);
    const bool kept_here =
        moves_rows || (op.micro_batch == 0 && (op.kind == OpKind::kLoad || (is_pass(op) && blocks.contains(op.block))));
    if (!kept_here) {
      // What it writes is received where it is read next, and not held from before until then: a collective that
      // recompute runs again.
      for (const Value& value : op.writes) written.erase(value);
      continue;
    }
    for (const Value& value : op.reads) {
      // A receive stands for the ops that would have written the value.
      const bool needs_receive = is_activation_or_gradient(value) && written.insert(value).second;
      if (!needs_receive) continue;
      kept.push_back(
          {.kind = OpKind::kReceive, .lane = op.lane, .writes = {value}, .block = op.block, .micro_batch = 0});
    }
    written.insert(op.writes.begin(), op.writes.end());
    kept.push_back(std::move(op));
  }
  return with_ops(step, kept);
}

}  // namespace herd::program
