#include "herd/program/generation_passes.h"

#include <algorithm>
#include <set>

#include "herd/program/lifetimes.h"
#include "herd/program/program_names.h"

namespace herd::program {
namespace {

bool is_for_training(const Value& value) { return value.kind == ValueKind::kGraph || value.kind == ValueKind::kTarget; }

// Returns the ops of the step's forward, with the logits in place of the loss.
std::vector<Op> forward_ops(const Program& step) {
  std::vector<Op> out;
  for (Op op : step.ops) {
    const bool last = op.kind == OpKind::kLoss;
    if (last) op.kind = OpKind::kLogits, op.writes = {logits(op.micro_batch)};
    std::erase_if(op.reads,
                  [&](const Value& value) { return is_for_training(value) || value.kind == ValueKind::kGradient; });
    std::erase_if(op.writes, is_for_training);
    out.push_back(std::move(op));
    if (last) break;
  }
  return out;
}

}  // namespace

Program generation_pass(const Program& step, const spec::ModelTable& table, Caches caches) {
  Program pass = step;
  pass.ops = forward_ops(step);
  for (Op& op : pass.ops) {
    if (op.kind == OpKind::kLogits) {
      const int64_t bytes = table.blocks[static_cast<size_t>(op.block)].logits_bytes;
      pass.values[logits(op.micro_batch)] = {.bytes = bytes, .persistent = true};
    }
    if (op.kind != OpKind::kForward) continue;
    const int64_t bytes = table.blocks[static_cast<size_t>(op.block)].cache_bytes;
    if (bytes == 0) continue;
    pass.values[cache(op.block)] = {.bytes = bytes, .persistent = true};
    if (caches == Caches::kContinued) op.reads.push_back(cache(op.block));
    op.writes.push_back(cache(op.block));
  }
  std::set<Value> used_values;
  for (const Op& op : pass.ops) {
    for (const auto* side : {&op.reads, &op.writes}) used_values.insert(side->begin(), side->end());
  }
  std::erase_if(pass.values, [&](const auto& entry) { return !used_values.contains(entry.first); });
  pass.scratch.clear();
  for (const Op& op : pass.ops) {
    if (op.kind != OpKind::kForward && op.kind != OpKind::kLogits) continue;
    const int64_t bytes = table.blocks[static_cast<size_t>(op.block)].forward.scratch_bytes;
    if (bytes > 0) pass.scratch[{op.kind, op.block}] = bytes;
  }
  return add_releases(std::move(pass));
}

Expectation generation_expected(Expectation step, const spec::ModelTable& table, Caches caches) {
  step.trains = false;
  for (int group = 0; group < static_cast<int>(table.groups.size()); ++group) step.frozen_groups.insert(group);
  for (const spec::BlockShape& block : table.blocks) step.block_caches.push_back(block.cache_bytes > 0);
  step.continues_caches = caches == Caches::kContinued;
  return step;
}

}  // namespace herd::program
