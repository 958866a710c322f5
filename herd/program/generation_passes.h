// Makes programs that continue texts. They are the forward passes of a step's chain for one micro-batch, without
// graphs. The logits of the last token of each sequence stand in place of a loss. A block with attention keeps in its
// cache the keys and values of the tokens that it has seen. Caches are persistent values that both programs hold, so
// the two programs take turns on the same memory.
//   prompt pass   reads a text and begins the caches
//   token pass    reads one token more and continues the caches
// Logits are persistent, too: whoever samples reads them between two passes.   Threads: pure.
#pragma once

#include "herd/program/program.h"
#include "herd/program/verify_program.h"
#include "herd/spec/model_table.h"

namespace herd::program {

// Says what a pass does with caches: begin them (prompt pass), or continue them (token pass).
enum class Caches : uint8_t { kBegun, kContinued };

// Returns the pass. `step` is a plain step (build.h), or one whose blocks ranks share (strategies/tensor_parallel.h).
// `table` is spec::generation_table() of the step's chain and of the tokens that the pass reads. The result has its
// releases.
Program generation_pass(const Program& step, const spec::ModelTable& table, Caches caches);

// Returns what the verifier expects of the pass (Expectation), from what it expects of the step: no weight changes, and
// caches go from version to version.
Expectation generation_expected(Expectation step, const spec::ModelTable& table, Caches caches);

}  // namespace herd::program
