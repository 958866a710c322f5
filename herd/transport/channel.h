// A Channel is the private lanes of one group over one transport; executors move data with it. Groups never share a
// lane, so none waits for another. Threads: one at a time (the engine's lock sees to it).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

#include "herd/base/error.h"
#include "herd/base/ids.h"
#include "herd/transport/board.h"
#include "herd/transport/message.h"

namespace herd::transport {

// What a rank tells one peer about its current operation, in the same cache line as its signals.
struct OperationHeader {
  uint64_t fingerprint = 0;
  uint64_t finished = 0;                         // the last operation that the sender had finished when it wrote this
  uint64_t input_region = 0, output_region = 0;  // 0 = not in symmetric memory
  int64_t input_offset = 0, output_offset = 0;   // bytes
};

class Channel {
 public:
  virtual ~Channel() = default;
  virtual Rank rank() const = 0;
  virtual int size() const = 0;

  // Two-sided. Messages between two ranks on lane kCollective meet in order; on kPointToPoint in order within a tag.
  virtual void post_send(Message& message) = 0;
  virtual void post_receive(Message& message) = 0;
  // Of the messages to peers, of both lanes: counted piece by piece, as each is written to a ring or given to the wire.
  // Payload alone, no envelopes or headers; what a rank sends itself is none.
  virtual uint64_t bytes_sent() const = 0;
  // True once a point-to-point message with this tag has begun to arrive from the peer that no posted receive will
  // take; what is in its way is kept. For receives from any source: the caller posts one to the peer that has
  // something.
  virtual bool seek(Rank peer, uint64_t tag);
  virtual bool progress() = 0;       // moves what can move, a piece per peer at most; true if anything did
  virtual void drop_messages() = 0;  // forgets all that is posted; the channel is of no use afterwards

  // One-sided: among ranks that map each other's memory. A header is written before the operation's first signal.
  // At most kHeaders operations ahead of what the peer has finished.
  static constexpr uint64_t kHeaders = 4;
  virtual bool maps(Rank peer) const = 0;
  virtual void publish(Rank peer, uint64_t sequence, const OperationHeader& header) = 0;
  // Tells that the count-th signal is given, count <= kMaxSignals.
  static constexpr uint32_t kMaxSignals = (1u << 24) - 1;
  virtual void signal(Rank peer, uint64_t sequence, uint32_t count) = 0;
  virtual uint32_t signals(Rank peer, uint64_t sequence) const = 0;  // given by peer in its operation `sequence`
  virtual const OperationHeader& header(Rank peer, uint64_t sequence) const = 0;  // after the first signal of it

  // Stage memory of a rank: copy 0 or 1. nullptr where it is not mapped.
  virtual int64_t stage_bytes() const = 0;
  virtual std::byte* stage(Rank peer, int copy) const = 0;

  // The board of a peer on another host is a copy: refresh_boards() asks for what is new, and waits so long for the
  // answers at most. A rank that is stopped or cut off does not answer.
  virtual RankBoard& board(Rank peer) = 0;
  virtual void refresh_boards(std::chrono::milliseconds) {}
  virtual FailureBoard& failure() = 0;
  virtual void tell_note() {}        // to members on other hosts: the note on this rank's board
  virtual void ring(Rank peer) = 0;  // wakes the peer if it sleeps
  virtual void ring_all() = 0;       // wakes every peer that sleeps
};

}  // namespace herd::transport
