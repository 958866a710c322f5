// Barrier: no rank leaves before every rank has entered. Dissemination: in round k a rank tells the one 2^k after it,
// and hears from the one 2^k before it; what it tells follows all that it has heard.
//   ceil(log2 n) rounds, one message each way per round.
//   dissemination_send    messages of no elements, over any transport
//   dissemination_signal  signals, on one host
// Source: Hensgen, Finkel & Manber 1988, doi:10.1007/BF01379320.   Threads: pure.
#pragma once

#include "herd/collectives/request.h"

namespace herd {

Schedule barrier_dissemination_send(const CollectiveRequest& request);
Schedule barrier_dissemination_signal(const CollectiveRequest& request);

}  // namespace herd
