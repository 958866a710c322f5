#include "herd/transport/remote_lanes.h"

#include <algorithm>
#include <utility>

namespace herd::transport {
namespace {

constexpr uint64_t kCreditBytes = 4 << 20;  // bytes that may be under way to a peer on a lane, or wait unread there
constexpr int64_t kLastBytes = 1 << 10;     // size of the copy that completes a message of several pieces
constexpr int kMaxInFlight = 8;             // pieces of a lane that the wire may hold

}  // namespace

RemoteLanes::RemoteLanes(Wire& wire, std::vector<Rank> ranks, MakeHeader make_header)
    : wire_(wire), ranks_(std::move(ranks)), make_header_(std::move(make_header)), peers_(ranks_.size()) {
  for (size_t member = 0; member < ranks_.size(); ++member) {
    if (ranks_[member] >= 0) remote_.push_back(static_cast<int>(member));
  }
}

void RemoteLanes::post_send(Message& message) {
  const auto lane = static_cast<size_t>(message.traffic);
  peers_[static_cast<size_t>(message.peer)].outbox[lane].queue.push_back(&message);
  move(message.peer, lane);
}

void RemoteLanes::post_receive(Message& message) {
  const auto lane = static_cast<size_t>(message.traffic);
  peers_[static_cast<size_t>(message.peer)].inbox[lane].post(message);
  give_room(message.peer, lane);
}

bool RemoteLanes::has_unclaimed_message(int member, uint64_t tag) {
  const auto lane = static_cast<size_t>(Traffic::kPointToPoint);
  const bool found = peers_[static_cast<size_t>(member)].inbox[lane].has_unclaimed_message(tag);
  give_room(member, lane);
  return found;
}

void RemoteLanes::arrive(int member, const FrameHeader& header, std::span<const std::byte> payload) {
  Peer& peer = peers_[static_cast<size_t>(member)];
  const size_t lane = header.lane & 1;
  peer.outbox[lane].taken = std::max(peer.outbox[lane].taken, header.taken);
  if (header.kind == FrameKind::kData) peer.inbox[lane].arrive(header.envelope, header.offset, payload);
  give_room(member, lane);
}

FrameHeader RemoteLanes::header_of(int member, size_t lane, const Message& message) {
  Peer& peer = peers_[static_cast<size_t>(member)];
  FrameHeader header = make_header_(member, FrameKind::kData);
  header.lane = static_cast<uint8_t>(lane);
  header.offset = static_cast<uint64_t>(message.moved);
  header.envelope = message.envelope;
  header.taken = peer.reported[lane] = peer.inbox[lane].taken();
  return header;
}

bool RemoteLanes::move(int member, size_t lane) {
  Outbox& outbox = peers_[static_cast<size_t>(member)].outbox[lane];
  const Rank to = ranks_[static_cast<size_t>(member)];
  bool moved = false;
  while (!outbox.queue.empty() && outbox.sent - outbox.taken < kCreditBytes) {
    Message& message = *outbox.queue.front();
    const int64_t left = static_cast<int64_t>(message.envelope.bytes) - message.moved;
    const bool last = left <= (message.started ? kLastBytes : Wire::kCopyBytes);
    if (last ? *outbox.in_flight > 0 : *outbox.in_flight >= kMaxInFlight) break;
    // A piece ends where an element ends, since granules divide 64. It always leaves some bytes for the last copy.
    const int64_t take = last ? left : std::min(Wire::kPieceBytes, (left - kLastBytes + 63) & ~int64_t{63});
    const FrameHeader header = header_of(member, lane, message);
    const std::span<const std::byte> payload(message.data + message.moved, static_cast<size_t>(take));
    message.started = true;
    if (last)
      wire_.send_copy(to, header, payload);
    else
      wire_.send(to, header, payload, outbox.in_flight);
    message.moved += take;
    bytes_sent_ += static_cast<uint64_t>(take);
    outbox.sent += static_cast<uint64_t>(take) + Inbox::kPieceCharge;
    moved = true;
    if (!last) continue;
    message.done = true;
    outbox.queue.pop_front();
  }
  return moved;
}

void RemoteLanes::give_room(int member, size_t lane) {
  Peer& peer = peers_[static_cast<size_t>(member)];
  const uint64_t taken = peer.inbox[lane].taken();
  if (taken - peer.reported[lane] < kCreditBytes / 4) return;
  FrameHeader header = make_header_(member, FrameKind::kCredit);
  header.lane = static_cast<uint8_t>(lane);
  header.taken = peer.reported[lane] = taken;
  wire_.send_copy(ranks_[static_cast<size_t>(member)], header, {});
}

bool RemoteLanes::progress() {
  bool moved = false;
  for (int member : remote_) {
    for (size_t lane = 0; lane < 2; ++lane) {
      if (!peers_[static_cast<size_t>(member)].outbox[lane].queue.empty()) moved |= move(member, lane);
    }
  }
  return moved;
}

void RemoteLanes::drop_messages() {
  for (Peer& peer : peers_) {
    for (Inbox& inbox : peer.inbox) inbox.drop();
    for (Outbox& outbox : peer.outbox) outbox.queue.clear();
  }
}

}  // namespace herd::transport
