// Waiting for ZeroMQ sockets, as the store's threads do. A process that was stopped and goes on has its wait
// interrupted; that is a wake-up for nothing, not an error.
#pragma once

#include <cerrno>
#include <chrono>
#include <span>
#include <zmq.hpp>

namespace herd::launch {

inline void poll_sockets(std::span<zmq::pollitem_t> items, std::chrono::milliseconds timeout) {
  if (zmq_poll(items.data(), static_cast<int>(items.size()), timeout.count()) >= 0) return;
  if (zmq_errno() != EINTR) throw zmq::error_t();
  for (zmq::pollitem_t& item : items) item.revents = 0;
}

}  // namespace herd::launch
