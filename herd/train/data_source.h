// Opens the samples that a run file names. Threads: one at a time.
#pragma once

#include <memory>

#include "herd/data/sample_source.h"
#include "herd/spec/run_file.h"

namespace herd::train {

// Throws kBadConfig if the data is missing, or holds ids outside the model's vocabulary.
std::unique_ptr<SampleSource> open_samples(const spec::RunFile& run, Split split);

}  // namespace herd::train
