// A technique: a row of the table of strategies (techniques.h), with all that herd knows of it. Threads: pure.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "herd/program/verify_program.h"
#include "herd/spec/layout.h"
#include "herd/spec/model_table.h"
#include "herd/spec/run_file.h"
#include "herd/spec/supported.h"
#include "herd/strategies/stages.h"
#include "herd/strategies/strategy.h"

namespace herd::strategies {

// The step that rows are asked about. Borrows its arguments, which must outlive it.
struct StepOf {
  StepOf(const spec::RunFile& of_run, const spec::ModelTable& of_model, const spec::Layout& of_layout);

  const spec::RunFile& run;
  const spec::ModelTable& model;
  const spec::Layout& layout;
  const bool split;                        // ranks of the tensor axis share layers
  const std::vector<int> layers;           // of each block
  const std::vector<int> stage_of_blocks;  // of the pipeline, likewise
  const Stages stages;
};

struct Technique {
  std::string_view name;

  // The rewrite that the run file asks for; null where it asks for none. A row without it needs no rewrite: what it
  // stands for is in the plain step.
  std::unique_ptr<Strategy> (*asked)(const StepOf& step) = nullptr;

  // What holds after this row, and after those before it. Called whether it is asked for or not: then a rewrite that is
  // left out where it is needed is a finding.
  void (*establishes)(const StepOf& step, program::Proof& proof) = nullptr;

  // What it brings to the keys of [mesh] and [strategy]. Defaults need no row.
  std::vector<spec::SupportedValues> supports = {};
};

}  // namespace herd::strategies
