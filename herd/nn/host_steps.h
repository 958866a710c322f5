// Says what a rank does in a dispatch whose tokens go once to each other host, in order, as HostExchange names relays.
// The steps are the same for any counts. Each step that gets or sends says whose rows they are, and where they lie
// follows: a rank's own rows by rank, those of a parcel by its `ranks`, and those that come by source. A step without
// rows, or of a parcel without tokens, is left out at both ends.   Threads: pure.
#pragma once

#include <string>
#include <vector>

#include "herd/nn/expert_exchange.h"

namespace herd::nn {

struct HostStep {
  enum class Kind {
    kReceiveParcel,  // begins to get a relayed parcel: tokens, and the weights of their rows
    kReceiveRows,    // begins to get all rows of `source`
    kSendParcel,
    kSendRows,    // this rank's rows for rank `part`
    kOpenParcel,  // waits for a relayed parcel, and makes its rows
    kHandOn       // the rows of a relayed parcel for the rank at `part` of its `ranks`
  };
  Kind kind = Kind::kReceiveParcel;
  int rank = 0;    // at the other end; rows for this rank itself are a copy to their place, without a message
  int tag = 0;     // of rows: their source; of parcels: that after those of the ranks
  int source = 0;  // whose rows
  int parcel = 0;  // which of those that are sent, or relayed
  int part = 0;    // which of the rows
  bool operator==(const HostStep&) const = default;
};

// The steps of one of `ranks` ranks, whose routes these are (host_routes). All receives stand before any wait.
std::vector<HostStep> host_steps(const HostExchange& routes, int ranks, int rank);

// Returns what is wrong with the routes and steps of all ranks for some counts, or nothing: then for any counts each
// row of each source goes to the rank of its expert once, to its source's place, beside its own weight where a relay
// makes it; sends meet receives of the same rows in the same order between two ranks under a tag, so that none waits
// for ever; and a relay hands on only what has come.
std::string unproved(const std::vector<HostExchange>& routes, const std::vector<std::vector<HostStep>>& steps);

}  // namespace herd::nn
