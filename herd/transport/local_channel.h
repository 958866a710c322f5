// The channel of ranks that share memory. Each ordered pair has a cache line of signals per operation in flight and one
// ring of bytes per lane. Each rank has a board and two copies of stage memory. The same code runs between processes
// (shm) and between threads (inproc).
// Threads: as any Channel.
//   Bytes per rank of n: 20 KiB + 256 n + n * (collective ring + point-to-point ring) + 2 * stage. A ring takes memory
//   from its first message on, and the stage from the first operation that uses it: programs may have many groups.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <vector>

#include "herd/transport/byte_ring.h"
#include "herd/transport/channel.h"
#include "herd/transport/doorbell.h"
#include "herd/transport/inbox.h"
#include "herd/transport/transport.h"

namespace herd::transport {

// Gives the sizes of a channel in bytes, a pure function of the number of ranks. Offsets count from the start of a
// rank's memory.
struct LocalLayout {
  explicit LocalLayout(int num_ranks);
  std::array<int64_t, 2> ring_bytes;  // by Traffic, powers of two
  int64_t stage_bytes;                // size of one copy
  // Offsets of the FailureBoard, the lines of signals, the ring counters, the rings and the stage.
  int64_t failure, signal_lines, counters, rings, stage;
  int64_t total;  // size of a rank's memory
};

class LocalChannel final : public Channel {
 public:
  // The words behind `doorbells`, by member, must outlive this; the region is shared.
  LocalChannel(Rank self, std::shared_ptr<SharedRegion> region, std::vector<Doorbell> doorbells);
  ~LocalChannel() override;

  Rank rank() const override { return self_; }
  int size() const override { return size_; }
  void post_send(Message& message) override { post_send(message, message.peer); }
  void post_receive(Message& message) override { post_receive(message, message.peer); }
  // These move messages to and from a member of this channel, whatever number message.peer gives it in a larger group.
  void post_send(Message& message, Rank to);
  void post_receive(Message& message, Rank from);
  uint64_t bytes_sent() const override { return bytes_sent_; }
  bool has_unclaimed_message(Rank peer, uint64_t tag) override;
  bool progress() override;
  void drop_messages() override;
  bool maps(Rank) const override { return true; }
  void publish_header(Rank peer, uint64_t sequence, const OperationHeader& header) override;
  void signal(Rank peer, uint64_t sequence, uint32_t count) override;
  uint32_t signals(Rank peer, uint64_t sequence) const override;
  const OperationHeader& header(Rank peer, uint64_t sequence) const override;
  int64_t stage_bytes() const override { return layout_.stage_bytes; }
  std::byte* stage(Rank peer, int copy) const override;
  void commit_stage(int copy, int64_t bytes) override;
  RankBoard& board(Rank peer) override;
  FailureBoard& failure_board() override;
  void wake_peer(Rank peer) override { doorbells_[static_cast<size_t>(peer)].ring(); }
  void wake_peers() override;

 private:
  struct alignas(64) SignalLine {
    std::atomic<uint64_t> signals{0};  // sequence * 2^24 + count; sequences may wrap at 2^40
    OperationHeader header;
  };
  static_assert(sizeof(SignalLine) == 64);
  struct Queue {  // posted messages, first in first out
    Message* first = nullptr;
    Message* last = nullptr;
    void push(Message& message);
    void pop();
    void remove(Message* message);
  };
  struct Pair {
    std::array<bool, 2> has_ring = {};  // by Traffic: the memory of this rank's ring is real
    std::array<RingWriter, 2> writer;
    std::array<RingReader, 2> reader;
    std::array<Queue, 2> sends;  // by Traffic
    Queue receives;              // of collectives
    Inbox inbox{Traffic::kPointToPoint};
    Envelope incoming;    // of the point-to-point message that is being read from the ring
    uint64_t unread = 0;  // bytes of it
  };

  std::byte* memory_of(Rank rank) const { return parts_[static_cast<size_t>(rank)]; }
  SignalLine& signal_line(Rank from, Rank to, uint64_t sequence) const;
  void commit_ring(Pair& pair, Rank peer, Traffic traffic);
  bool move_send(Pair& pair, Rank peer, Traffic traffic);
  bool move_receive(Pair& pair, Rank peer);
  bool move_point_to_point(Pair& pair, Rank peer);
  bool read_point_to_point(Pair& pair);
  void finish(Queue& queue, Message& message);

  Rank self_;
  int size_;
  LocalLayout layout_;
  std::shared_ptr<SharedRegion> region_;
  std::vector<std::byte*> parts_;  // memory of each rank in the region
  std::vector<Doorbell> doorbells_;
  std::vector<Pair> pairs_;
  int posted_ = 0;
  uint64_t bytes_sent_ = 0;
  std::array<int64_t, 2> real_stage_bytes_ = {};  // by copy
};

}  // namespace herd::transport
