// Computes how many cores there are to use.
#pragma once

namespace herd::launch {

int machine_cores();  // of the machine; at least 1
int host_cores();     // of those, what the control group's quota leaves this host; at least 1
int usable_cores();   // of those, the ones in this process's affinity mask; at least 1

}  // namespace herd::launch
