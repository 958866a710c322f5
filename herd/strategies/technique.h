// A technique is a row of the table of strategies (techniques.h), with all that herd knows of it. Threads: pure.
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

// Describes the step that rows are asked about. Borrows its arguments, which must outlive it.
struct StepOf {
  StepOf(const spec::RunFile& of_run, const spec::ModelTable& of_model, const spec::Layout& of_layout);

  const spec::RunFile& run;
  const spec::ModelTable& model;
  const spec::Layout& layout;
  const bool split;                        // tells whether ranks of the tensor axis share layers
  const std::vector<int> layers;           // layer of each block
  const std::vector<int> stage_of_blocks;  // stage of each block in the pipeline
  const Stages stages;
};

// Counts ranks, of the job and of each host.
struct Ranks {
  int all = 1, of_host = 1;
};

// Lists what a search may try in place of a run's own value of a key. The key's other values are those of other rows.
struct Alternatives {
  std::string_view key;    // "strategy.recompute"; a key of [mesh] means another layout
  bool automatic = false;  // strategy.auto may choose it: results are the same but for the order of sums
  std::vector<spec::KeyValue> (*values)(const spec::RunFile& run, const Ranks& ranks) = nullptr;
};

// Describes a number that may be "auto": it spends memory to save time.
struct AutoNumber {
  std::string_view key;
  bool (*counts)(const spec::RunFile& run, const spec::Layout& layout) = nullptr;
  int64_t otherwise = 0;  // value where the number does not count
  int64_t (*most)(const spec::ModelTable& model) = nullptr;
  bool free_without_budget = false;  // without a stated budget it may take no memory; false: as much as saves time
};

// Returns the value where `holds`, else nothing.
std::vector<spec::KeyValue> values_if(bool holds, spec::KeyValue value);

// Counts the ranks that work on samples of their own. REQUIRES axes that divide all ranks.
int64_t data_ranks(const spec::RunFile& run, const Ranks& ranks);

struct Technique {
  std::string_view name;

  // Returns the rewrite that the run file asks for; null where it asks for none. A row without this function needs no
  // rewrite: the plain step has what it stands for.
  std::unique_ptr<Strategy> (*asked)(const StepOf& step) = nullptr;

  // Adds to `proof` what holds after this row and those before it. It is called whether the run asks for the row or
  // not, so that a missing rewrite is a finding.
  void (*establishes)(const StepOf& step, program::Proof& proof) = nullptr;

  // Lists the values of keys of [mesh] and [strategy] that this row supports. Defaults need no row.
  std::vector<spec::SupportedValues> supports = {};

  std::vector<Alternatives> alternatives = {};
  std::vector<AutoNumber> numbers = {};

  // Changes a run whose layout a search has changed into one that this row allows.
  void (*adapt)(spec::RunFile& run) = nullptr;
};

}  // namespace herd::strategies
