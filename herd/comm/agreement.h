// Lets the members of a failed group make one decision, from the notes that they publish and from which members are
// gone. Each member publishes its newest note to all others (agreement_note.h): its vote, the proposal that it holds,
// and the decisions that it knows. The lowest member that is not gone waits until each other one has voted or gone.
// Then it proposes what it saw, or the proposal that it holds, and decides once all that are not gone hold it. A member
// that replaces a dead proposer holds what that one may have decided. So all members that return have the same result,
// whenever others die. That fails only where a living member counts as gone, as a host does that the network cuts off.
// Source: hierarchical uniform consensus; Guerraoui & Rodrigues 2006, doi:10.1007/3-540-28846-5, section 5.2. Threads:
// one per group.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "herd/base/ids.h"
#include "herd/base/store.h"
#include "herd/transport/channel.h"

namespace herd::comm {

struct Decision {
  std::vector<Rank> voters;  // ranks of the group that voted, ascending
  bool unanimous = false;    // all members of the round voted, and voted yes
};

class Agreement {
 public:
  // `is_gone` is true for a rank that has died or closed the group. Throws kBadConfig for more than 1024 ranks.
  Agreement(transport::Channel& channel, std::function<bool(Rank)> is_gone);
  // Rounds count from 1, the same on all ranks. Throws kTimeout with the members that live and do not come, and
  // kPeerLost where the others went on without this rank.
  Decision decide(uint64_t round, bool yes, const std::vector<Rank>& members, SteadyTime deadline);

 private:
  struct View;  // the notes of all members at one moment
  View read_notes(uint64_t round, const std::vector<Rank>& members) const;
  void publish_note();
  bool adopt(const View& view);  // takes another member's decision, or a proposal of a higher rank
  void propose(const View& view, size_t num_members);
  void record_decision(const transport::AgreementValue& value);

  transport::Channel& channel_;
  std::function<bool(Rank)> is_gone_;
  transport::AgreementNote mine_;  // the note of this rank
};

}  // namespace herd::comm
