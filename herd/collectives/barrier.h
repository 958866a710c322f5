// Barrier: no rank leaves before every rank has entered.
//   dissemination_send    takes ceil(log2 n) rounds. In round k a rank tells the one 2^k after it, and hears from the
//                         one 2^k before it. What it tells follows all that it has heard. Messages have no elements,
//                         and any transport carries them.
//   dissemination_signal  does the same by signals, on one host.
//   direct_signal         takes one round: every rank signals every other, then waits for every other, on one host.
//                         Where ranks share cores, each gives its core away once, not once a round.
// Source of dissemination: Hensgen, Finkel & Manber 1988, doi:10.1007/BF01379320.   Threads: pure.
#pragma once

#include "herd/collectives/request.h"

namespace herd {

Schedule barrier_dissemination_send(const CollectiveRequest& request);
Schedule barrier_dissemination_signal(const CollectiveRequest& request);
Schedule barrier_direct_signal(const CollectiveRequest& request);

}  // namespace herd
