#include "herd/transport/thread_wire.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "herd/base/check.h"
#include "herd/base/error.h"

namespace herd::transport {

ThreadWireQueues::ThreadWireQueues(int num_ranks) : by_rank_(static_cast<size_t>(num_ranks)) {
  for (Queue& queue : by_rank_) {
    queue.descriptor = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (queue.descriptor < 0) throw_errno(Code::kStorage, "create an eventfd", errno);
  }
}

ThreadWireQueues::Queue::~Queue() {
  if (descriptor >= 0) close(descriptor);
}

void ThreadWireQueues::put(Rank to, Frame frame) {
  Queue& queue = by_rank_[static_cast<size_t>(to)];
  const std::lock_guard lock(queue.mutex);
  queue.frames.push_back(std::move(frame));
  if (queue.frames.size() == 1) eventfd_write(queue.descriptor, 1);
}

ThreadWire::ThreadWire(std::shared_ptr<ThreadWireQueues> queues, Rank rank)
    : queues_(std::move(queues)), rank_(rank), ended_(queues_->by_rank_.size()) {}

ThreadWire::~ThreadWire() {
  for (size_t peer = 0; peer < ended_.size(); ++peer) {
    if (static_cast<Rank>(peer) != rank_) queues_->put(static_cast<Rank>(peer), {{}, {}, rank_});
  }
}

void ThreadWire::send_copy(Rank to, const FrameHeader& header, std::span<const std::byte> payload) {
  HERD_CHECK_LE(static_cast<int64_t>(payload.size()), kCopyBytes);
  queues_->put(to, {header, {payload.begin(), payload.end()}, -1});
}

void ThreadWire::send(Rank to, const FrameHeader& header, std::span<const std::byte> payload,
                      const std::shared_ptr<int>&) {
  HERD_CHECK_LE(static_cast<int64_t>(payload.size()), kPieceBytes);
  queues_->put(to, {header, {payload.begin(), payload.end()}, -1});
}

bool ThreadWire::progress() {
  constexpr int kTurns = 16;
  for (int turn = 0; turn < kTurns; ++turn) {
    ThreadWireQueues::Frame frame;
    {
      const std::lock_guard lock(own().mutex);
      if (own().frames.empty()) return turn > 0;
      frame = std::move(own().frames.front());
      own().frames.pop_front();
    }
    if (frame.ended_rank >= 0) {
      ended_[static_cast<size_t>(frame.ended_rank)] = true;
    } else if (handler_) {
      handler_(frame.header, frame.payload);
    }
  }
  return true;
}

bool ThreadWire::arm() {
  const std::lock_guard lock(own().mutex);
  if (!own().frames.empty()) return false;
  eventfd_t count = 0;
  eventfd_read(own().descriptor, &count);
  return true;
}

void ThreadWire::wait(std::chrono::milliseconds at_most) {
  pollfd frames = {own().descriptor, POLLIN, 0};
  if (arm()) poll(&frames, 1, static_cast<int>(at_most.count()));
}

std::string ThreadWire::lost(Rank peer) const {
  return ended_[static_cast<size_t>(peer)] ? "its thread has ended" : "";
}

}  // namespace herd::transport
