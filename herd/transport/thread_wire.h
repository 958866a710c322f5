// The wire between threads of one process that act as ranks of different hosts copies frames into the receiver's queue,
// in order.
// Threads: ThreadWireQueues any; a ThreadWire as any Wire.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "herd/transport/wire.h"

namespace herd::transport {

// Holds the receive queues of all wires of one world.
class ThreadWireQueues {
 public:
  explicit ThreadWireQueues(int num_ranks);  // throws kStorage where the system has no descriptors left
  ThreadWireQueues(const ThreadWireQueues&) = delete;
  ThreadWireQueues& operator=(const ThreadWireQueues&) = delete;

 private:
  friend class ThreadWire;
  struct Frame {
    FrameHeader header;
    std::vector<std::byte> payload;
    Rank ended_rank = -1;  // >= 0: this is no frame, and the wire of that rank has ended
  };
  struct Queue {
    ~Queue();
    std::mutex mutex;
    std::deque<Frame> frames;
    int descriptor = -1;  // an eventfd: readable from the first frame on, until ThreadWire::arm() finds none
  };
  void put(Rank to, Frame frame);

  std::vector<Queue> by_rank_;  // by rank
};

class ThreadWire final : public Wire {
 public:
  ThreadWire(std::shared_ptr<ThreadWireQueues> queues, Rank rank);
  ~ThreadWire() override;  // peers hear that it ended after they have heard all it sent
  std::string_view name() const override { return "inproc"; }
  std::string address() const override { return ""; }
  std::string description() const override { return "threads of one process"; }
  void connect(std::vector<std::string>) override {}
  void set_handler(Handler handler) override { handler_ = std::move(handler); }
  void send_copy(Rank to, const FrameHeader& header, std::span<const std::byte> payload) override;
  void send(Rank to, const FrameHeader& header, std::span<const std::byte> payload,
            const std::shared_ptr<int>& in_flight) override;
  bool progress() override;
  bool arm() override;
  int descriptor() const override { return own().descriptor; }
  void wait(std::chrono::milliseconds at_most) override;
  std::string lost(Rank peer) const override;

 private:
  ThreadWireQueues::Queue& own() const { return queues_->by_rank_[static_cast<size_t>(rank_)]; }

  std::shared_ptr<ThreadWireQueues> queues_;
  Rank rank_;
  Handler handler_;
  std::vector<bool> ended_;  // by rank
};

}  // namespace herd::transport
