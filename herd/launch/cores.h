// Counts the cores there are to use. A host may be a container: several hosts then share a machine. Threads: any.
#pragma once

namespace herd::launch {

int machine_cores();  // returns the cores of the machine; at least 1
int host_cores();     // returns the machine's cores that the control group's quota leaves this host; at least 1
int usable_cores();   // returns the host's cores in this process's affinity mask; at least 1

}  // namespace herd::launch
