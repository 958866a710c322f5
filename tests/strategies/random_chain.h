// Tables of chains with random branches, and runs with random layouts for them.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "herd/program/verify_program.h"
#include "herd/spec/model_table.h"
#include "herd/spec/pipeline_order.h"
#include "herd/spec/run_file.h"

namespace herd::strategies::testing {

// Makes 5 to 12 blocks that give 1 to 3 tensors of different sizes each, some without gradient. A block reads tensors
// of any blocks before it and of the batch. Some tensors have no reader, some blocks no parameters, some groups are
// frozen. The first and the last block may share a group.
spec::ModelTable random_chain(std::mt19937& random);

// Lists all cuts of a chain into stages of consecutive blocks, each as the stage of each block.
std::vector<std::vector<int>> all_cuts(size_t blocks, int stages);

// What each stage of a cut weighs in time, as spec/stage_cut.h states it.
std::vector<double> weights_of_stages(const spec::ModelTable& chain, const std::vector<int>& cut);

struct ChainRun {
  spec::RunFile run;
  int ranks = 1;
  std::string text() const;
};

// Makes a layout that the chain allows. It writes orders of pipelines to `file`.
ChainRun random_layout(std::mt19937& random, const spec::ModelTable& chain, const std::string& file);

// Makes an order of passes at random, any that no rank waits in for ever.
spec::PipelineOrder random_order(std::mt19937& random, int ranks, int stages_per_rank, int micro_batches, bool folded,
                                 bool splits_backward);

// What the proof of a whole step expects of all ranks.
program::Expectation expectation_of(const ChainRun& run, const spec::ModelTable& chain);

}  // namespace herd::strategies::testing
