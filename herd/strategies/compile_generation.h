// Makes the programs that continue a text (program/generation_passes.h), and proves them on all ranks. Threads: pure.
#pragma once

#include <vector>

#include "herd/program/program.h"
#include "herd/spec/layout.h"
#include "herd/spec/run_file.h"

namespace herd::strategies {

// Holds the two programs of one rank.
struct GenerationPrograms {
  program::Program prompt;  // reads a text and begins the caches
  program::Program token;   // reads one token more and continues the caches
};

// Returns the run whose programs continue a text: the model of `run` in fp32, for one sequence and one rank. It has
// nothing that only training needs. Throws kBadConfig for a bert.
spec::RunFile generation_run(const spec::RunFile& run);

// Returns the programs of each rank. `run` is generation_run(), in which the caller may set mesh.tp; `layout` is its
// layout. The prompt pass reads at most `tokens` tokens, in [1, model.context]. Throws kBug with the findings if a pass
// cannot be proved.
std::vector<GenerationPrograms> compile_generation(const spec::RunFile& run, const spec::Layout& layout,
                                                   int64_t tokens);

}  // namespace herd::strategies
