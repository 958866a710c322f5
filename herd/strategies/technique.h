// A technique: a row of the table of strategies (techniques.h), with all that herd knows of it. Threads: pure.
#pragma once

#include <cstdint>
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

struct Ranks {
  int all = 1, of_host = 1;
};

// What a search may try in place of a run's own value of a key. The key's other values are those of other rows.
struct Alternatives {
  std::string_view key;    // "strategy.recompute"; one of [mesh] is another layout
  bool automatic = false;  // strategy.auto may choose it: results are the same but for the order of sums
  std::vector<spec::KeyValue> (*values)(const spec::RunFile& run, const Ranks& ranks) = nullptr;
};

// A number that may be left to herd: it spends memory to save time.
struct AutoNumber {
  std::string_view key;
  bool (*counts)(const spec::RunFile& run, const spec::Layout& layout) = nullptr;
  int64_t otherwise = 0;  // its value where it does not count
  int64_t (*most)(const spec::ModelTable& model) = nullptr;
  bool free_without_budget = false;  // where no budget is stated it may take no memory; else as much as saves time
};

// The value, where a condition holds.
std::vector<spec::KeyValue> values_if(bool holds, spec::KeyValue value);

// How many ranks work on samples of their own. REQUIRES axes that divide all ranks.
int64_t data_ranks(const spec::RunFile& run, const Ranks& ranks);

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

  std::vector<Alternatives> alternatives = {};
  std::vector<AutoNumber> numbers = {};

  // Makes a run whose layout a search has changed one that this row allows.
  void (*adapt)(spec::RunFile& run) = nullptr;
};

}  // namespace herd::strategies
