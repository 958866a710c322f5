#include "herd/transport/presence.h"

#include <algorithm>
#include <string>
#include <utility>

#include "herd/base/error.h"

namespace herd::transport {

using std::chrono::steady_clock;

Presence::Presence(Wire& wire, Rank rank, int size, std::vector<Rank> peers, Stamp stamp, std::function<bool()> rest)
    : wire_(wire),
      rank_(rank),
      peers_(std::move(peers)),
      words_(static_cast<size_t>(size)),
      stamp_(std::move(stamp)),
      rest_(std::move(rest)) {}

void Presence::say(Rank to, FrameKind kind) { wire_.send_copy(to, stamp_(to, kind), {}); }

void Presence::hear(const FrameHeader& header) {
  Words& words = words_[static_cast<size_t>(header.from)];
  if (header.kind == FrameKind::kHeard) {
    words.heard = true;
    return;
  }
  say(header.from, FrameKind::kHeard);
  if (header.kind == FrameKind::kBye) words.left = true;
  if (header.kind != FrameKind::kHello) return;
  words.met = true;
  if (header.from < rank_) say(header.from, FrameKind::kHello);
}

void Presence::meet(SteadyTime deadline) {
  for (Rank peer : peers_) {
    if (peer > rank_) say(peer, FrameKind::kHello);
  }
  for (Rank peer : peers_) {
    const Words& words = words_[static_cast<size_t>(peer)];
    while (!words.met || !words.heard) {
      const std::string who = "rank " + std::to_string(peer) + " can't be reached from rank " + std::to_string(rank_) +
                              " by " + wire_.description() + ": ";
      const std::string fix = "\n  fix: HERD_NETWORK=NAME of an interface that reaches the other hosts (herd doctor)";
      if (const std::string why = wire_.lost(peer); !why.empty()) throw Error(Code::kPeerLost, who + why + fix);
      if (steady_clock::now() >= deadline) throw Error(Code::kTimeout, who + "no answer" + fix);
      rest_();
    }
  }
}

void Presence::part(std::chrono::milliseconds timeout) {
  const auto open = [this](Rank peer) {
    const Words& words = words_[static_cast<size_t>(peer)];
    return !words.heard && !words.left && wire_.lost(peer).empty();
  };
  for (Rank peer : peers_) {
    words_[static_cast<size_t>(peer)].heard = false;
    if (open(peer)) say(peer, FrameKind::kBye);
  }
  auto moved = steady_clock::now();
  while (std::any_of(peers_.begin(), peers_.end(), open) && steady_clock::now() < moved + timeout) {
    if (rest_()) moved = steady_clock::now();
  }
}

}  // namespace herd::transport
