#include "herd/comm/agreement.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "herd/base/error.h"

namespace herd::comm {

using transport::AgreementNote;
using transport::AgreementValue;

// Holds what the notes of the members say at one time.
struct Agreement::View {
  std::vector<std::pair<Rank, AgreementNote>> notes;  // of members, gone or not, that have said something
  std::vector<Rank> living;                           // members that are not gone
  std::vector<Rank> missing;                          // of those, the ones that have not voted in this round
};

Agreement::Agreement(transport::Channel& channel, std::function<bool(Rank)> is_gone)
    : channel_(channel), is_gone_(std::move(is_gone)) {
  if (channel.size() > AgreementValue::kMaxRanks) {
    throw Error(Code::kBadConfig, "up to " + std::to_string(AgreementValue::kMaxRanks) +
                                      " ranks agree who is left, and this group has " + std::to_string(channel.size()) +
                                      "\n  fix: restart from the last checkpoint");
  }
  mine_ = channel.board(channel.rank()).note.newest().value_or(AgreementNote{});
}

void Agreement::publish_note() {
  ++mine_.version;
  channel_.board(channel_.rank()).note.write(mine_);
  channel_.send_note();
}

// Asks who is gone before it reads notes, so that the last note of a member that is gone has arrived.
Agreement::View Agreement::read_notes(uint64_t round, const std::vector<Rank>& members) const {
  View view;
  for (Rank member : members) {
    if (member == channel_.rank() || !is_gone_(member)) view.living.push_back(member);
  }
  for (Rank member : members) {
    const auto note = member == channel_.rank() ? mine_ : channel_.board(member).note.newest();
    const bool voted = note && note->round >= round;
    if (note) view.notes.push_back({member, *note});
    if (!voted && std::binary_search(view.living.begin(), view.living.end(), member)) view.missing.push_back(member);
  }
  return view;
}

void Agreement::record_decision(const AgreementValue& value) {
  mine_.decisions[mine_.round % 2] = {mine_.round, value};
  publish_note();
}

// Takes a decision, or a proposal of a higher rank than the one held. Returns true once there is a decision.
bool Agreement::adopt(const View& view) {
  for (const auto& [member, note] : view.notes) {
    const AgreementNote::Decision& decision = note.decisions[mine_.round % 2];
    if (decision.round != mine_.round) continue;
    record_decision(decision.value);
    return true;
  }
  const uint64_t accepted_before = mine_.accepted_from;
  for (const auto& [member, note] : view.notes) {
    const uint64_t proposer = 1 + static_cast<uint64_t>(member);
    if (note.round != mine_.round || note.accepted_from != proposer || proposer <= mine_.accepted_from) continue;
    mine_.accepted_from = proposer;
    mine_.accepted = note.accepted;
  }
  if (mine_.accepted_from != accepted_before) publish_note();
  return false;
}

// Proposes a value, and decides it once all living members have accepted it. REQUIRES that this rank is the lowest that
// is not gone, and that nobody is missing.
void Agreement::propose(const View& view, size_t num_members) {
  const uint64_t proposer = 1 + static_cast<uint64_t>(channel_.rank());
  if (mine_.accepted_from != proposer) {
    if (mine_.accepted_from == 0) {
      size_t yes = 0;
      for (const auto& [member, note] : view.notes) {
        if (note.round != mine_.round) continue;
        mine_.accepted.voters[static_cast<size_t>(member) / 64] |= uint64_t{1} << (member % 64);
        yes += note.yes;
      }
      mine_.accepted.unanimous = yes == num_members ? 1 : 0;
    }
    mine_.accepted_from = proposer;
    return publish_note();
  }
  for (const auto& [member, note] : view.notes) {
    const bool is_living = std::binary_search(view.living.begin(), view.living.end(), member);
    if (is_living && (note.round != mine_.round || note.accepted_from != proposer)) return;
  }
  record_decision(mine_.accepted);
}

Decision Agreement::decide(uint64_t round, bool yes, const std::vector<Rank>& members, SteadyTime deadline) {
  const Rank self = channel_.rank();
  mine_.round = round;
  mine_.yes = yes ? 1 : 0;
  mine_.accepted_from = 0;
  mine_.accepted = {};
  publish_note();
  const AgreementNote::Decision& decided = mine_.decisions[round % 2];
  while (decided.round != round) {
    const View view = read_notes(round, members);
    if (adopt(view)) break;
    if (view.missing.empty() && view.living.front() == self) propose(view, members.size());
    if (decided.round == round) break;
    if (std::chrono::steady_clock::now() >= deadline) {
      std::string who;
      for (Rank rank : view.missing.empty() ? view.living : view.missing) {
        if (rank != self) who += (who.empty() ? "rank " : ", rank ") + std::to_string(rank);
      }
      throw Error(Code::kTimeout, "rank " + std::to_string(self) + " waits for these to agree who is left: " + who +
                                      "\n  fix: every rank that lives calls shrink()");
    }
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  Decision decision;
  decision.unanimous = decided.value.unanimous != 0;
  for (Rank member : members) {
    const uint64_t word = decided.value.voters[static_cast<size_t>(member) / 64];
    if ((word >> (member % 64) & 1) != 0) decision.voters.push_back(member);
  }
  if (!std::binary_search(decision.voters.begin(), decision.voters.end(), self)) {
    throw Error(Code::kPeerLost, "the others went on without rank " + std::to_string(self) +
                                     ": they lost their connection to it\n  fix: restart from the last checkpoint");
  }
  return decision;
}

}  // namespace herd::comm
