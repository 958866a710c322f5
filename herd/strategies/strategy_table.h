// Makes the program of each rank of a run, from the table of strategies (techniques.h). Threads: pure.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "herd/program/program.h"
#include "herd/program/slots.h"
#include "herd/program/verify_program.h"
#include "herd/spec/layout.h"
#include "herd/spec/model_table.h"
#include "herd/spec/run_file.h"
#include "herd/strategies/strategy.h"

namespace herd::strategies {

struct StrategyRow {
  std::unique_ptr<Strategy> strategy;
  program::Proof establishes;  // holds after this row and those before it
};

// Returns how many buffers pools have, as the techniques say. A number that is "auto" counts as
// AutoNumber::value_if_inapplicable; planner/variants_that_fit.h resolves it before.
program::SlotRules slot_rules(const spec::RunFile& run);

// Returns the rows that this run asks for, in the order of techniques(). A technique without a rewrite in this run
// extends the proof of the next row, and after the last row that of the last.
std::vector<StrategyRow> strategy_rows(const spec::RunFile& run, const spec::ModelTable& model,
                                       const spec::Layout& layout);

// Returns the program of one rank, not verified: the plain step through every row, then releases and slots. A run takes
// programs_of_run() below.
program::Program compile_step(const spec::RunFile& run, const spec::ModelTable& model, const spec::Layout& layout,
                              int rank);

// Returns what a step of this model must do in this layout, before any row has established anything.
program::Expectation expectation_of(const spec::ModelTable& model, const spec::Layout& layout);

// Returns the programs of all ranks, verified after every row. Throws kBug with the findings if a proof fails;
// kOverBudget if a rank's bound exceeds memory.device_budget or memory.host_budget.
std::vector<program::Program> compile_and_verify(const spec::RunFile& run, const spec::ModelTable& model,
                                                 const spec::Layout& layout);

// Returns the ranks of rank 0's pipeline, one for each stage; {0} without a pipeline. The program that needs most
// memory, and the one that takes longest, are among theirs.
std::vector<int> ranks_of_stages(const spec::Layout& layout);

// A run is proved before it starts. The proof takes the run itself in worlds of up to kMaxProvedRanks ranks and steps
// of up to kMaxProvedOps ops over all of them. Longer proofs would keep people waiting, so they take its quotient.
inline constexpr int kMaxProvedRanks = 16;
inline constexpr size_t kMaxProvedOps = 16000;
bool proves_run_itself(const program::Program& step, const spec::Layout& layout);

// A quotient is a smaller run that stands for a large one in its proof. It has the same strategies on the same kinds of
// axes.
//   dp, fsdp       two ranks at most; four where each host has a secondary shard, which are two hosts of two
//   tp             the smallest divisor > 1 of mesh.tp; where ranks hold copies of key heads, the product of the
//                  smallest divisors of the number of copies and of mesh.tp / copies
//   cp             the smallest divisor > 1 of mesh.cp
//   ep             the smallest divisor > 1 of mesh.ep; dp is then two of mesh.dp / mesh.ep times that
//   pp             a first, a middle and a last stage at most
//   micro-batches  max(2 * stages, strategy.interleave_micro_batches) + 1 at most
//   layers         two a pipeline stage at most, or 4 if that is more; all of them where model.frozen or
//                  strategy.direct_host names any. Of the first ones, which have no experts, as many as it takes for a
//                  stage of each kind that the run has: with experts in all layers, in none, or in some
// With an order from a file it keeps all stages and micro-batches. The quotient of a chain keeps its table, and so all
// stages. It stands for the run since rewrites ask whether
// there are other ranks, micro-batches, layers or stages before and after, not how many.
struct Quotient {
  spec::RunFile run;
  int ranks = 1;
};
Quotient quotient_of(const spec::RunFile& run, const spec::Layout& layout, bool is_chain = false);

// Returns "8 ranks that stand for 512 (8 ranks = ...)" where the quotient was proved, "" where the run itself was.
std::string quotient_text(const spec::RunFile& run, const spec::Layout& layout, const program::Program& step,
                          bool is_chain = false);

// Returns the bytes of the device that no value of a step counts: each group's weights, gradients and states begin on a
// cache line, and ops make tensors of a few numbers. They are 512 a parameter group and 4 KiB.
int64_t uncounted_bytes(const program::Program& step);

// Throws kOverBudget where a step exceeds memory.device_budget or host_budget. A budget of the device must hold the
// step's uncounted_bytes(), too. The error has the table of the step that needs most, and the least budget, in KiB,
// with which all steps can run.
void check_budgets(const std::vector<program::Program>& steps, const spec::RunFile& run);

// Returns the programs of `ranks`, at least one, with which a run starts; throws kOverBudget where a budget is
// exceeded. It proves the programs of all ranks first where that does not take too long.
std::vector<program::Program> programs_of_run(const spec::RunFile& run, const spec::ModelTable& model,
                                              const spec::Layout& layout, const std::vector<int>& ranks);

}  // namespace herd::strategies
