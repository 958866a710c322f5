// Rules of the run file that join several keys.
#pragma once

#include "herd/spec/run_file.h"

namespace herd::spec {

void fill_derived(RunFile& run);  // kv_heads, head_width and ffn where 0; the norm that the kind has; throws kBadConfig
void check_rules(const RunFile& run);  // throws kBadConfig

}  // namespace herd::spec
