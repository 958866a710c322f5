#include "herd/net/address.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include <cerrno>
#include <cstring>

#include "herd/base/error.h"

namespace herd::net {

SocketAddress numeric_address(const std::string& host, int port) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int failed = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (failed != 0 || found == nullptr) {
    throw Error(Code::kBadConfig, "\"" + host + "\" is no numeric address: " + gai_strerror(failed));
  }
  SocketAddress address;
  std::memcpy(&address.storage_, found->ai_addr, found->ai_addrlen);
  address.size_ = found->ai_addrlen;
  freeaddrinfo(found);
  return address;
}

int bound_port(int socket) {
  sockaddr_storage storage = {};
  socklen_t size = sizeof storage;
  if (getsockname(socket, reinterpret_cast<sockaddr*>(&storage), &size) != 0) {
    throw_errno(Code::kStorage, "ask a socket for its port", errno);
  }
  return ntohs(storage.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_port
                                             : reinterpret_cast<const sockaddr_in*>(&storage)->sin_port);
}

Descriptor start_connecting(const SocketAddress& to, std::string& error) {
  Descriptor connection(socket(to.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (connection.fd < 0) throw_errno(Code::kStorage, "create a socket", errno);
  const int on = 1;
  setsockopt(connection.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (connect(connection.fd, to.get(), to.size()) != 0 && errno != EINPROGRESS) error = std::strerror(errno);
  return connection;
}

void require_loopback() {
  std::string error;
  start_connecting(numeric_address("127.0.0.1", 9), error);
  if (error.empty() || error == std::strerror(ECONNREFUSED)) return;
  throw Error(Code::kBadConfig, "this host cannot reach itself at 127.0.0.1, where the ranks of a job meet: " + error +
                                    "\n  fix: ip link set lo up");
}

}  // namespace herd::net
