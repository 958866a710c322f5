#include "herd/transport/thread_wire.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "herd/base/check.h"
#include "herd/base/error.h"

namespace herd::transport {

ThreadLines::ThreadLines(int num_ranks) : queues_(static_cast<size_t>(num_ranks)) {
  for (Queue& queue : queues_) {
    queue.descriptor = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (queue.descriptor < 0) throw_errno(Code::kStorage, "create an eventfd", errno);
  }
}

ThreadLines::Queue::~Queue() {
  if (descriptor >= 0) close(descriptor);
}

void ThreadLines::put(Rank to, Frame frame) {
  Queue& queue = queues_[static_cast<size_t>(to)];
  const std::lock_guard lock(queue.mutex);
  queue.frames.push_back(std::move(frame));
  if (queue.frames.size() == 1) eventfd_write(queue.descriptor, 1);
}

ThreadWire::ThreadWire(std::shared_ptr<ThreadLines> lines, Rank rank)
    : lines_(std::move(lines)), rank_(rank), ended_(lines_->queues_.size()) {}

ThreadWire::~ThreadWire() {
  for (size_t peer = 0; peer < ended_.size(); ++peer) {
    if (static_cast<Rank>(peer) != rank_) lines_->put(static_cast<Rank>(peer), {{}, {}, rank_});
  }
}

void ThreadWire::send_copy(Rank to, const FrameHeader& header, std::span<const std::byte> payload) {
  HERD_CHECK_LE(static_cast<int64_t>(payload.size()), kCopyBytes);
  lines_->put(to, {header, {payload.begin(), payload.end()}, -1});
}

void ThreadWire::send(Rank to, const FrameHeader& header, std::span<const std::byte> payload,
                      const std::shared_ptr<int>&) {
  HERD_CHECK_LE(static_cast<int64_t>(payload.size()), kPieceBytes);
  lines_->put(to, {header, {payload.begin(), payload.end()}, -1});
}

bool ThreadWire::progress() {
  constexpr int kTurns = 16;
  for (int turn = 0; turn < kTurns; ++turn) {
    ThreadLines::Frame frame;
    {
      const std::lock_guard lock(own().mutex);
      if (own().frames.empty()) return turn > 0;
      frame = std::move(own().frames.front());
      own().frames.pop_front();
    }
    if (frame.ended >= 0) {
      ended_[static_cast<size_t>(frame.ended)] = true;
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
