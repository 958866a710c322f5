// Defines what a run file may ask for that this version does not build yet: one list, one message.
// Threads: pure.
#pragma once

#include "herd/spec/run_file.h"

namespace herd::spec {

// Throws kBadConfig "not in this version", naming the key, its value and what is there.
void refuse_unbuilt(const RunFile& run);

// Throws kBadConfig where comm.transport asks for shared memory and the ranks are on several hosts.
void refuse_transport(const RunFile& run, int num_hosts);

}  // namespace herd::spec
