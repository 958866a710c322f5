#include "herd/transport/local_channel.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "herd/base/check.h"
#include "herd/memory/shared_memory.h"

namespace herd::transport {
namespace {

constexpr int64_t kFrame = 64;             // bytes of an envelope in a ring; payloads are padded to it
constexpr int64_t kPiece = 64 * 1024;      // bytes published at a time: the other side works on one meanwhile
constexpr int64_t kRingsBudget = 8 << 20;  // bytes of all collective rings of a group
constexpr int64_t kStage = 2368 << 10;     // one copy of a rank's stage: the most that staged algorithms ask for

constexpr int kCountBits = std::bit_width(Channel::kMaxSignals);

int64_t power_of_two(int64_t bytes, int64_t least, int64_t most) {
  return std::clamp(static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(std::max<int64_t>(bytes, 1)))), least,
                    most);
}

}  // namespace

LocalLayout::LocalLayout(int n) {
  const int64_t pairs = static_cast<int64_t>(n) * n;
  ring_bytes = {power_of_two(kRingsBudget / pairs, 16 << 10, 1 << 20),
                power_of_two(kRingsBudget / 4 / pairs, 16 << 10, 1 << 18)};
  stage_bytes = n == 1 ? kPageBytes : kStage;
  failure = round_up(sizeof(RankBoard), kPageBytes);
  slots = failure + round_up(sizeof(FailureBoard), kPageBytes);
  counters = slots + n * static_cast<int64_t>(Channel::kHeaders) * 64;
  rings = round_up(counters + n * 2 * static_cast<int64_t>(sizeof(RingCounters)), kPageBytes);
  stage = rings + n * (ring_bytes[0] + ring_bytes[1]);
  total = stage + 2 * stage_bytes;
}

LocalChannel::LocalChannel(Rank self, std::shared_ptr<SharedRegion> region, std::vector<Doorbell> doorbells)
    : self_(self),
      size_(static_cast<int>(doorbells.size())),
      layout_(size_),
      region_(std::move(region)),
      doorbells_(std::move(doorbells)),
      pairs_(static_cast<size_t>(size_)) {
  const auto counters = [&](Rank from, Rank to, size_t lane) {
    return reinterpret_cast<RingCounters*>(region_->of(from) + layout_.counters) + (static_cast<size_t>(to) * 2 + lane);
  };
  const auto bytes = [&](Rank from, Rank to, size_t lane) {
    return region_->of(from) + layout_.rings + to * (layout_.ring_bytes[0] + layout_.ring_bytes[1]) +
           (lane == 0 ? 0 : layout_.ring_bytes[0]);
  };
  for (Rank peer = 0; peer < size_; ++peer) {
    for (size_t lane = 0; lane < 2; ++lane) {
      const auto capacity = static_cast<uint64_t>(layout_.ring_bytes[lane]);
      pairs_[static_cast<size_t>(peer)].writer[lane] =
          RingWriter(counters(self, peer, lane), bytes(self, peer, lane), capacity);
      pairs_[static_cast<size_t>(peer)].reader[lane] =
          RingReader(counters(peer, self, lane), bytes(peer, self, lane), capacity);
    }
  }
}

LocalChannel::~LocalChannel() { board(self_).left.store(1, std::memory_order_seq_cst); }

void LocalChannel::Queue::push(Message& message) {
  message.next = nullptr;
  (first == nullptr ? first : last->next) = &message;
  last = &message;
}

void LocalChannel::Queue::pop() {
  first = first->next;
  if (first == nullptr) last = nullptr;
}

void LocalChannel::Queue::remove(Message* message) {
  if (first == message) return pop();
  for (Message* at = first; at != nullptr; at = at->next) {
    if (at->next != message) continue;
    at->next = message->next;
    if (last == message) last = at;
    return;
  }
}

void LocalChannel::post_send(Message& message, Rank to) {
  pairs_[static_cast<size_t>(to)].sends[static_cast<size_t>(message.lane)].push(message);
  ++posted_;
}

void LocalChannel::post_receive(Message& message, Rank from) {
  Pair& pair = pairs_[static_cast<size_t>(from)];
  if (message.lane == Lane::kPointToPoint) {
    for (auto stash = pair.stashes.begin(); stash != pair.stashes.end(); ++stash) {
      if (stash->envelope.tag != message.envelope.tag) continue;
      if (message.meets(stash->envelope)) message.take(stash->bytes);
      message.done = !message.mismatch;
      pair.stashes.erase(stash);
      return;
    }
  }
  pair.receives[static_cast<size_t>(message.lane)].push(message);
  ++posted_;
}

void LocalChannel::finished(Queue& queue, Message& message) {
  queue.remove(&message);
  --posted_;
  message.done = !message.mismatch;
}

bool LocalChannel::progress() {
  if (posted_ == 0) return false;
  bool moved = false;
  for (Rank peer = 0; peer < size_; ++peer) {
    Pair& pair = pairs_[static_cast<size_t>(peer)];
    if (pair.sends[0].first != nullptr) moved |= move_send(pair, peer, Lane::kCollective);
    if (pair.receives[0].first != nullptr) moved |= move_receive(pair, peer);
    if (pair.sends[1].first != nullptr) moved |= move_send(pair, peer, Lane::kPointToPoint);
    if (pair.receives[1].first != nullptr) moved |= move_point_to_point(pair, peer);
  }
  return moved;
}

void LocalChannel::drop_messages() {
  for (Pair& pair : pairs_) {
    pair.sends = {};
    pair.receives = {};
    pair.incoming.into = nullptr;
    pair.incoming.dropped = true;
  }
  posted_ = 0;
}

bool LocalChannel::move_send(Pair& pair, Rank peer, Lane lane) {
  Queue& queue = pair.sends[static_cast<size_t>(lane)];
  Message& message = *queue.first;
  RingWriter& ring = pair.writer[static_cast<size_t>(lane)];
  const int64_t size = static_cast<int64_t>(message.envelope.bytes);
  const int64_t left = size - message.moved;
  const std::span<std::byte> space =
      ring.space(static_cast<uint64_t>(std::min(round_up(left, kFrame), kPiece) + (message.started ? 0 : kFrame)));
  if (space.empty()) return false;
  int64_t used = 0;
  if (!message.started) {
    std::memcpy(space.data(), &message.envelope, sizeof(Envelope));
    message.started = true;
    used = kFrame;
  }
  const int64_t take = std::min(left, static_cast<int64_t>(space.size()) - used);
  if (take > 0) std::memcpy(space.data() + used, message.data + message.moved, static_cast<size_t>(take));
  ring.publish(static_cast<uint64_t>(used + round_up(take, kFrame)));
  message.moved += take;
  if (message.moved == size) finished(queue, message);
  doorbells_[static_cast<size_t>(peer)].ring();
  return true;
}

bool LocalChannel::move_receive(Pair& pair, Rank peer) {
  Queue& queue = pair.receives[0];
  Message& message = *queue.first;
  RingReader& ring = pair.reader[0];
  if (message.mismatch) return false;
  const int64_t size = static_cast<int64_t>(message.envelope.bytes);
  std::span<const std::byte> here = ring.available(
      static_cast<uint64_t>(std::min(round_up(size - message.moved, kFrame), kPiece) + (message.started ? 0 : kFrame)));
  if (here.empty()) return false;
  int64_t used = 0;
  if (!message.started) {
    Envelope arrived;
    std::memcpy(&arrived, here.data(), sizeof arrived);
    message.started = true;
    if (!message.meets(arrived)) return true;
    used = kFrame;
  }
  const int64_t take = std::min(size - message.moved, static_cast<int64_t>(here.size()) - used);
  message.take(here.subspan(static_cast<size_t>(used), static_cast<size_t>(take)));
  ring.release(static_cast<uint64_t>(used + round_up(take, kFrame)));
  if (message.moved == size) finished(queue, message);
  doorbells_[static_cast<size_t>(peer)].ring();
  return true;
}

bool LocalChannel::begin_incoming(Pair& pair) {
  Incoming& incoming = pair.incoming;
  const std::span<const std::byte> here = pair.reader[1].available(kFrame);
  if (here.empty()) return false;
  incoming = {};
  incoming.active = true;
  std::memcpy(&incoming.envelope, here.data(), sizeof(Envelope));
  pair.reader[1].release(kFrame);
  for (Message* at = pair.receives[1].first; at != nullptr; at = at->next) {
    if (at->envelope.tag != incoming.envelope.tag || at->mismatch) continue;
    at->started = true;
    if (at->meets(incoming.envelope)) {
      incoming.into = at;
    } else {
      incoming.dropped = true;
      finished(pair.receives[1], *at);
    }
    return true;
  }
  incoming.stash.envelope = incoming.envelope;
  incoming.stash.bytes.reserve(incoming.envelope.bytes);
  return true;
}

void LocalChannel::finish_incoming(Pair& pair) {
  Incoming& incoming = pair.incoming;
  incoming.active = false;
  if (incoming.into != nullptr) return finished(pair.receives[1], *incoming.into);
  if (incoming.dropped) return;
  for (Message* at = pair.receives[1].first; at != nullptr; at = at->next) {
    if (at->envelope.tag != incoming.envelope.tag || at->mismatch) continue;
    at->started = true;
    if (at->meets(incoming.envelope)) at->take(incoming.stash.bytes);
    return finished(pair.receives[1], *at);
  }
  pair.stashes.push_back(std::move(incoming.stash));
}

bool LocalChannel::move_point_to_point(Pair& pair, Rank peer) {
  Incoming& incoming = pair.incoming;
  RingReader& ring = pair.reader[1];
  if (!incoming.active && !begin_incoming(pair)) return false;
  const int64_t left = static_cast<int64_t>(incoming.envelope.bytes) - incoming.moved;
  const auto here = ring.available(static_cast<uint64_t>(std::min(round_up(left, kFrame), kPiece)));
  const int64_t take = std::min(left, static_cast<int64_t>(here.size()));
  if (take > 0) {
    const auto bytes = here.first(static_cast<size_t>(take));
    if (incoming.into != nullptr)
      incoming.into->take(bytes);
    else if (!incoming.dropped)
      incoming.stash.bytes.insert(incoming.stash.bytes.end(), bytes.begin(), bytes.end());
    ring.release(static_cast<uint64_t>(round_up(take, kFrame)));
    incoming.moved += take;
  }
  if (take == left) finish_incoming(pair);
  doorbells_[static_cast<size_t>(peer)].ring();
  return take > 0 || take == left;
}

bool LocalChannel::seek(Rank peer, uint64_t tag) {
  Pair& pair = pairs_[static_cast<size_t>(peer)];
  for (const Stash& stash : pair.stashes) {
    if (stash.envelope.tag == tag) return true;
  }
  for (const Message* at = pair.receives[1].first; at != nullptr; at = at->next) {
    if (at->envelope.tag == tag && !at->mismatch) return false;  // it takes the next one
  }
  while (true) {
    const Incoming& incoming = pair.incoming;
    if (incoming.active) {
      if (incoming.into == nullptr && !incoming.dropped && incoming.envelope.tag == tag) return true;
      if (!move_point_to_point(pair, peer)) return false;
      continue;
    }
    const std::span<const std::byte> here = pair.reader[1].available(kFrame);
    if (here.empty()) return false;
    Envelope next;
    std::memcpy(&next, here.data(), sizeof next);
    if (next.tag == tag) return true;
    begin_incoming(pair);
  }
}

LocalChannel::SignalSlot& LocalChannel::slot(Rank from, Rank to, uint64_t sequence) const {
  auto* slots = reinterpret_cast<SignalSlot*>(region_->of(from) + layout_.slots);
  return slots[static_cast<uint64_t>(to) * kHeaders + sequence % kHeaders];
}

void LocalChannel::publish(Rank peer, uint64_t sequence, const OperationHeader& header) {
  slot(self_, peer, sequence).header = header;
}

void LocalChannel::signal(Rank peer, uint64_t sequence, uint32_t count) {
  slot(self_, peer, sequence).signals.store(sequence << kCountBits | count, std::memory_order_seq_cst);
  doorbells_[static_cast<size_t>(peer)].ring();
}

uint32_t LocalChannel::signals(Rank peer, uint64_t sequence) const {
  const uint64_t word = slot(peer, self_, sequence).signals.load(std::memory_order_seq_cst);
  return word >> kCountBits == (sequence << kCountBits) >> kCountBits ? static_cast<uint32_t>(word & kMaxSignals) : 0;
}

const OperationHeader& LocalChannel::header(Rank peer, uint64_t sequence) const {
  return slot(peer, self_, sequence).header;
}

std::byte* LocalChannel::stage(Rank peer, int copy) const {
  return region_->of(peer) + layout_.stage + copy * layout_.stage_bytes;
}

RankBoard& LocalChannel::board(Rank peer) { return *reinterpret_cast<RankBoard*>(region_->of(peer)); }

FailureBoard& LocalChannel::failure() { return *reinterpret_cast<FailureBoard*>(region_->of(0) + layout_.failure); }

void LocalChannel::ring_all() {
  for (Rank peer = 0; peer < size_; ++peer) {
    if (peer != self_) doorbells_[static_cast<size_t>(peer)].ring();
  }
}

}  // namespace herd::transport
