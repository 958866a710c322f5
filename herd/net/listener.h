// Listens for SecureSockets, and keeps strangers out at a price that is known: whoever has connected has `timeout` to
// show that it holds the key, no more than `strangers` may try at once (the one that has waited longest without a word
// makes room for the next), and none gets more memory than one handshake takes, or any before its first bytes look
// like one.
// Threads: one at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "herd/base/descriptor.h"
#include "herd/net/secure_socket.h"

namespace herd::net {

struct ListenerLimits {
  int strangers = 64;
  std::chrono::milliseconds timeout = std::chrono::seconds(5);
};

class Listener {
 public:
  // `addresses`: numeric ones of this host. `port`: 0 = any free one, the same for all addresses. Throws kBadConfig
  // naming address, port and the system's reason; errno() of it is in `error_number` where it is given.
  Listener(const SecureContext& context, const std::vector<std::string>& addresses, int port,
           ListenerLimits limits = {}, int* error_number = nullptr);

  int port() const { return port_; }
  int descriptor() const { return epoll_.fd; }  // shows input while there is something to accept, or to give up
  // Those that have shown that they hold the key since the last call. Never waits.
  std::vector<std::unique_ptr<SecureSocket>> accept();
  int64_t refused() const { return refused_; }                       // connections so far
  const std::string& last_refusal() const { return last_refusal_; }  // why; names no secret

 private:
  struct Stranger {
    Descriptor raw;                        // until its first bytes look like a handshake
    std::unique_ptr<SecureSocket> socket;  // from then on
    std::chrono::steady_clock::time_point since;
    int descriptor() const { return socket ? socket->descriptor() : raw.fd; }
  };
  void take_in(int listening);
  void hear(int descriptor, std::vector<std::unique_ptr<SecureSocket>>& welcome);
  bool move(Stranger& stranger);  // false: it is refused
  void refuse(std::list<Stranger>::iterator stranger, const std::string& why);
  void make_room();
  void watch(bool listening);
  void set_timer();

  const SecureContext& context_;
  ListenerLimits limits_;
  std::vector<Descriptor> listening_;
  Descriptor epoll_, timer_;
  std::list<Stranger> strangers_;  // the oldest first
  int port_ = 0;
  bool paused_ = false, ticking_ = false;
  int64_t refused_ = 0;
  std::string last_refusal_;
};

}  // namespace herd::net
