// Programs that continue texts: the passes of a step's chain for one micro-batch that keep no graph, and the logits of
// the last token of each sequence in place of a loss. A block with attention keeps the keys and values of the tokens
// that it has seen in its cache, a persistent value that both programs hold: they run by turns on one memory.
//   prompt pass   reads a text and begins the caches
//   token pass    reads one token more and continues the caches
// Logits are persistent, too: whoever samples reads them between two passes.   Threads: pure.
#pragma once

#include "herd/program/program.h"
#include "herd/program/verify_program.h"
#include "herd/spec/model_table.h"

namespace herd::program {

enum class Caches : uint8_t { kBegun, kContinued };

// `step`: a plain step (build.h) of the table, or one whose blocks ranks share (strategies/tensor_parallel.h).
// `table`: spec::generation_table() of the tokens that the pass reads. The result has its releases.
Program generation_pass(const Program& step, const spec::ModelTable& table, Caches caches);

// What a step's expectation is for such a pass of it: no weight changes, and caches go from version to version.
Expectation generation_expected(Expectation step, const spec::ModelTable& table, Caches caches);

}  // namespace herd::program
