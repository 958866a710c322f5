// A Channel carries the messages, signals and boards of one group over one transport; executors move data with it.
// Groups share no queues, so no group waits for another.
// Each collective of a group has a number, its `sequence`, the same on all its ranks, from 1 on.
// Threads: one at a time, under the lock of comm/progress_engine.h.
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

// Describes a rank's current operation to one peer. It lies in the same cache line as the rank's signals to that peer.
struct OperationHeader {
  uint64_t fingerprint = 0;                      // hash of the operation and of all before it in the group
  uint64_t last_finished = 0;                    // last operation that the sender had finished when it wrote this
  uint64_t input_region = 0, output_region = 0;  // 0 = not in symmetric memory
  int64_t input_offset = 0, output_offset = 0;   // bytes
};

class Channel {
 public:
  virtual ~Channel() = default;
  virtual Rank rank() const = 0;
  virtual int size() const = 0;

  // Messages are two-sided. Between two ranks the k-th send of Traffic kCollective matches the k-th receive; of
  // kPointToPoint the k-th send of a tag matches the k-th receive of that tag.
  virtual void post_send(Message& message) = 0;
  virtual void post_receive(Message& message) = 0;
  // Counts the payload of messages to peers, of both kinds of Traffic, as each piece is written to a ring or given to
  // the wire. Envelopes, headers and what a rank sends itself do not count.
  virtual uint64_t bytes_sent() const = 0;
  // Returns true once a point-to-point message with this tag, which no posted receive will take, has begun to arrive
  // from the peer. Messages that arrive before it stay queued. A receive from any source asks each peer, and is
  // posted to the first one that answers true.
  virtual bool has_unclaimed_message(Rank peer, uint64_t tag);
  // Moves at most one piece of a message for each peer; returns true if any moved.
  virtual bool progress() = 0;
  virtual void drop_messages() = 0;  // forgets all posted messages; the channel carries no more of them afterwards

  // Signals are one-sided, among ranks that map each other's memory. A rank publishes the header of an operation before
  // its first signal, at most kHeaders operations ahead of the last one that the peer has finished.
  static constexpr uint64_t kHeaders = 4;
  virtual bool maps(Rank peer) const = 0;  // returns true where this rank maps the peer's memory
  virtual void publish_header(Rank peer, uint64_t sequence, const OperationHeader& header) = 0;
  // Tells the peer that the count-th signal of an operation is given, count <= kMaxSignals.
  static constexpr uint32_t kMaxSignals = (1u << 24) - 1;
  virtual void signal(Rank peer, uint64_t sequence, uint32_t count) = 0;
  // Counts the signals that the peer has given this rank in the peer's operation `sequence`.
  virtual uint32_t signals(Rank peer, uint64_t sequence) const = 0;
  virtual const OperationHeader& header(Rank peer, uint64_t sequence) const = 0;  // REQUIRES signals() > 0

  // Stage memory is two copies of stage_bytes() for each rank, which the ranks of its host map.
  virtual int64_t stage_bytes() const = 0;
  virtual std::byte* stage(Rank peer, int copy) const = 0;  // `copy` is 0 or 1; nullptr where it is not mapped
  // Makes the first `bytes` of one copy of this rank's stage real, before it writes there. Throws kStorage.
  virtual void commit_stage(int copy, int64_t bytes) = 0;

  // Returns the board of a peer, which is a copy where the peer is on another host.
  virtual RankBoard& board(Rank peer) = 0;
  // Asks peers on other hosts for their boards, and waits at most `timeout` for the answers. A rank that is stopped or
  // cut off does not answer.
  virtual void refresh_boards(std::chrono::milliseconds /*timeout*/) {}
  virtual FailureBoard& failure_board() = 0;
  virtual void send_note() {}             // sends the AgreementNote on this rank's board to members on other hosts
  virtual void wake_peer(Rank peer) = 0;  // does nothing where the peer does not sleep, or is on another host
  virtual void wake_peers() = 0;          // wakes every peer; peers on other hosts get the failure, if there is one
};

}  // namespace herd::transport
