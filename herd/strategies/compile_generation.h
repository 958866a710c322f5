// The programs of a run that continues texts (program/generation_passes.h), proved on all ranks.
// Threads: pure.
#pragma once

#include <vector>

#include "herd/program/program.h"
#include "herd/spec/layout.h"
#include "herd/spec/run_file.h"

namespace herd::strategies {

struct GenerationPrograms {
  program::Program prompt;  // reads up to so many tokens, and begins the caches
  program::Program token;   // reads one
};

// The run whose programs these are: the model of `run`, in fp32 and with nothing that only training needs, one sequence
// and one rank.
spec::RunFile generation_run(const spec::RunFile& run);

// Of each rank of generation_run(), which may have a tp axis. `tokens`: the most that the prompt pass reads, in [1,
// model.context]. Throws kBug with the findings if a pass does not prove.
std::vector<GenerationPrograms> compile_generation(const spec::RunFile& run, const spec::Layout& layout,
                                                   int64_t tokens);

}  // namespace herd::strategies
