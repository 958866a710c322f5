// A run of a model of a few kilobytes, and the proved steps of its ranks.
#pragma once

#include <string>
#include <vector>

#include "herd/program/build.h"
#include "herd/program/verify_program.h"
#include "herd/spec/build_model_table.h"
#include "herd/spec/stage_cut.h"
#include "herd/strategies/direct_host.h"
#include "herd/strategies/gather_codec.h"
#include "herd/strategies/layer_owners.h"
#include "herd/strategies/recompute.h"
#include "herd/strategies/strategy_table.h"
#include "herd/strategies/techniques.h"
#include "herd/strategies/tensor_parallel.h"
#include "herd/strategies/zero1.h"
#include "tests/support/sample.h"

namespace herd::strategies {

inline spec::RunFile small_run(int64_t layers, const std::string& recompute, int64_t batch, bool tied = true) {
  spec::RunFile run;
  run.model = {.layers = layers, .width = 8, .heads = 2, .context = 4, .vocab = 16, .tie_embeddings = tied};
  run.train.batch = batch;
  run.train.micro_batch = 1;
  run.strategy.recompute = recompute;
  return run;
}

// A run whose states leave the device.
inline spec::RunFile offload_run(int dp, int zero, int64_t layers = 3, const std::string& offload = "states") {
  spec::RunFile run = small_run(layers, "none", 2 * dp, true);
  run.strategy.zero = zero;
  run.strategy.offload = offload;
  run.strategy.bucket = 4096;
  return run;
}

inline std::vector<program::Program> steps_of(const spec::RunFile& run, int ranks) {
  return compile_and_verify(run, spec::program_table(run, 1), trainable_layout(run, ranks));
}

// What the proof of a whole step expects of all its ranks.
inline program::Expectation expectation_of(const spec::RunFile& run, int ranks) {
  const spec::ModelTable model = spec::program_table(run, 1);
  const spec::Layout layout = trainable_layout(run, ranks);
  program::Expectation expected = expectation_of(model, layout);
  expected.micro_batches = layout.micro_batches;
  expected.proof.staged = layout.pp > 1;
  expected.proof.shard_axis = shard_axis(run, layout);
  if (zero_stage(run, layout) > 0) expected.proof.expert_shard_axis = layout.expert_sum_axis;
  if (has_owners(run, layout))
    expected.proof.owners = balanced_owners(model, stages_of(model, layout.pp, layout.pipeline),
                                            layout.mesh.size(expected.proof.shard_axis));
  expected.proof.weight_codec = weight_codec(run, layout);
  expected.proof.losses_kept = zero_stage(run, layout) < 2;
  expected.proof.direct_blocks = direct_blocks(run, model);
  expected.proof.update_delay = run.strategy.delayed_update ? 1 : 0;
  expected.proof.routing_kept = recompute_interval(run.strategy.recompute, static_cast<int>(run.model.layers)) > 0;
  expected.proof.hops = {.between = layout.hosts_axis, .within = layout.local_axis};
  return expected;
}

// What the verifier says first of these programs; empty = they prove.
inline std::string first_finding(const std::vector<program::Program>& steps, const program::Expectation& expected) {
  const auto findings = verify(steps, expected);
  return findings.empty() ? "" : to_string({findings[0]}, steps);
}

}  // namespace herd::strategies
