#include "herd/strategies/activation_offload.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "herd/base/error.h"
#include "herd/program/passes.h"
#include "herd/program/program_names.h"
#include "herd/spec/model_states.h"
#include "herd/strategies/recompute.h"

namespace herd::strategies {

using program::Lane;
using program::Op;
using program::OpKind;
using program::Program;
using program::Tier;
using program::Value;
using program::ValueKind;

namespace {

constexpr int kPassesThatAnInputStays = 1;  // while so many others run, it is not worth two copies

constexpr int64_t kHostAlignment = 64;

// Holds an input that waits between two ops, by their positions.
struct WaitingInput {
  Value value;
  size_t last_use = 0;  // in forward
  size_t next_use = 0;  // in backward
};

// Returns where the backward half of each micro-batch begins.
std::map<int, size_t> begins_of_backward(const std::vector<Op>& ops) {
  std::map<int, size_t> begins;
  std::set<std::pair<int, int>> forwarded;  // (block, micro-batch); a second forward is a recompute
  for (size_t i = 0; i < ops.size(); ++i) {
    const Op& op = ops[i];
    if (op.kind == OpKind::kLoss) {
      begins.try_emplace(op.micro_batch, i + 1);
      continue;
    }
    const bool runs_again = op.kind == OpKind::kForward && !forwarded.insert({op.block, op.micro_batch}).second;
    if (runs_again || op.kind == OpKind::kRecompute) begins.try_emplace(op.micro_batch, i);
    for (const auto* side : {&op.reads, &op.writes}) {
      for (const Value& value : *side) {
        if (value.kind == ValueKind::kActivationGradient) begins.try_emplace(value.micro_batch, i);
      }
    }
  }
  return begins;
}

// Returns the activations to which graphs of forwards refer, so that their memory stays.
std::set<Value> held_by_graphs(const Program& step) {
  std::set<Value> held;
  std::set<std::pair<int, int>> forwarded;
  for (const Op& op : step.ops) {
    if (op.kind != OpKind::kForward || !forwarded.insert({op.block, op.micro_batch}).second) continue;
    const auto kept = step.kept.find(op.block);
    const bool makes_graph = std::ranges::any_of(op.writes, [](const Value& v) { return v.kind == ValueKind::kGraph; });
    if (!makes_graph || kept == step.kept.end()) continue;
    for (const spec::TensorId tensor : kept->second) held.insert(program::activation(tensor, op.micro_batch));
  }
  return held;
}

// Counts the passes between two ops, where the blocks of a layer are one pass.
int passes_between(const std::vector<Op>& ops, const std::vector<int>& layers, size_t begin, size_t end) {
  int passes = 0;
  std::pair<int, int> last = {-1, -1};  // layer and micro-batch
  for (size_t i = begin + 1; i < end; ++i) {
    if (!is_pass(ops[i])) continue;
    const std::pair<int, int> at = {layers[static_cast<size_t>(ops[i].block)], ops[i].micro_batch};
    if (std::exchange(last, at) != at) ++passes;
  }
  return passes;
}

// Returns the inputs that wait, in the order in which backward reads them.
std::vector<WaitingInput> waiting_inputs(const Program& step, const std::vector<int>& layers) {
  const std::map<int, size_t> begins = begins_of_backward(step.ops);
  const std::set<Value> held = held_by_graphs(step);
  std::map<Value, WaitingInput> used;  // what forward has used
  std::vector<WaitingInput> out;
  for (size_t i = 0; i < step.ops.size(); ++i) {
    const Op& op = step.ops[i];
    const auto is_border = [&](const Value& value) {
      const program::ValueInfo& info = step.values.at(value);
      return value.kind == ValueKind::kActivation && value.index > 0 && value.tier == Tier::kDevice && info.bytes > 0 &&
             !info.persistent && begins.contains(value.micro_batch) && !held.contains(value);
    };
    for (const Value& value : op.reads) {
      if (!is_border(value)) continue;
      if (i < begins.at(value.micro_batch)) {
        used[value] = {value, i, 0};
      } else if (auto waited = used.extract(value); !waited.empty()) {
        waited.mapped().next_use = i;
        const bool stays = passes_between(step.ops, layers, waited.mapped().last_use, i) <= kPassesThatAnInputStays;
        if (!stays) out.push_back(waited.mapped());
      }
    }
    for (const Value& value : op.writes) {
      if (!is_border(value)) continue;
      used.erase(value);
      if (i < begins.at(value.micro_batch)) used[value] = {value, i, 0};
    }
  }
  return out;
}

// Returns the bytes on the host: values follow each other there, and each begins where numbers of any size may.
int64_t rounded_up(int64_t bytes) { return (bytes + kHostAlignment - 1) / kHostAlignment * kHostAlignment; }

Op move(OpKind kind, Lane lane, const Value& from, const Value& to) {
  return {.kind = kind, .lane = lane, .reads = {from}, .writes = {to}};
}

}  // namespace

std::string ActivationOffload::name() const {
  return tier_ == Tier::kNvme ? "activations in files" : "activations on the host";
}

Program ActivationOffload::rewrite(Program step) const {
  const bool in_files = tier_ == Tier::kNvme;
  std::map<size_t, std::vector<Op>> before;  // by position: ops that come before it
  std::map<int, std::vector<size_t>> uses;   // by micro-batch: positions of the uses so far, with the last one twice
  const std::vector<WaitingInput> inputs = waiting_inputs(step, layers_);
  for (const WaitingInput& input : inputs) {
    const Value &value = input.value, host = in_tier(value, Tier::kHost), file = in_tier(value, Tier::kNvme);
    program::ValueInfo& info = step.values.at(value);
    info.pooled = true;
    const int64_t bytes = in_files ? spec::nvme_bytes(info.bytes) : rounded_up(info.bytes);
    step.values[host] = {.bytes = bytes, .pooled = true};
    if (in_files) step.values[file] = {.bytes = bytes, .pooled = true};
    std::vector<Op>& evicts = before[input.last_use + 1];
    evicts.push_back(move(OpKind::kEvict, Lane::kCopyOut, value, host));
    if (in_files) evicts.push_back(move(OpKind::kEvict, Lane::kIo, host, file));
  }
  for (const WaitingInput& input : inputs) {
    const Value &value = input.value, host = in_tier(value, Tier::kHost), file = in_tier(value, Tier::kNvme);
    std::vector<size_t>& earlier = uses[value.micro_batch];
    if (earlier.empty() || earlier.back() != input.next_use) earlier.push_back(input.next_use);
    const auto ahead = [&](size_t passes) { return earlier[earlier.size() - std::min(earlier.size(), passes + 1)]; };
    if (in_files) before[ahead(2)].push_back(move(OpKind::kFetch, Lane::kIo, file, host));
    before[ahead(1)].push_back(move(OpKind::kFetch, Lane::kCopyIn, host, value));
  }
  std::vector<Op> ops;
  for (size_t i = 0; i < step.ops.size(); ++i) {
    if (const auto moves = before.find(i); moves != before.end())
      ops.insert(ops.end(), moves->second.begin(), moves->second.end());
    ops.push_back(std::move(step.ops[i]));
  }
  step.ops = std::move(ops);
  return step;
}

Technique activation_offload_row() {
  return {.name = "activations on the host",
          .rewrite_for = [](const StepContext& step) -> std::unique_ptr<Strategy> {
            const auto& strategy = step.run.strategy;
            if (strategy.offload_activations == "none") return nullptr;
            if (recompute_interval(strategy.recompute, 1) == 0)
              throw Error(Code::kBadConfig,
                          "strategy.offload_activations = \"" + strategy.offload_activations +
                              "\" moves the inputs of recomputed blocks, and strategy.recompute = \"" +
                              strategy.recompute +
                              "\" keeps what backward needs in graphs\n  fix: strategy.recompute = \"full\", or "
                              "strategy.offload_activations = \"none\"");
            return std::make_unique<ActivationOffload>(
                step.layers, strategy.offload_activations == "nvme" ? Tier::kNvme : Tier::kHost);
          },
          .supports = {{"strategy.offload_activations", {"host", "nvme"}}},
          .alternatives = {
              {.key = "strategy.offload_activations", .values = [](const spec::RunFile& run, const RankCounts&) {
                 return values_if(run.strategy.offload_activations == "none", "host");
               }}}};
}

}  // namespace herd::strategies
