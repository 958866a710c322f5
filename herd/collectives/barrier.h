// Barrier: no rank leaves before every rank has entered.
//   dissemination_send    ceil(log2 n) rounds; in round k a rank tells the one 2^k after it, and hears from the one 2^k
//                         before it; what it tells follows all that it has heard. Messages of no elements, over any
//                         transport.
//   dissemination_signal  the same by signals, on one host
//   direct_signal         one round: every rank signals every other, then waits for every other; on one host. Where
//                         ranks share cores, each gives its core away once, not once a round.
// Source of dissemination: Hensgen, Finkel & Manber 1988, doi:10.1007/BF01379320.   Threads: pure.
#pragma once

#include "herd/collectives/request.h"

namespace herd {

Schedule barrier_dissemination_send(const CollectiveRequest& request);
Schedule barrier_dissemination_signal(const CollectiveRequest& request);
Schedule barrier_direct_signal(const CollectiveRequest& request);

}  // namespace herd
