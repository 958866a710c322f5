// A Message is one end of a two-sided transfer. An executor posts it and owns it until it is done. Threads: one at a
// time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "herd/base/ids.h"

namespace herd::transport {

// Describes a transfer in its first bytes. A receiver compares them before any data moves.
struct Envelope {
  uint64_t tag = 0;  // kCollective: the operation's fingerprint; kPointToPoint: the caller's tag
  uint64_t bytes = 0;
  uint64_t description = 0;  // kPointToPoint: dtype, so that an error can name both sides'
};

// Takes the bytes of a receive as they arrive, straight out of the transport's memory; a Message without one copies
// them. `offset` counts bytes from the start of the message; `bytes` is a multiple of Message::granule.
struct ArrivalSink {
  virtual ~ArrivalSink() = default;
  virtual void take(std::byte* target, const std::byte* arrived, int64_t offset, int64_t bytes) = 0;
};

enum class Traffic : uint8_t { kCollective, kPointToPoint };  // messages of one do not wait for those of the other

struct Message {
  // Stores the envelope that arrived, and returns true if it is that of this receive; else sets `mismatch`.
  bool accept(const Envelope& arrived);
  // Takes the next bytes of a receive.
  void take(std::span<const std::byte> bytes);

  Rank peer = -1;  // rank in the channel's group
  Traffic traffic = Traffic::kCollective;
  std::byte* data = nullptr;
  Envelope envelope;
  int64_t granule = 1;  // bytes that arrive together: the size of an element, a power of two <= 64
  ArrivalSink* sink = nullptr;

  // The channel writes the members below.
  int64_t moved = 0;     // bytes of data sent or taken
  bool started = false;  // the envelope was sent, or has arrived
  bool done = false;
  bool mismatch = false;  // `received_envelope` is not that of this receive; no more messages of this traffic arrive
  Envelope received_envelope;
  Message* next = nullptr;  // next message of the queue that this one waits in
};

}  // namespace herd::transport
