#include "tests/program/combinations.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "herd/program/build.h"
#include "herd/program/lifetimes.h"
#include "herd/program/names.h"
#include "herd/program/slots.h"
#include "herd/strategies/clip.h"
#include "herd/strategies/data_parallel.h"
#include "herd/strategies/micro_batches.h"
#include "herd/strategies/recompute.h"
#include "herd/strategies/zero1.h"
#include "herd/strategies/zero2.h"
#include "herd/strategies/zero3.h"

namespace herd::program::testing {
namespace {

using Ops = std::vector<Op>;

Op make(OpKind kind, Lane lane, std::vector<Value> reads, std::vector<Value> writes, int block = -1, int mb = -1) {
  return {.kind = kind,
          .lane = lane,
          .reads = std::move(reads),
          .writes = std::move(writes),
          .block = block,
          .micro_batch = mb};
}

// Keeps this stage's blocks, orders forwards and backwards 1F1B, and adds sends and receives at its ends.
void pipeline(Program& step, const std::vector<int>& block_stage, int axis) {
  const int stage = step.mesh.index(axis, step.rank), stages = step.mesh.size(axis);
  const auto mine = [&](int b) { return block_stage[static_cast<size_t>(b)] == stage; };
  int first = 0, last = step.num_blocks - 1;
  while (!mine(first)) ++first;
  while (!mine(last)) --last;
  std::map<std::pair<bool, int>, Ops> phases;  // (backward, micro-batch)
  for (const Op& op : step.ops) {
    if (op.micro_batch < 0) continue;
    const bool backward = op.kind == OpKind::kBackward || op.kind == OpKind::kLoss;
    if (op.kind == OpKind::kLoad) {
      Op load = op;
      load.writes.clear();
      if (stage == 0) load.writes.push_back(activation(0, op.micro_batch));
      if (stage == stages - 1) load.writes.push_back(target(op.micro_batch));
      if (!load.writes.empty()) phases[{false, op.micro_batch}].push_back(load);
    } else if (mine(op.block)) {
      phases[{backward, op.micro_batch}].push_back(op);
    }
  }
  Ops ops;
  const auto run = [&](bool backward, int m) {
    const auto message = [&](OpKind kind, Value value, int block, int peer) {
      const bool send = kind == OpKind::kSend;
      Op op = make(kind, send ? Lane::kPeerOut : Lane::kPeerIn, {}, {}, block, m);
      (send ? op.reads : op.writes) = {value};
      op.axis = axis, op.peer = peer;
      ops.push_back(op);
    };
    if (!backward && stage > 0) message(OpKind::kReceive, activation(first, m), first, stage - 1);
    if (backward && stage < stages - 1) message(OpKind::kReceive, activation_gradient(last + 1, m), last, stage + 1);
    ops.insert(ops.end(), phases[{backward, m}].begin(), phases[{backward, m}].end());
    if (!backward && stage < stages - 1) message(OpKind::kSend, activation(last + 1, m), last, stage + 1);
    if (backward && stage > 0) message(OpKind::kSend, activation_gradient(first, m), first, stage - 1);
  };
  const int count = step.micro_batches, warm = std::min(stages - 1 - stage, count);
  for (int m = 0; m < warm; ++m) run(false, m);
  for (int m = 0; m < count - warm; ++m) run(false, warm + m), run(true, m);
  for (int m = count - warm; m < count; ++m) run(true, m);
  for (const Op& op : step.ops) {
    if (op.kind != OpKind::kStep) continue;
    for (int b = first; b <= last; ++b) {
      const auto& groups = step.block_groups[static_cast<size_t>(b)];
      if (std::find(groups.begin(), groups.end(), op.reads[0].index) != groups.end()) ops.push_back(op);
    }
  }
  step.ops = std::move(ops);
}

Value reformed(Value value, Form form) {
  value.form = form;
  return value;
}

void to_form(std::vector<Value>& values, ValueKind kind, Form form) {
  for (Value& value : values) {
    if (value.kind == kind) value.form = form;
  }
}

void zero(Program& step, int stage, int axis) {
  step = strategies::Zero1(axis).rewrite(std::move(step));
  if (stage >= 2) step = strategies::Zero2(axis).rewrite(std::move(step));
  if (stage >= 3) step = strategies::Zero3(axis).rewrite(std::move(step));
}

// The update runs on the host: gradient out, states and master weights stay there, new weights back.
void offload(Program& step, Form form) {
  Ops ops, steps;  // every gradient leaves before the first step, so that clipping finds its place between
  for (Op op : step.ops) {
    if (op.kind != OpKind::kStep) {
      (op.kind == OpKind::kAllGather && !steps.empty() ? steps : ops).push_back(op);  // ZeRO 1 gathers after each step
      continue;
    }
    const int g = op.reads[0].index;
    for (const Value& value : {gradient(g), weight(g)}) {
      ValueInfo info = step.values.at(reformed(value, form));
      info.tier = Tier::kHost;
      step.values[reformed(value, Form::kHost)] = info;
    }
    step.values[state(g)].tier = Tier::kHost;
    ops.push_back(make(OpKind::kEvict, Lane::kCopyOut, {gradient(g, form)}, {gradient(g, Form::kHost)}));
    op.lane = Lane::kHost;
    for (auto* side : {&op.reads, &op.writes}) {
      to_form(*side, ValueKind::kGradient, Form::kHost);
      to_form(*side, ValueKind::kWeight, Form::kHost);
    }
    steps.push_back(op);
    steps.push_back(make(OpKind::kFetch, Lane::kCopyIn, {weight(g, Form::kHost)}, {weight(g, form)}));
  }
  ops.insert(ops.end(), steps.begin(), steps.end());
  step.ops = std::move(ops);
}

// The norm ops of a step as one, of all its gradients.
Op whole_norm(const Program& step) {
  Op all;
  for (const Op& op : step.ops) {
    if (op.kind != OpKind::kNorm) continue;
    if (all.kind != OpKind::kNorm) all = make(OpKind::kNorm, op.lane, {}, {norm(0)});
    all.reads.push_back(op.reads[0]);
  }
  return all;
}

// Norms of one stage's groups are summed over the stages, as one number.
void reduce_norms(Program& step, int axis) {
  Ops ops;
  bool made = false;
  for (Op op : step.ops) {
    if (op.kind == OpKind::kAllReduce && op.writes[0].kind == ValueKind::kNorm) op.writes = op.reads = {norm(0)};
    if (op.kind == OpKind::kNorm) {
      if (std::exchange(made, true)) continue;
      op = whole_norm(step);
    }
    if (op.kind == OpKind::kClip) {
      ops.push_back(make(OpKind::kAllReduce, Lane::kReduce, {norm(0)}, {norm(0)}));
      ops.back().axis = axis;
      op.reads = {norm(0)};
    }
    ops.push_back(op);
  }
  step.values[norm(0)] = {8, Tier::kHost, false, -1};
  step.ops = std::move(ops);
}

}  // namespace

std::string Combination::text() const {
  return "layers " + std::to_string(layers) + " micro_batches " + std::to_string(micro_batches) + " dp " +
         std::to_string(dp) + " pp " + std::to_string(pp) + " zero " + std::to_string(zero) + (tied ? " tied" : "") +
         (recompute > 0 ? " recompute " + std::to_string(recompute) : "") + (offload ? " offload" : "") + " bucket " +
         std::to_string(bucket);
}

Compiled compile(const Combination& c) {
  spec::RunFile run;
  run.model = {.layers = c.layers, .width = 8, .heads = 2, .context = 4, .vocab = 16, .tie_embeddings = c.tied};
  run.train.batch = c.dp * c.micro_batches;
  run.train.micro_batch = 1;
  run.mesh.pp = c.pp;
  const spec::ModelTable model = spec::model_table(run, 1);
  const spec::Layout layout = spec::resolve_mesh(run, c.dp * c.pp);
  Compiled out;
  for (const auto& block : model.blocks) {
    out.expected.block_groups.push_back(block.groups);
    out.expected.backward_without_weights.push_back(!block.backward_reads_weights);
  }
  out.expected.micro_batches = c.micro_batches;
  out.expected.mesh = layout.mesh;
  out.expected.data = layout.data;
  out.expected.stage_axis = layout.mesh.find("pp");
  const int blocks = static_cast<int>(model.blocks.size());
  for (int b = 0; b < blocks; ++b) out.expected.block_stage.push_back(b * c.pp / blocks);
  const int zero_stage = c.dp > 1 ? c.zero : 0;
  const int stage_axis = out.expected.stage_axis, shards = zero_stage > 0 ? layout.data : kNoAxis;
  out.expected.shard_axis = shards;
  for (int rank = 0; rank < layout.world_size; ++rank) {
    Program step = strategies::MicroBatches(c.micro_batches).rewrite(plain_step(run, model, layout, rank));
    if (c.pp > 1) pipeline(step, out.expected.block_stage, stage_axis);
    if (c.recompute > 0) step = strategies::Recompute(c.recompute).rewrite(std::move(step));
    if (c.dp > 1) step = strategies::DataParallel(layout.data, c.bucket).rewrite(std::move(step));
    if (zero_stage > 0) zero(step, zero_stage, shards);
    if (c.offload) offload(step, zero_stage > 0 ? Form::kShard : Form::kWhole);
    step = strategies::Clip(shards).rewrite(std::move(step));
    if (c.pp > 1) reduce_norms(step, stage_axis);
    out.programs.push_back(assign_slots(add_releases(std::move(step))));
  }
  return out;
}

}  // namespace herd::program::testing
