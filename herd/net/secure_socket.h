// One end of a TCP connection inside TLS (secure_context.h). Nothing here blocks: each call does what can be done now.
// Threads: one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "herd/base/descriptor.h"
#include "herd/net/secure_context.h"

struct ssl_st;

namespace herd::net {

class SecureSocket {
 public:
  // The end that connects: `socket` is connected or connecting. `name` says who it is to the other end, 64 bytes at
  // most. The context outlives the socket.
  static std::unique_ptr<SecureSocket> connect(const SecureContext& context, Descriptor socket,
                                               const std::string& name);
  // The end that has accepted `socket`.
  static std::unique_ptr<SecureSocket> accept(const SecureContext& context, Descriptor socket);
  ~SecureSocket();  // tells the other end, if it can be told at once

  bool shake_hands();                                // true once both ends have shown that they hold the key
  bool open() const { return open_; }                // the same, without doing anything for it
  size_t read(std::span<std::byte> into);            // bytes that were there
  size_t write(std::span<const std::byte>);          // bytes that found room; repeat the rest later
  bool wants_write() const { return wants_write_; }  // the last call ended for want of room in the system's buffer
  bool holds_more() const;  // bytes have been taken from the system that read() has not returned yet
  const std::string& ended() const { return ended_; }  // why the connection is over; "" while it is not
  const std::string& peer() const { return peer_; }    // of an accepted one that is open: the name the other end gave
  int descriptor() const { return socket_.fd; }

 private:
  SecureSocket(const SecureContext& context, Descriptor socket);
  bool check_result(int result);  // of a call to the library; false: it ended, or can't go on now
  friend struct SocketCallbacks;

  const SecureContext& context_;
  Descriptor socket_;
  ssl_st* tls_ = nullptr;
  std::string name_, peer_, ended_;
  bool accepted_ = false, open_ = false, wants_write_ = false;
};

}  // namespace herd::net
