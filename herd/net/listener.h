// Listens for SecureSockets, and limits what strangers cost. A stranger is a peer that has connected and not yet
// shown that it holds the key. It has `proof_timeout` to do so. At most `max_strangers` may try at once: the one that
// has been silent longest makes room for the next. A stranger gets memory only after its first bytes look like a
// handshake, and no more than one handshake takes.
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
  int max_strangers = 64;
  std::chrono::milliseconds proof_timeout = std::chrono::seconds(5);
};

class Listener {
 public:
  // Listens on `addresses`, numeric ones of this host. `port` is the same for all; 0 = any free one. Throws kBadConfig
  // with address, port and the system's reason, and sets *error_number to errno.
  Listener(const SecureContext& context, const std::vector<std::string>& addresses, int port,
           ListenerLimits limits = {}, int* error_number = nullptr);

  int port() const { return port_; }
  int descriptor() const { return epoll_.fd; }  // becomes readable when there is something to accept, or to give up
  // Returns the sockets that have shown since the last call that they hold the key. Never waits.
  std::vector<std::unique_ptr<SecureSocket>> accept();
  // While `on`, it accepts at most 16 connections a second on each address, for times at which nobody is expected.
  // Further ones wait in the system's queue, which drops what it can't hold, and cost this process nothing.
  void throttle(bool on);
  int64_t refused() const { return refused_; }                       // counts connections so far
  const std::string& last_refusal() const { return last_refusal_; }  // says why; names no secret

 private:
  struct Stranger {
    Descriptor raw;                        // until its first bytes look like a handshake
    std::unique_ptr<SecureSocket> socket;  // from then on
    std::chrono::steady_clock::time_point since;
    int descriptor() const { return socket ? socket->descriptor() : raw.fd; }
  };
  void accept_from(int listening);
  void on_readable(int descriptor, std::vector<std::unique_ptr<SecureSocket>>& welcome);
  bool advance(Stranger& stranger);  // goes on with its handshake; returns false where it is refused
  void refuse(std::list<Stranger>::iterator stranger, const std::string& why);
  void make_room();
  void watch_listening(bool listening);
  void set_timer();

  const SecureContext& context_;
  ListenerLimits limits_;
  std::vector<Descriptor> listening_;
  Descriptor epoll_, timer_;
  std::list<Stranger> strangers_;  // the oldest first
  int port_ = 0;
  bool paused_ = false, timer_armed_ = false, throttled_ = false;
  int64_t refused_ = 0;
  std::string last_refusal_;
};

}  // namespace herd::net
