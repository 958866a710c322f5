// The samples that a run file asks for.
#pragma once

#include <memory>

#include "herd/data/sample_source.h"
#include "herd/spec/run_file.h"

namespace herd::train {

// Throws kBadConfig if the data is missing, or holds ids that the model's vocabulary doesn't.
std::unique_ptr<SampleSource> open_samples(const spec::RunFile& run, Split split);

}  // namespace herd::train
