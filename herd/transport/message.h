// A Message is one end of a two-sided transfer. An executor posts it and owns it until it is done.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "herd/base/ids.h"

namespace herd::transport {

// What the first bytes of a transfer say about it. A receiver compares before any data moves.
struct Envelope {
  uint64_t tag = 0;  // lane kCollective: the operation's fingerprint; lane kPointToPoint: the caller's tag
  uint64_t bytes = 0;
  uint64_t description = 0;  // kPointToPoint: dtype, so that both sides can be named
};

// What a receive does with bytes as they arrive, straight out of the transport's memory; nullptr copies.
// `offset` counts bytes from the start of the message; `bytes` is a multiple of Message::granule.
struct Arrival {
  virtual ~Arrival() = default;
  virtual void take(std::byte* target, const std::byte* arrived, int64_t offset, int64_t bytes) = 0;
};

enum class Lane : uint8_t { kCollective, kPointToPoint };

struct Message {
  // Of a receive: whether it fits what arrived; if not it is a mismatch.
  bool meets(const Envelope& arrived);
  // Of a receive: the next bytes of it.
  void take(std::span<const std::byte> bytes);

  Rank peer = -1;  // in the channel's group
  Lane lane = Lane::kCollective;
  std::byte* data = nullptr;
  Envelope envelope;
  int64_t granule = 1;  // bytes that must arrive together: the size of an element, a power of two <= 64
  Arrival* arrival = nullptr;

  // Written by the channel.
  int64_t moved = 0;     // bytes of data sent or taken
  bool started = false;  // the envelope has been sent or met
  bool done = false;
  bool mismatch = false;  // what arrived does not fit; `met` holds it. The message is over, and so is its lane
  Envelope met;
  Message* next = nullptr;
};

}  // namespace herd::transport
