#include "tests/program/combinations.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "herd/program/build.h"
#include "herd/program/lifetimes.h"
#include "herd/program/program_names.h"
#include "herd/program/slots.h"
#include "herd/spec/build_model_table.h"
#include "herd/strategies/data_parallel.h"
#include "herd/strategies/gradient_clipping.h"
#include "herd/strategies/micro_batches.h"
#include "herd/strategies/pipeline_orders.h"
#include "herd/strategies/pipeline_parallel.h"
#include "herd/strategies/recompute.h"
#include "herd/strategies/shared_groups.h"
#include "herd/strategies/stages.h"
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

Value on_host(const Value& value) { return in_tier(value, Tier::kHost); }

void zero(Program& step, int stage, int axis) {
  step = strategies::Zero1({axis}).rewrite(std::move(step));
  if (stage >= 2) step = strategies::Zero2({axis}).rewrite(std::move(step));
  if (stage >= 3) step = strategies::Zero3({axis}).rewrite(std::move(step));
}

// The update runs on the host: gradient out, states and master weights stay there, new weights back.
void offload(Program& step, Placement placement) {
  Ops ops, steps;  // every gradient leaves before the first step, so that clipping finds its place between
  for (Op op : step.ops) {
    if (op.kind != OpKind::kStep) {
      (op.kind == OpKind::kAllGather && !steps.empty() ? steps : ops).push_back(op);  // ZeRO 1 gathers after each step
      continue;
    }
    const int g = op.reads[0].index;
    const Value gradients = gradient(g, placement), weights = weight(g, placement);
    for (const Value& value : {gradients, weights}) step.values[on_host(value)] = step.values.at(value);
    auto states = step.values.extract(state(g, placement));
    states.key() = on_host(states.key());
    step.values.insert(std::move(states));
    ops.push_back(make(OpKind::kEvict, Lane::kCopyOut, {gradients}, {on_host(gradients)}));
    op.lane = Lane::kHost;
    for (auto* side : {&op.reads, &op.writes}) {
      for (Value& value : *side) value = on_host(value);
    }
    steps.push_back(op);
    steps.push_back(make(OpKind::kFetch, Lane::kCopyIn, {on_host(weights)}, {weights}));
  }
  ops.insert(ops.end(), steps.begin(), steps.end());
  step.ops = std::move(ops);
}

}  // namespace

std::string Combination::text() const {
  return "layers " + std::to_string(layers) + " micro_batches " + std::to_string(micro_batches) + " dp " +
         std::to_string(dp) + " pp " + std::to_string(pp) + " zero " + std::to_string(zero) + (tied ? " tied" : "") +
         (recompute > 0 ? " recompute " + std::to_string(recompute) : "") + (offload ? " offload" : "") + " bucket " +
         std::to_string(bucket) + (pp > 1 ? " " + order : "");
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
  std::vector<int> layers;
  for (const auto& block : model.blocks) {
    layers.push_back(block.layer);
    out.expected.block_groups.push_back(block.groups);
    out.expected.backward_without_weights.push_back(!block.backward_reads_weights);
  }
  out.expected.micro_batches = c.micro_batches;
  out.expected.mesh = layout.mesh;
  const strategies::Stages stages = strategies::stages_of(model, c.pp);
  out.expected.block_rank = stages.rank_of_block;
  out.expected.proof.staged = c.pp > 1;
  const int zero_stage = c.dp > 1 ? c.zero : 0;
  const int shards = zero_stage > 0 ? layout.data_axis : kNoAxis;
  out.expected.proof.shard_axis = shards;
  for (int rank = 0; rank < layout.world_size; ++rank) {
    Program step = strategies::MicroBatches(c.micro_batches).rewrite(plain_step(run, model, layout, rank));
    if (c.pp > 1)
      step = strategies::PipelineParallel(layout.stage_axis, stages.rank_of_block,
                                          strategies::pipeline_order(c.order, {}, c.pp, c.micro_batches), c.order)
                 .rewrite(std::move(step));
    if (c.recompute > 0) step = strategies::Recompute(c.recompute, layers).rewrite(std::move(step));
    if (c.dp > 1) step = strategies::DataParallel(layout.data_axis, c.bucket).rewrite(std::move(step));
    if (zero_stage > 0) zero(step, zero_stage, shards);
    if (layout.tied_axis != kNoAxis)
      step = strategies::SharedGroups(layout.tied_axis, stages.shared_groups).rewrite(std::move(step));
    if (c.offload) offload(step, kWhole.shard_on(shards));
    step = strategies::GradientClipping({shards, layout.stage_axis}, stages.first_held_groups).rewrite(std::move(step));
    out.programs.push_back(assign_slots(add_releases(std::move(step))));
  }
  return out;
}

}  // namespace herd::program::testing
