// A Channel is the private lanes of one group over one transport; executors move data with it. Groups never share a
// lane, so none waits for another. Threads: one at a time, under the engine's lock.
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

// Tells one peer about a rank's current operation, in the same cache line as the rank's signals.
struct OperationHeader {
  uint64_t fingerprint = 0;
  uint64_t finished = 0;                         // last operation that the sender had finished when it wrote this
  uint64_t input_region = 0, output_region = 0;  // 0 = not in symmetric memory
  int64_t input_offset = 0, output_offset = 0;   // bytes
};

class Channel {
 public:
  virtual ~Channel() = default;
  virtual Rank rank() const = 0;
  virtual int size() const = 0;

  // Messages are two-sided. Those between two ranks on lane kCollective meet in order, on kPointToPoint in order within
  // a tag.
  virtual void post_send(Message& message) = 0;
  virtual void post_receive(Message& message) = 0;
  // Counts the payload of messages to peers on both lanes, as each piece is written to a ring or given to the wire.
  // Envelopes, headers and what a rank sends itself do not count.
  virtual uint64_t bytes_sent() const = 0;
  // Returns true once a point-to-point message with this tag, which no posted receive will take, has begun to arrive
  // from the peer. Messages before it are kept. A receive from any source asks each peer, and is posted to the first
  // one that answers true.
  virtual bool seek(Rank peer, uint64_t tag);
  virtual bool progress() = 0;       // moves what can move, at most a piece per peer; true if anything moved
  virtual void drop_messages() = 0;  // forgets all that is posted; the channel is of no use afterwards

  // Signals are one-sided, among ranks that map each other's memory. A header is published before its operation's first
  // signal, at most kHeaders operations ahead of what the peer has finished.
  static constexpr uint64_t kHeaders = 4;
  virtual bool maps(Rank peer) const = 0;
  virtual void publish(Rank peer, uint64_t sequence, const OperationHeader& header) = 0;
  // Tells the peer that the count-th signal of an operation is given, count <= kMaxSignals.
  static constexpr uint32_t kMaxSignals = (1u << 24) - 1;
  virtual void signal(Rank peer, uint64_t sequence, uint32_t count) = 0;
  // Counts what peer gave in its operation `sequence`.
  virtual uint32_t signals(Rank peer, uint64_t sequence) const = 0;
  virtual const OperationHeader& header(Rank peer, uint64_t sequence) const = 0;  // REQUIRES signals() > 0

  // Returns stage memory of a rank, copy 0 or 1; nullptr where it is not mapped.
  virtual int64_t stage_bytes() const = 0;
  virtual std::byte* stage(Rank peer, int copy) const = 0;

  // Returns the board of a peer, which is a copy where the peer is on another host. refresh_boards() asks those peers
  // for news, and waits at most so long for answers. A rank that is stopped or cut off does not answer.
  virtual RankBoard& board(Rank peer) = 0;
  virtual void refresh_boards(std::chrono::milliseconds) {}
  virtual FailureBoard& failure() = 0;
  virtual void tell_note() {}        // sends the note on this rank's board to members on other hosts
  virtual void ring(Rank peer) = 0;  // wakes the peer if it sleeps
  virtual void ring_all() = 0;       // wakes every peer that sleeps
};

}  // namespace herd::transport
