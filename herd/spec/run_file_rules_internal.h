// Defines the rules of the run file that join several keys. Threads: pure.
#pragma once

#include "herd/spec/run_file.h"

namespace herd::spec {

// Fills kv_heads, head_width and ffn where they are 0, and the norm where it is empty. Throws kBadConfig where
// heads do not divide width.
void fill_derived(RunFile& run);
// Throws kBadConfig for the first rule that the run breaks. REQUIRES fill_derived().
void check_rules(const RunFile& run);

}  // namespace herd::spec
