// Makes numeric addresses of sockets.
// Threads: any.
#pragma once

#include <sys/socket.h>

#include <string>

#include "herd/base/descriptor.h"

namespace herd::net {

class SocketAddress {
 public:
  int family() const { return storage_.ss_family; }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage_); }
  socklen_t size() const { return size_; }

 private:
  friend SocketAddress numeric_address(const std::string& host, int port);
  sockaddr_storage storage_ = {};
  socklen_t size_ = 0;
};

// Throws kBadConfig where `host` is no numeric IPv4 or IPv6 address.
SocketAddress numeric_address(const std::string& host, int port);
int bound_port(int socket);  // returns the port that the system gave the socket
// Returns a socket that is connecting to the address, without Nagle's delay. An immediate error is written to `error`;
// a later one shows when the socket is used.
Descriptor start_connecting(const SocketAddress& to, std::string& error);

// Throws kBadConfig where this host cannot reach itself at 127.0.0.1, as in a new network namespace.
void require_loopback();

}  // namespace herd::net
