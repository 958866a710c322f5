// One decision among the members of a group that can no longer operate, by shared memory and the knowledge of who is
// gone alone. Every member that is alive votes; the first that sees every member voted or gone decides, by one compare
// and swap, and all others take its decision. So all that return have the same result, whoever dies when; a decider
// that dies is replaced. Threads: one per group.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "herd/base/ids.h"
#include "herd/base/store.h"
#include "herd/transport/channel.h"

namespace herd::comm {

struct Decision {
  std::vector<Rank> voters;  // of the group, ascending
  bool unanimous = false;    // all members of the round voted, and voted yes
};

class Agreement {
 public:
  // `gone` is true for a rank that has died or closed the group. Throws kBadConfig for a group over several hosts.
  Agreement(transport::Channel& channel, std::function<bool(Rank)> gone);
  // Rounds count from 1, the same on all ranks. Throws kTimeout naming the members that live and do not vote.
  Decision decide(uint64_t round, bool yes, const std::vector<Rank>& members, SteadyTime deadline);

 private:
  bool voted(Rank rank, uint64_t round) const;
  void try_to_decide(transport::AgreementRound& slot, uint64_t round, const std::vector<Rank>& members);

  transport::Channel& channel_;
  std::function<bool(Rank)> gone_;
};

}  // namespace herd::comm
