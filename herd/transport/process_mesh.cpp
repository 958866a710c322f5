#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <functional>
#include <sstream>

#include "herd/base/error.h"
#include "herd/base/hex.h"
#include "herd/transport/hosts.h"
#include "herd/transport/process_courier.h"

namespace herd::transport {
namespace {

// Holds what a rank publishes, so that its peers can connect to it.
struct RankAddress {
  std::string name;    // name of its abstract socket
  std::string secret;  // a peer has to send it when it connects
  std::string machine;
  std::string text() const { return name + " " + secret + " " + machine; }
};

std::string random_hex() {
  unsigned char bytes[16] = {};
  if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes) throw_errno(Code::kStorage, "draw random bytes", errno);
  std::string hex;
  for (const unsigned char byte : bytes) append_hex(hex, byte);
  return hex;
}

std::pair<sockaddr_un, socklen_t> abstract_address(const std::string& name) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  return {address, static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size())};
}

int new_socket() {
  const int descriptor = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (descriptor < 0) throw_errno(Code::kStorage, "create a socket", errno);
  return descriptor;
}

int listen_at(const std::string& name) {
  const int descriptor = new_socket();
  const auto [address, length] = abstract_address(name);
  if (bind(descriptor, reinterpret_cast<const sockaddr*>(&address), length) != 0 || listen(descriptor, 1024) != 0) {
    const int error = errno;
    close(descriptor);
    throw_errno(Code::kStorage, "listen on an abstract socket", error);
  }
  return descriptor;
}

bool same_user(int socket) {
  ucred peer = {};
  socklen_t size = sizeof peer;
  return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid();
}

// Returns the name of a rank of the mesh in errors.
using RankName = std::function<std::string(Rank)>;

int connect_to(Rank self, Rank peer, const RankAddress& address, const RankName& name) {
  const int descriptor = new_socket();
  const auto [where, length] = abstract_address(address.name);
  const std::string hello = address.secret + " " + std::to_string(self);
  if (connect(descriptor, reinterpret_cast<const sockaddr*>(&where), length) != 0 ||
      ::send(descriptor, hello.data(), hello.size(), MSG_NOSIGNAL) < 0) {
    const std::string why = std::strerror(errno);
    close(descriptor);
    throw Error(Code::kBadConfig, name(self) + " can't reach " + name(peer) +
                                      " on this host through an abstract socket (" + why +
                                      ")\n  fix: let the containers of one host share a network namespace");
  }
  return descriptor;
}

// Returns the rank that says hello on a new connection; -1 for a stranger.
Rank read_hello(int connection, const std::string& secret, int size) {
  pollfd wait = {connection, POLLIN, 0};
  char text[128] = {};
  if (!same_user(connection) || poll(&wait, 1, 2000) <= 0) return -1;
  if (recv(connection, text, sizeof text - 1, 0) <= 0) return -1;
  std::istringstream words(text);
  std::string received;
  Rank rank = -1;
  return words >> received >> rank && received == secret && rank >= 0 && rank < size ? rank : -1;
}

void accept_peers(int listener, const std::string& secret, Rank self, std::vector<int>& sockets, SteadyTime deadline,
                  const RankName& name) {
  const auto missing = [&] {
    std::string ranks;
    for (size_t peer = static_cast<size_t>(self) + 1; peer < sockets.size(); ++peer) {
      if (sockets[peer] < 0) ranks += (ranks.empty() ? "" : ", ") + name(static_cast<Rank>(peer));
    }
    return ranks;
  };
  while (!missing().empty()) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
    pollfd wait = {listener, POLLIN, 0};
    if (left <= 0 || poll(&wait, 1, static_cast<int>(std::min<int64_t>(left, 3600'000))) <= 0) {
      if (left > 0 && errno == EINTR) continue;
      throw Error(Code::kTimeout, name(self) + " waits for these ranks to connect: " + missing());
    }
    const int connection = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    if (connection < 0) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      throw_errno(Code::kStorage, name(self) + " accepts a peer", errno);
    }
    const Rank peer = read_hello(connection, secret, static_cast<int>(sockets.size()));
    if (peer <= self || sockets[static_cast<size_t>(peer)] >= 0) {
      close(connection);
    } else {
      sockets[static_cast<size_t>(peer)] = connection;
    }
  }
}

RankAddress get_address(Store& store, const std::string& key, const std::string& peer, SteadyTime deadline) {
  std::string text;
  try {
    text = store.get(key, deadline);
  } catch (const Error& error) {
    throw Error(error.code(), peer + " never arrived: " + error.message());
  }
  RankAddress address;
  std::istringstream(text) >> address.name >> address.secret >> address.machine;
  return address;
}

}  // namespace

std::vector<int> connect_all_pairs(Store& store, const std::string& prefix, Rank rank, int size, SteadyTime deadline,
                                   const std::vector<Rank>& ranks) {
  const RankName name = [&](Rank one) {
    return "rank " + std::to_string(ranks.empty() ? one : ranks[static_cast<size_t>(one)]);
  };
  const RankAddress mine{"herd-" + random_hex(), random_hex(), host_identity()};
  const int listener = listen_at(mine.name);
  std::vector<int> sockets(static_cast<size_t>(size), -1);
  try {
    store.set(prefix + std::to_string(rank), mine.text());
    std::vector<RankAddress> addresses;
    for (Rank peer = 0; peer < size; ++peer) {
      addresses.push_back(peer == rank ? mine
                                       : get_address(store, prefix + std::to_string(peer), name(peer), deadline));
      if (addresses.back().machine == mine.machine) continue;
      throw Error(Code::kBadConfig, name(peer) + " is on another host than " + name(rank) +
                                        ", and transport \"shm\" joins ranks of one host"
                                        "\n  fix: start all ranks on one host");
    }
    for (Rank peer = 0; peer < rank; ++peer) {
      sockets[static_cast<size_t>(peer)] = connect_to(rank, peer, addresses[static_cast<size_t>(peer)], name);
    }
    accept_peers(listener, mine.secret, rank, sockets, deadline, name);
  } catch (...) {
    close(listener);
    for (int socket : sockets) {
      if (socket >= 0) close(socket);
    }
    throw;
  }
  close(listener);
  return sockets;
}

std::vector<std::vector<int>> make_socket_pairs(int size) {
  std::vector<std::vector<int>> mesh(static_cast<size_t>(size), std::vector<int>(static_cast<size_t>(size), -1));
  for (size_t i = 0; i < mesh.size(); ++i) {
    for (size_t j = i + 1; j < mesh.size(); ++j) {
      int pair[2] = {-1, -1};
      if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) {
        throw_errno(Code::kStorage, "create a socket pair", errno);
      }
      mesh[i][j] = pair[0];
      mesh[j][i] = pair[1];
    }
  }
  return mesh;
}

}  // namespace herd::transport
