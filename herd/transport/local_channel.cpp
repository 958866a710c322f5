#include "herd/transport/local_channel.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "herd/base/check.h"
#include "herd/memory/shared_memory.h"

namespace herd::transport {
namespace {

constexpr int64_t kFrameBytes = 64;           // size of an envelope in a ring; payloads are padded to it
constexpr int64_t kPublishBytes = 64 * 1024;  // published at a time: the other side works on a piece meanwhile
constexpr int64_t kAllRingsBytes = 8 << 20;   // collective rings of a group, all together
constexpr int64_t kStageBytes = 2368 << 10;   // one copy of a rank's stage: the most that staged algorithms ask for
constexpr int64_t kSmallStage = 64 << 10;     // the part of a copy that small messages make real

constexpr int kCountBits = std::bit_width(Channel::kMaxSignals);  // low bits of a signal's word; the sequence is above

// Returns the largest power of two up to `bytes`, but at least `least` and at most `most`.
int64_t power_of_two(int64_t bytes, int64_t least, int64_t most) {
  return std::clamp(static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(std::max<int64_t>(bytes, 1)))), least,
                    most);
}

}  // namespace

LocalLayout::LocalLayout(int n) {
  const int64_t pairs = static_cast<int64_t>(n) * n;
  ring_bytes = {power_of_two(kAllRingsBytes / pairs, 16 << 10, 1 << 20),
                power_of_two(kAllRingsBytes / 4 / pairs, 16 << 10, 1 << 18)};
  stage_bytes = n == 1 ? kPageBytes : kStageBytes;
  failure = round_up(sizeof(RankBoard), kPageBytes);
  signal_lines = failure + round_up(sizeof(FailureBoard), kPageBytes);
  counters = signal_lines + n * static_cast<int64_t>(Channel::kHeaders) * 64;
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
  for (Rank peer = 0; peer < size_; ++peer) parts_.push_back(region_->of(peer));
  const auto counters = [&](Rank from, Rank to, size_t lane) {
    return reinterpret_cast<RingCounters*>(memory_of(from) + layout_.counters) + (static_cast<size_t>(to) * 2 + lane);
  };
  const auto bytes = [&](Rank from, Rank to, size_t lane) {
    return memory_of(from) + layout_.rings + to * (layout_.ring_bytes[0] + layout_.ring_bytes[1]) +
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
  Pair& pair = pairs_[static_cast<size_t>(to)];
  if (!pair.has_ring[static_cast<size_t>(message.traffic)]) commit_ring(pair, to, message.traffic);
  pair.sends[static_cast<size_t>(message.traffic)].push(message);
  ++posted_;
}

void LocalChannel::commit_ring(Pair& pair, Rank peer, Traffic traffic) {
  const auto lane = static_cast<size_t>(traffic);
  const int64_t begin =
      layout_.rings + peer * (layout_.ring_bytes[0] + layout_.ring_bytes[1]) + (lane == 0 ? 0 : layout_.ring_bytes[0]);
  region_->commit(self_, begin, layout_.ring_bytes[lane]);
  pair.has_ring[lane] = true;
}

void LocalChannel::post_receive(Message& message, Rank from) {
  Pair& pair = pairs_[static_cast<size_t>(from)];
  if (message.traffic == Traffic::kCollective) {
    pair.receives.push(message);
    ++posted_;
  } else {
    const size_t waiting = pair.inbox.posted();
    pair.inbox.post(message);
    posted_ += static_cast<int>(pair.inbox.posted()) - static_cast<int>(waiting);
  }
}

void LocalChannel::finish(Queue& queue, Message& message) {
  queue.remove(&message);
  --posted_;
  message.done = !message.mismatch;
}

bool LocalChannel::progress() {
  if (posted_ == 0) return false;
  bool moved = false;
  for (Rank peer = 0; peer < size_; ++peer) {
    Pair& pair = pairs_[static_cast<size_t>(peer)];
    if (pair.sends[0].first != nullptr) moved |= move_send(pair, peer, Traffic::kCollective);
    if (pair.receives.first != nullptr) moved |= move_receive(pair, peer);
    if (pair.sends[1].first != nullptr) moved |= move_send(pair, peer, Traffic::kPointToPoint);
    if (pair.inbox.posted() > 0) moved |= move_point_to_point(pair, peer);
  }
  return moved;
}

void LocalChannel::drop_messages() {
  for (Pair& pair : pairs_) {
    pair.sends = {};
    pair.receives = {};
    pair.inbox.drop();
  }
  posted_ = 0;
}

bool LocalChannel::move_send(Pair& pair, Rank peer, Traffic traffic) {
  Queue& queue = pair.sends[static_cast<size_t>(traffic)];
  Message& message = *queue.first;
  RingWriter& ring = pair.writer[static_cast<size_t>(traffic)];
  const int64_t size = static_cast<int64_t>(message.envelope.bytes);
  const int64_t left = size - message.moved;
  const std::span<std::byte> space = ring.space(static_cast<uint64_t>(
      std::min(round_up(left, kFrameBytes), kPublishBytes) + (message.started ? 0 : kFrameBytes)));
  if (space.empty()) return false;
  int64_t used = 0;
  if (!message.started) {
    std::memcpy(space.data(), &message.envelope, sizeof(Envelope));
    message.started = true;
    used = kFrameBytes;
  }
  const int64_t take = std::min(left, static_cast<int64_t>(space.size()) - used);
  if (take > 0) std::memcpy(space.data() + used, message.data + message.moved, static_cast<size_t>(take));
  ring.publish(static_cast<uint64_t>(used + round_up(take, kFrameBytes)));
  message.moved += take;
  if (peer != self_) bytes_sent_ += static_cast<uint64_t>(take);
  if (message.moved == size) finish(queue, message);
  doorbells_[static_cast<size_t>(peer)].ring();
  return true;
}

bool LocalChannel::move_receive(Pair& pair, Rank peer) {
  Queue& queue = pair.receives;
  Message& message = *queue.first;
  RingReader& ring = pair.reader[0];
  if (message.mismatch) return false;
  const int64_t size = static_cast<int64_t>(message.envelope.bytes);
  std::span<const std::byte> readable = ring.available(static_cast<uint64_t>(
      std::min(round_up(size - message.moved, kFrameBytes), kPublishBytes) + (message.started ? 0 : kFrameBytes)));
  if (readable.empty()) return false;
  int64_t used = 0;
  if (!message.started) {
    Envelope arrived;
    std::memcpy(&arrived, readable.data(), sizeof arrived);
    message.started = true;
    if (!message.accept(arrived)) return true;
    used = kFrameBytes;
  }
  const int64_t take = std::min(size - message.moved, static_cast<int64_t>(readable.size()) - used);
  message.take(readable.subspan(static_cast<size_t>(used), static_cast<size_t>(take)));
  ring.release(static_cast<uint64_t>(used + round_up(take, kFrameBytes)));
  if (message.moved == size) finish(queue, message);
  doorbells_[static_cast<size_t>(peer)].ring();
  return true;
}

bool LocalChannel::read_point_to_point(Pair& pair) {
  RingReader& ring = pair.reader[1];
  if (pair.unread == 0) {
    const std::span<const std::byte> readable = ring.available(kFrameBytes);
    if (readable.empty()) return false;
    std::memcpy(&pair.incoming, readable.data(), sizeof(Envelope));
    ring.release(kFrameBytes);
    pair.unread = pair.incoming.bytes;
    pair.inbox.arrive(pair.incoming, 0, {});
    return true;
  }
  const auto left = static_cast<int64_t>(pair.unread);
  const auto readable = ring.available(static_cast<uint64_t>(std::min(round_up(left, kFrameBytes), kPublishBytes)));
  if (readable.empty()) return false;
  const uint64_t take = std::min<uint64_t>(pair.unread, readable.size());
  pair.inbox.arrive(pair.incoming, pair.incoming.bytes - pair.unread, readable.first(take));
  ring.release(static_cast<uint64_t>(round_up(static_cast<int64_t>(take), kFrameBytes)));
  pair.unread -= take;
  return true;
}

bool LocalChannel::move_point_to_point(Pair& pair, Rank peer) {
  const size_t waiting = pair.inbox.posted();
  const bool moved = read_point_to_point(pair);
  posted_ -= static_cast<int>(waiting) - static_cast<int>(pair.inbox.posted());
  if (moved) doorbells_[static_cast<size_t>(peer)].ring();
  return moved;
}

bool LocalChannel::has_unclaimed_message(Rank peer, uint64_t tag) {
  Pair& pair = pairs_[static_cast<size_t>(peer)];
  while (!pair.inbox.has_unclaimed_message(tag)) {
    if (!move_point_to_point(pair, peer)) return false;
  }
  return true;
}

LocalChannel::SignalLine& LocalChannel::signal_line(Rank from, Rank to, uint64_t sequence) const {
  auto* lines = reinterpret_cast<SignalLine*>(memory_of(from) + layout_.signal_lines);
  return lines[static_cast<uint64_t>(to) * kHeaders + sequence % kHeaders];
}

void LocalChannel::publish_header(Rank peer, uint64_t sequence, const OperationHeader& header) {
  signal_line(self_, peer, sequence).header = header;
}

void LocalChannel::signal(Rank peer, uint64_t sequence, uint32_t count) {
  signal_line(self_, peer, sequence).signals.store(sequence << kCountBits | count, std::memory_order_seq_cst);
  doorbells_[static_cast<size_t>(peer)].ring();
}

uint32_t LocalChannel::signals(Rank peer, uint64_t sequence) const {
  const uint64_t word = signal_line(peer, self_, sequence).signals.load(std::memory_order_seq_cst);
  return word >> kCountBits == (sequence << kCountBits) >> kCountBits ? static_cast<uint32_t>(word & kMaxSignals) : 0;
}

const OperationHeader& LocalChannel::header(Rank peer, uint64_t sequence) const {
  return signal_line(peer, self_, sequence).header;
}

std::byte* LocalChannel::stage(Rank peer, int copy) const {
  return memory_of(peer) + layout_.stage + copy * layout_.stage_bytes;
}

void LocalChannel::commit_stage(int copy, int64_t bytes) {
  int64_t& real = real_stage_bytes_[static_cast<size_t>(copy)];
  if (bytes <= real) return;
  const int64_t wanted = std::min(bytes <= kSmallStage ? kSmallStage : layout_.stage_bytes, layout_.stage_bytes);
  region_->commit(self_, layout_.stage + copy * layout_.stage_bytes, wanted);
  real = wanted;
}

RankBoard& LocalChannel::board(Rank peer) { return *reinterpret_cast<RankBoard*>(memory_of(peer)); }

FailureBoard& LocalChannel::failure_board() { return *reinterpret_cast<FailureBoard*>(memory_of(0) + layout_.failure); }

void LocalChannel::wake_peers() {
  for (Rank peer = 0; peer < size_; ++peer) {
    if (peer != self_) doorbells_[static_cast<size_t>(peer)].ring();
  }
}

}  // namespace herd::transport
