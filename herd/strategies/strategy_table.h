// What the table of strategies (techniques.h) makes of a run: the program of each rank.
// Threads: pure.
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

struct Row {
  std::unique_ptr<Strategy> strategy;
  program::Proof establishes;  // what holds after this row and those before it
};

// How many buffers pools have. A prefetch that is left to herd counts 1 here: who knows the machines resolves it first
// (planner/rewrites.h).
program::SlotRules slot_rules(const spec::RunFile& run);

// The rows that this run asks for, in the order of techniques(); the last also holds what rows after it establish.
std::vector<Row> strategy_rows(const spec::RunFile& run, const spec::ModelTable& model, const spec::Layout& layout);

// The program of one rank: the plain step through every row, then releases and slots.
program::Program compile_step(const spec::RunFile& run, const spec::ModelTable& model, const spec::Layout& layout,
                              int rank);

// The programs of all ranks, verified after every row. Throws kBug with the findings if one does not prove, kOverBudget
// if a rank's bound exceeds memory.device_budget or memory.host_budget.
std::vector<program::Program> compile_and_verify(const spec::RunFile& run, const spec::ModelTable& model,
                                                 const spec::Layout& layout);

// One rank of each stage of a pipeline: what needs most and what takes longest is among their programs. {0} without
// one.
std::vector<int> ranks_of_stages(const spec::Layout& layout);

// A run is proved before it starts: itself in worlds of up to kProvedWorld ranks and steps of up to kMostProvedOps ops
// over all of them, since a longer proof takes longer than people wait; else its quotient.
inline constexpr int kProvedWorld = 16;
inline constexpr size_t kMostProvedOps = 16000;
bool is_proved_itself(const program::Program& step, const spec::Layout& layout);

// What stands for a large run in its proof: the same strategies on the same kinds of axes, each of two ranks (of tensor
// parallelism as many as the smallest divisor of it, or of its key heads times that of their copies; of a pipeline a
// first, a middle and a last stage), two micro-batches more than stages and two layers a stage, where the run has more.
// What rewrites do depends on whether there are others on an axis, before and after a micro-batch, a layer or a stage,
// not on how many.
struct Quotient {
  spec::RunFile run;
  int ranks = 1;
};
Quotient quotient_of(const spec::RunFile& run, const spec::Layout& layout);

// "8 of 512 ranks (2 ranks = ...)" where the quotient was proved, empty where the run itself was.
std::string proved_instead(const spec::RunFile& run, const spec::Layout& layout, const program::Program& step);

// Throws kOverBudget where a step exceeds memory.device_budget or host_budget, with the table of the one that needs
// most, and the least budget that all of them can run with, in KiB.
void check_budgets(const std::vector<program::Program>& steps, const spec::RunFile& run);

// What a run starts from: the programs of `ranks`, one of them at least, their budgets checked (kOverBudget); the
// programs of all ranks are proved first where that does not take too long.
std::vector<program::Program> programs_of_run(const spec::RunFile& run, const spec::ModelTable& model,
                                              const spec::Layout& layout, const std::vector<int>& ranks);

}  // namespace herd::strategies
