#include "herd/comm/agreement.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "herd/base/error.h"

namespace herd::comm {
namespace {

constexpr uint64_t kDecided = 1, kUnanimous = 2;

}  // namespace

Agreement::Agreement(transport::Channel& channel, std::function<bool(Rank)> gone)
    : channel_(channel), gone_(std::move(gone)) {
  bool together = channel.size() <= transport::AgreementRound::kMaxRanks;
  for (Rank peer = 0; peer < channel.size(); ++peer) together &= channel.maps(peer);
  if (together) return;
  throw Error(Code::kBadConfig, "survivors agree through the memory of one host, and this group has " +
                                    std::to_string(channel.size()) + " ranks, some of them elsewhere\n  fix: at most " +
                                    std::to_string(transport::AgreementRound::kMaxRanks) +
                                    " ranks of one host; else restart from the last checkpoint");
}

bool Agreement::voted(Rank rank, uint64_t round) const {
  return channel_.board(rank).vote.load(std::memory_order_seq_cst) >> 1 >= round;
}

void Agreement::try_to_decide(transport::AgreementRound& slot, uint64_t round, const std::vector<Rank>& members) {
  uint64_t state = slot.state.load(std::memory_order_seq_cst);
  const Rank decider = static_cast<Rank>(state >> 2) - 1;
  if ((state & kDecided) != 0 || (decider >= 0 && !gone_(decider))) return;
  const uint64_t mine = static_cast<uint64_t>(1 + channel_.rank()) << 2;
  if (!slot.state.compare_exchange_strong(state, mine, std::memory_order_seq_cst)) return;
  bool unanimous = true;
  for (auto& word : slot.voters) word.store(0, std::memory_order_relaxed);
  for (Rank member : members) {
    const uint64_t vote = channel_.board(member).vote.load(std::memory_order_seq_cst);
    unanimous &= vote == (round << 1 | 1);
    if (vote >> 1 == round)
      slot.voters[static_cast<size_t>(member) / 64].fetch_or(uint64_t{1} << (member % 64), std::memory_order_relaxed);
  }
  slot.state.store(mine | kDecided | (unanimous ? kUnanimous : 0), std::memory_order_seq_cst);
}

Decision Agreement::decide(uint64_t round, bool yes, const std::vector<Rank>& members, SteadyTime deadline) {
  if (round > transport::AgreementBoard::kRounds) {
    throw Error(Code::kPeerLost, "ranks went on dying while the others agreed who is left, " +
                                     std::to_string(transport::AgreementBoard::kRounds / 2) + " times");
  }
  transport::AgreementRound& slot = channel_.agreements().rounds[round - 1];
  channel_.board(channel_.rank()).vote.store(round << 1 | (yes ? 1 : 0), std::memory_order_seq_cst);
  while ((slot.state.load(std::memory_order_seq_cst) & kDecided) == 0) {
    std::string missing;
    for (Rank member : members) {
      if (!voted(member, round) && !gone_(member))
        missing += (missing.empty() ? "rank " : ", rank ") + std::to_string(member);
    }
    if (missing.empty()) {
      try_to_decide(slot, round, members);
    } else if (std::chrono::steady_clock::now() >= deadline) {
      throw Error(Code::kTimeout, "rank " + std::to_string(channel_.rank()) +
                                      " waits for these to agree who is left: " + missing +
                                      "\n  fix: every rank that lives calls shrink()");
    }
    if ((slot.state.load(std::memory_order_seq_cst) & kDecided) != 0) break;
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  Decision decision;
  decision.unanimous = (slot.state.load(std::memory_order_seq_cst) & kUnanimous) != 0;
  for (Rank member : members) {
    const uint64_t word = slot.voters[static_cast<size_t>(member) / 64].load(std::memory_order_relaxed);
    if ((word >> (member % 64) & 1) != 0) decision.voters.push_back(member);
  }
  return decision;
}

}  // namespace herd::comm
