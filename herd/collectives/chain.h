// Collectives on a chain, here ranks in a row: every rank talks to the one before and the one after it alone, and no
// link joins the ends (n ranks, S message bytes). For meshes without wrap links.
//   all_reduce      sums go to the rank in the middle and back, in segments (segments.h): at most 2S bytes sent to
//                        either side, 2*floor(n/2) steps for one segment.
//   all_gather      parts travel both ways: n-1 steps, at most (n-1)/n * S bytes over a link each way.
//   reduce_scatter  all_gather in reverse: partial sums travel towards their owner from both ends.
//                        Order: part c is c's own + (c-1 + (c-2 + ..)) + (c+1 + (c+2 + ..)).  Scratch: S, none in
//                        place.
// Source: Chan, Heimlich, Purkayastha & van de Geijn 2007, doi:10.1002/cpe.1206 (paths and meshes).   Threads: pure.
#pragma once

#include "herd/collectives/request.h"

namespace herd {

Schedule all_reduce_chain(const CollectiveRequest& request);
Schedule all_gather_chain(const CollectiveRequest& request);
Schedule reduce_scatter_chain(const CollectiveRequest& request);

}  // namespace herd
