// A SecureSocket is one end of a TCP connection inside TLS (secure_context.h). Nothing blocks: each call does what can
// be done now.
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
  // Makes the end that connects; `socket` is connected or connecting. `name` tells the other end who this is, in at
  // most 64 bytes. The context must outlive the socket.
  static std::unique_ptr<SecureSocket> connect(const SecureContext& context, Descriptor socket,
                                               const std::string& name);
  // Makes the end that has accepted `socket`.
  static std::unique_ptr<SecureSocket> accept(const SecureContext& context, Descriptor socket);
  ~SecureSocket();  // tells the other end, if that can be done at once

  bool shake_hands();                                // returns true once both ends have shown that they hold the key
  bool is_open() const { return open_; }             // tells whether they have, without doing anything for it
  size_t read(std::span<std::byte> into);            // returns the bytes that were there
  size_t write(std::span<const std::byte>);          // returns the bytes that found room; repeat the rest later
  bool wants_write() const { return wants_write_; }  // the last call ended because the system's buffer was full
  bool holds_more() const;  // the socket has taken bytes from the system that read() has not returned yet
  const std::string& end_reason() const { return ended_; }  // says why the connection is over; "" while it is not
  // Tells whether it is over since the two ends agree on no handshake, as with another key; not where the other end
  // left.
  bool refused_handshake() const { return refused_handshake_; }
  // Returns the name that the other end gave, for an accepted socket that is open.
  const std::string& peer_name() const { return peer_; }
  int descriptor() const { return socket_.fd; }

 private:
  SecureSocket(const SecureContext& context, Descriptor socket);
  bool check_result(int result);  // takes the library's result; false: the connection ended, or can't go on now
  friend struct SocketCallbacks;

  const SecureContext& context_;
  Descriptor socket_;
  ssl_st* tls_ = nullptr;
  std::string name_, peer_, ended_;
  bool accepted_ = false, open_ = false, wants_write_ = false, refused_handshake_ = false;
};

}  // namespace herd::net
