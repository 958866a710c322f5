// Both ends of a secure connection, over the loopback, for tests.
#pragma once

#include <poll.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "herd/net/address.h"
#include "herd/net/listener.h"
#include "herd/net/secure_socket.h"

namespace herd::testing_support {

inline Descriptor dial(int port) {
  std::string failed;
  return net::start_connecting(net::numeric_address("127.0.0.1", port), failed);
}

// Turns until `done`, 5 s at most; whether it was.
inline bool until(const std::function<bool()>& done, const std::function<void()>& turn) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (!done()) {
    if (std::chrono::steady_clock::now() > end) return false;
    turn();
    poll(nullptr, 0, 1);
  }
  return true;
}

struct Pair {
  explicit Pair(const std::string& key = std::string(32, 'k')) : Pair(key, key) {}
  Pair(const std::string& own, const std::string& other)
      : context(own), others(other), listener(context, {"127.0.0.1"}, 0) {
    client = net::SecureSocket::connect(others, dial(listener.port()), "rank 3");
  }
  // Until both are open, or one has ended.
  void meet() {
    until([&] { return (server && client->is_open()) || !client->end_reason().empty(); },
          [&] {
            client->shake_hands();
            for (auto& one : listener.accept()) server = std::move(one);
          });
  }
  net::SecureContext context, others;
  net::Listener listener;
  std::unique_ptr<net::SecureSocket> client, server;
};

}  // namespace herd::testing_support
