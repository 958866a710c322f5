// Makes the parameter servers of a run (strategy.sync), from the run file.   Threads: one at a time.
#pragma once

#include <c10/core/ScalarType.h>

#include <memory>
#include <vector>

#include "herd/optim/learning_rate.h"
#include "herd/program/program.h"
#include "herd/runtime/flat_parameters.h"
#include "herd/runtime/served_parameters.h"
#include "herd/runtime/server_share.h"
#include "herd/spec/layout.h"
#include "herd/spec/model_table.h"
#include "herd/spec/run_file.h"

namespace herd::train {

// Returns the types of the optimizer's states that each rank keeps for itself: none where servers keep them.
std::vector<at::ScalarType> own_state_types(const spec::RunFile& run, const spec::Layout& layout);
// Returns what the servers and the ranks that push of a run must both know. REQUIRES uses_servers(run, layout).
runtime::ServedOptions served_options(const spec::RunFile& run, const spec::ModelTable& table,
                                      const spec::Layout& layout, const runtime::Groups& groups,
                                      const optim::LearningRate& rate);
// Returns null where ranks do not push to servers. Borrows `parameters`.
std::unique_ptr<runtime::ServedParameters> served_parameters(const spec::RunFile& run, const spec::ModelTable& table,
                                                             const spec::Layout& layout,
                                                             const runtime::FlatParameters& parameters,
                                                             const program::Program& step,
                                                             const optim::LearningRate& rate);

}  // namespace herd::train
