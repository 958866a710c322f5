// How many cores there are to use.
#pragma once

namespace herd::launch {

int host_cores();    // of the host, cut by the control group's quota; at least 1
int usable_cores();  // of those, the ones in this process's affinity mask; at least 1

}  // namespace herd::launch
