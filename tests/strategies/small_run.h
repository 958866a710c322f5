// A run of a model of a few kilobytes, and the proved steps of its ranks.
#pragma once

#include <string>
#include <vector>

#include "herd/program/program.h"
#include "herd/strategies/table.h"

namespace herd::strategies {

inline spec::RunFile small_run(int64_t layers, const std::string& recompute, int64_t batch, bool tied = true) {
  spec::RunFile run;
  run.model = {.layers = layers, .width = 8, .heads = 2, .context = 4, .vocab = 16, .tie_embeddings = tied};
  run.train.batch = batch;
  run.train.micro_batch = 1;
  run.strategy.recompute = recompute;
  return run;
}

inline std::vector<program::Program> steps_of(const spec::RunFile& run, int ranks) {
  return compile_and_verify(run, spec::model_table(run, 1), spec::resolve(run, ranks));
}

}  // namespace herd::strategies
