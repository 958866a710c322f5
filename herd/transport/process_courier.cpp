#include "herd/transport/process_courier.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "herd/base/error.h"
#include "herd/base/process_state.h"

namespace herd::transport {
namespace {

constexpr size_t kParcelBytes = 16 * 1024;  // the most that a parcel has

// Begins a parcel on a socket; the key and the text follow.
struct ParcelHeader {
  uint32_t key_bytes = 0;
  uint32_t text_bytes = 0;
  int64_t memory_bytes = 0;  // size of the memory whose descriptor comes along; 0 = it is no memory
};

int milliseconds_until(SteadyTime deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 3600'000));
}

}  // namespace

std::string ProcessCourier::name_of(Rank rank) const {
  return "rank " + std::to_string(names_.empty() ? rank : names_[static_cast<size_t>(rank)]);
}

ProcessCourier::ProcessCourier(Rank rank, std::vector<int> sockets, SteadyTime deadline, std::vector<Rank> names)
    : rank_(rank), names_(std::move(names)), peers_(sockets.size()) {
  for (Rank peer = 0; peer < size(); ++peer) {
    peers_[static_cast<size_t>(peer)].socket = sockets[static_cast<size_t>(peer)];
    const int on = 1;
    if (peer != rank) setsockopt(sockets[static_cast<size_t>(peer)], SOL_SOCKET, SO_PASSCRED, &on, sizeof on);
  }
  for (Rank peer = 0; peer < size(); ++peer) {
    if (peer != rank) send(peer, "hello", {});
  }
  for (Rank peer = 0; peer < size(); ++peer) {
    if (peer == rank) continue;
    receive(peer, "hello", deadline);
    Peer& entry = peers_[static_cast<size_t>(peer)];
    if (entry.pid > 0) entry.pidfd = static_cast<int>(syscall(SYS_pidfd_open, entry.pid, 0));
  }
}

ProcessCourier::~ProcessCourier() {
  for (Peer& peer : peers_) {
    for (auto& [key, parcel] : peer.parcels) {
      if (parcel.descriptor >= 0) close(parcel.descriptor);
    }
    if (peer.socket >= 0) close(peer.socket);
    if (peer.pidfd >= 0) close(peer.pidfd);
  }
}

void ProcessCourier::send(Rank to, const std::string& key, const Parcel& parcel) {
  ParcelHeader prefix{static_cast<uint32_t>(key.size()), static_cast<uint32_t>(parcel.text.size()),
                      parcel.memory == nullptr ? 0 : parcel.memory->bytes()};
  const int descriptor = parcel.memory == nullptr ? parcel.descriptor : parcel.memory->descriptor();
  std::array<iovec, 3> pieces = {{{&prefix, sizeof prefix},
                                  {const_cast<char*>(key.data()), key.size()},
                                  {const_cast<char*>(parcel.text.data()), parcel.text.size()}}};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(ucred)) + CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = pieces.data();
  message.msg_iovlen = pieces.size();
  message.msg_control = control;
  message.msg_controllen = CMSG_SPACE(sizeof(ucred)) + (descriptor >= 0 ? CMSG_SPACE(sizeof(int)) : 0);
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_CREDENTIALS;
  header->cmsg_len = CMSG_LEN(sizeof(ucred));
  const ucred self = {getpid(), geteuid(), getegid()};
  std::memcpy(CMSG_DATA(header), &self, sizeof self);
  if (descriptor >= 0) {
    header = CMSG_NXTHDR(&message, header);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
  }
  if (sendmsg(peers_[static_cast<size_t>(to)].socket, &message, MSG_NOSIGNAL) < 0) {
    throw Error(Code::kPeerLost, name_of(to) + " is gone, before \"" + key + "\" (" + std::strerror(errno) + ")");
  }
}

bool ProcessCourier::take_one(Rank from, SteadyTime until) {
  Peer& peer = peers_[static_cast<size_t>(from)];
  pollfd wait = {peer.socket, POLLIN, 0};
  if (poll(&wait, 1, milliseconds_until(until)) <= 0) return false;
  std::vector<char> bytes(kParcelBytes);
  iovec piece = {bytes.data(), bytes.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(ucred)) + CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t size = recvmsg(peer.socket, &message, MSG_CMSG_CLOEXEC);
  if (size <= 0) throw Error(Code::kPeerLost, name_of(from) + " is gone: it closed its socket");
  Parcel parcel;
  int descriptor = -1;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET) continue;
    if (header->cmsg_type == SCM_RIGHTS) std::memcpy(&descriptor, CMSG_DATA(header), sizeof descriptor);
    if (header->cmsg_type == SCM_CREDENTIALS) {
      ucred sender = {};
      std::memcpy(&sender, CMSG_DATA(header), sizeof sender);
      peer.pid = sender.pid;
    }
  }
  ParcelHeader prefix;
  const auto length = static_cast<size_t>(size);
  if (length >= sizeof prefix) std::memcpy(&prefix, bytes.data(), sizeof prefix);
  if (length < sizeof prefix || length != sizeof prefix + prefix.key_bytes + prefix.text_bytes) {
    if (descriptor >= 0) close(descriptor);
    throw Error(Code::kBug,
                name_of(from) + " sent a parcel of " + std::to_string(length) + " bytes that says otherwise");
  }
  const std::string key(bytes.data() + sizeof prefix, prefix.key_bytes);
  parcel.text.assign(bytes.data() + sizeof prefix + prefix.key_bytes, prefix.text_bytes);
  if (prefix.memory_bytes > 0) {
    parcel.memory = std::make_shared<SharedMemory>(SharedMemory::adopt(descriptor, prefix.memory_bytes));
  } else {
    parcel.descriptor = descriptor;
  }
  peer.parcels[key] = std::move(parcel);
  return true;
}

Parcel ProcessCourier::receive(Rank from, const std::string& key, SteadyTime deadline) {
  Peer& peer = peers_[static_cast<size_t>(from)];
  while (true) {
    std::lock_guard lock(peer.mutex);
    const auto found = peer.parcels.find(key);
    if (found != peer.parcels.end()) {
      Parcel parcel = std::move(found->second);
      peer.parcels.erase(found);
      return parcel;
    }
    const auto now = std::chrono::steady_clock::now();
    // Waits in slices of 20 ms, so that other threads of this rank get their parcels. What has come by the deadline
    // counts.
    if (!take_one(from, std::min(deadline, now + std::chrono::milliseconds(20))) && now >= deadline) {
      throw Error(Code::kTimeout, name_of(from) + " did not come to \"" + key + "\": " + describe(from));
    }
  }
}

int ProcessCourier::exit_descriptor(Rank peer) {
  const Peer& entry = peers_[static_cast<size_t>(peer)];
  return entry.pidfd >= 0 ? entry.pidfd : entry.socket;
}

uint32_t ProcessCourier::exit_events(Rank peer) {
  return peers_[static_cast<size_t>(peer)].pidfd >= 0 ? EPOLLIN : EPOLLHUP;
}

PeerState ProcessCourier::state(Rank peer) {
  if (peer == rank_) return PeerState::kAlive;
  const Peer& entry = peers_[static_cast<size_t>(peer)];
  pollfd end = {exit_descriptor(peer), static_cast<short>(entry.pidfd >= 0 ? POLLIN : 0), 0};
  if (poll(&end, 1, 0) > 0) return PeerState::kGone;  // a socket whose other end closed says POLLHUP
  if (entry.pidfd < 0) return PeerState::kAlive;
  const char letter = process_state_letter(entry.pid);
  return letter == 'T' || letter == 't' ? PeerState::kStopped : PeerState::kAlive;
}

std::string ProcessCourier::describe(Rank peer) {
  const Peer& entry = peers_[static_cast<size_t>(peer)];
  const std::string who = entry.pidfd >= 0 ? "pid " + std::to_string(entry.pid)
                                           : "its process (in another PID namespace: known by its socket only)";
  switch (state(peer)) {
    case PeerState::kGone:
      return who + " is gone";
    case PeerState::kStopped:
      return who + " is stopped (SIGSTOP or a debugger)";
    case PeerState::kAlive:
      break;
  }
  return who + " is alive";
}

}  // namespace herd::transport
