// How many cores this process may use: its affinity mask, cut by the control group's quota.
#pragma once

namespace herd::launch {

int usable_cores();  // at least 1

}  // namespace herd::launch
