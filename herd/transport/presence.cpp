#include "herd/transport/presence.h"

#include <algorithm>
#include <string>
#include <utility>

#include "herd/base/error.h"

namespace herd::transport {

using std::chrono::steady_clock;

Presence::Presence(Wire& wire, Rank rank, int size, std::vector<Rank> peers, Stamp stamp,
                   std::function<bool()> progress_or_wait)
    : wire_(wire),
      rank_(rank),
      peers_(std::move(peers)),
      handshakes_(static_cast<size_t>(size)),
      stamp_(std::move(stamp)),
      progress_or_wait_(std::move(progress_or_wait)) {}

void Presence::send(Rank to, FrameKind kind) { wire_.send_copy(to, stamp_(to, kind), {}); }

void Presence::on_frame(const FrameHeader& header) {
  Handshake& handshake = handshakes_[static_cast<size_t>(header.from)];
  if (header.kind == FrameKind::kAcknowledge) {
    handshake.acknowledged = true;
    return;
  }
  send(header.from, FrameKind::kAcknowledge);
  if (header.kind == FrameKind::kBye) handshake.received_bye = true;
  if (header.kind != FrameKind::kHello) return;
  handshake.received_hello = true;
  if (header.from < rank_) send(header.from, FrameKind::kHello);
}

void Presence::join(SteadyTime deadline) {
  for (Rank peer : peers_) {
    if (peer > rank_) send(peer, FrameKind::kHello);
  }
  for (Rank peer : peers_) {
    const Handshake& handshake = handshakes_[static_cast<size_t>(peer)];
    while (!handshake.received_hello || !handshake.acknowledged) {
      const std::string who = "rank " + std::to_string(peer) + " can't be reached from rank " + std::to_string(rank_) +
                              " by " + wire_.description() + ": ";
      const std::string fix =
          "\n  fix: the same HERD_TOKEN on every rank, and HERD_NETWORK=NAME of an interface that "
          "reaches the other hosts (herd doctor)";
      if (const std::string why = wire_.lost(peer); !why.empty()) throw Error(Code::kPeerLost, who + why + fix);
      if (steady_clock::now() >= deadline) throw Error(Code::kTimeout, who + "no answer" + fix);
      progress_or_wait_();
    }
  }
}

void Presence::leave(std::chrono::milliseconds timeout) {
  const auto open = [this](Rank peer) {
    const Handshake& handshake = handshakes_[static_cast<size_t>(peer)];
    return !handshake.acknowledged && !handshake.received_bye && wire_.lost(peer).empty();
  };
  for (Rank peer : peers_) {
    handshakes_[static_cast<size_t>(peer)].acknowledged = false;
    if (open(peer)) send(peer, FrameKind::kBye);
  }
  auto moved = steady_clock::now();
  while (std::any_of(peers_.begin(), peers_.end(), open) && steady_clock::now() < moved + timeout) {
    if (progress_or_wait_()) moved = steady_clock::now();
  }
}

}  // namespace herd::transport
