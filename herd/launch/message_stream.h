// Sends and receives messages of store_protocol.h over a secure connection: whole, in order, without waiting.
// A frame is an encoded Message.
// Threads: one at a time.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "herd/net/secure_socket.h"

namespace herd::launch {

class MessageStream {
 public:
  explicit MessageStream(std::unique_ptr<net::SecureSocket> socket) : socket_(std::move(socket)) {}

  net::SecureSocket& socket() { return *socket_; }
  // Queues a frame; flush() sends it.
  void post(std::string frame) { out_.push_back(std::move(frame)); }
  bool flush();                       // sends as much as the socket takes now; returns true when nothing is left
  std::optional<std::string> next();  // returns the next whole frame that has arrived
  // Says why no frame can come any more; "" while one can. A peer that breaks the grammar's lengths ends the stream,
  // too.
  const std::string& end_reason() const { return broken_.empty() ? socket_->end_reason() : broken_; }
  // Returns the frames of which nothing was sent, for the stream that follows this one.
  std::deque<std::string> unsent();

 private:
  std::unique_ptr<net::SecureSocket> socket_;
  std::deque<std::string> out_;
  size_t sent_ = 0;  // bytes sent of the first frame
  std::string in_, broken_;
};

}  // namespace herd::launch
