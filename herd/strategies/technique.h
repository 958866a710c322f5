// A technique is a row of the table of strategies (techniques.h), with all that herd knows of it. Threads: pure.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "herd/program/slots.h"
#include "herd/program/verify_program.h"
#include "herd/spec/layout.h"
#include "herd/spec/model_table.h"
#include "herd/spec/run_file.h"
#include "herd/spec/supported.h"
#include "herd/strategies/stages.h"
#include "herd/strategies/strategy.h"

namespace herd::strategies {

// Describes the training step for which techniques write their rewrites. Borrows the constructor's arguments, which
// must outlive it.
struct StepContext {
  // Throws what require_joined_groups() throws.
  StepContext(const spec::RunFile& run_file, const spec::ModelTable& model_table, const spec::Layout& run_layout);

  const spec::RunFile& run;
  const spec::ModelTable& model;
  const spec::Layout& layout;
  const bool split;                        // true: ranks of the tensor axis share the work of a layer
  const std::vector<int> layers;           // by block: its layer
  const std::vector<int> stage_of_blocks;  // by block: its pipeline stage
  const Stages stages;                     // what each rank along the pipeline axis holds
};

// Counts the ranks of a job.
struct RankCounts {
  int total = 1;     // ranks of the job
  int per_host = 1;  // ranks of each host
};

// Lists what a search may try in place of a run's own value of a key. A key's values may be spread over the
// Alternatives of several techniques. Where equations do not know the technique (Technique::in_equations), searches try
// one such value at a time, and build its program.
struct Alternatives {
  std::string_view key;    // "strategy.recompute"; with a key of [mesh] each value is another layout
  bool automatic = false;  // true: strategy.auto may choose a value, since results change only by the order of sums
  std::string_view result_change = {};  // what its values change in results, "numbers are rounded to 16 bit"; or empty
  std::vector<spec::KeyValue> (*values)(const spec::RunFile& run, const RankCounts& ranks) = nullptr;
};

// Describes a key whose number may be "auto": a larger number takes more memory and may save time. The planner chooses
// the smallest number that is nearly as fast as the best one that fits the budget.
struct AutoNumber {
  std::string_view key;
  // Returns true where the number has an effect on the run.
  bool (*applies)(const spec::RunFile& run, const spec::Layout& layout) = nullptr;
  int64_t value_if_inapplicable = 0;                              // value where the number has no effect
  int64_t (*max_value)(const spec::ModelTable& model) = nullptr;  // returns the largest number that the planner tries
  // True: a larger number takes less memory of the host and more time. The planner then chooses the smallest that fits
  // the host's budget, before all other numbers; the smallest of all without a budget.
  bool saves_host_memory = false;
  bool no_memory_without_budget = false;  // true: where the run states no budget, the number may take no more memory
  // Returns what the planner tries, ascending, where a larger number does not always save time; it chooses the smallest
  // that is nearly as fast as the best. Null where `max_value` bounds the numbers.
  std::vector<int64_t> (*values)(const spec::ModelTable& model) = nullptr;
};

// Returns a list of `value` alone where `condition` is true, else an empty list.
std::vector<spec::KeyValue> values_if(bool condition, spec::KeyValue value);

// Counts the ranks that work on samples of their own. REQUIRES axes that divide all ranks.
int64_t data_ranks(const spec::RunFile& run, const RankCounts& ranks);

struct Technique {
  std::string_view name;

  // Returns the rewrite that the run file asks for; null where it asks for none. A technique without this function
  // needs no rewrite: the plain step already has what its keys ask for.
  std::unique_ptr<Strategy> (*rewrite_for)(const StepContext& step) = nullptr;

  // Adds to `proof` what holds after this technique and those before it. It is called whether the run asks for the
  // technique or not, so that a missing rewrite is a finding.
  void (*extend_proof)(const StepContext& step, program::Proof& proof) = nullptr;

  // Lists the values of keys of [mesh] and [strategy] that this row supports. Default values need no row.
  std::vector<spec::SupportedValues> supports = {};

  // Tells whether the planner's equations know what the values that this row supports do to memory, time and traffic.
  // Equations refuse values that they do not know.
  bool in_equations = false;

  std::vector<Alternatives> alternatives = {};  // values that a search may try
  std::vector<AutoNumber> auto_numbers = {};    // keys whose numbers may be "auto"

  // Sets how many buffers the pools of this row's values have.
  void (*set_pool_sizes)(const spec::RunFile& run, program::SlotRules& rules) = nullptr;

  // Corrects keys of this row in a run whose layout a search has changed, so that the row allows the run.
  void (*adapt)(spec::RunFile& run) = nullptr;
};

}  // namespace herd::strategies
