#include "herd/net/listener.h"

#include <netdb.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "herd/base/error.h"
#include "herd/net/address.h"

namespace herd::net {
namespace {

using std::chrono::steady_clock;

constexpr int kBacklog = 1024;
constexpr int kPerTurn = 64;          // connections accepted from one socket before others get their turn
constexpr int kPerThrottledTick = 4;  // connections accepted per tick of the timer while nobody is expected

void add(int epoll, int descriptor) {
  epoll_event event = {};
  event.events = EPOLLIN;
  event.data.fd = descriptor;
  if (epoll_ctl(epoll, EPOLL_CTL_ADD, descriptor, &event) != 0) throw_errno(Code::kStorage, "watch a socket", errno);
}

// Says what a connection has sent first; a TLS client starts with a handshake record.
enum class FirstBytes : uint8_t { kNone, kHandshake, kOther };

FirstBytes first_bytes(int socket) {
  std::array<unsigned char, 2> bytes{};
  const ssize_t got = recv(socket, bytes.data(), bytes.size(), MSG_PEEK | MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return FirstBytes::kNone;
  if (got <= 0 || bytes[0] != 0x16) return FirstBytes::kOther;
  // One byte alone is judged too: left where it is, it would show as input until the stranger's timeout ends.
  return got == 1 || bytes[1] == 0x03 ? FirstBytes::kHandshake : FirstBytes::kOther;
}

}  // namespace

Listener::Listener(const SecureContext& context, const std::vector<std::string>& addresses, int port,
                   ListenerLimits limits, int* error_number)
    : context_(context),
      limits_(limits),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      timer_(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)),
      port_(port) {
  if (epoll_.fd < 0 || timer_.fd < 0) throw_errno(Code::kStorage, "create a descriptor to listen with", errno);
  for (const std::string& address : addresses) {
    SocketAddress at = numeric_address(address, port_);
    Descriptor listening(socket(at.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    const int on = 1;
    if (listening.fd >= 0) {
      setsockopt(listening.fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
      if (at.family() == AF_INET6) setsockopt(listening.fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
    }
    if (listening.fd < 0 || bind(listening.fd, at.get(), at.size()) != 0 || listen(listening.fd, kBacklog) != 0) {
      const int why = errno;
      if (error_number != nullptr) *error_number = why;
      throw Error(Code::kBadConfig,
                  "can't listen on " + address + " port " + std::to_string(port_) + ": " + std::strerror(why));
    }
    if (port_ == 0) port_ = bound_port(listening.fd);
    listening_.push_back(std::move(listening));
  }
  add(epoll_.fd, timer_.fd);
  watch_listening(true);
}

std::vector<std::unique_ptr<SecureSocket>> Listener::accept() {
  std::vector<std::unique_ptr<SecureSocket>> welcome;
  std::array<epoll_event, 32> events{};
  const int ready = epoll_wait(epoll_.fd, events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < ready; ++i) {
    const int descriptor = events[static_cast<size_t>(i)].data.fd;
    if (descriptor == timer_.fd) {
      uint64_t ticks = 0;
      [[maybe_unused]] const auto count = ::read(timer_.fd, &ticks, sizeof ticks);
      if (paused_) watch_listening(true);
    } else if (std::any_of(listening_.begin(), listening_.end(),
                           [&](const Descriptor& one) { return one.fd == descriptor; })) {
      accept_from(descriptor);
    } else {
      on_readable(descriptor, welcome);
    }
  }
  while (!strangers_.empty() && steady_clock::now() - strangers_.front().since > limits_.proof_timeout) {
    refuse(strangers_.begin(), "no handshake within " + std::to_string(limits_.proof_timeout.count()) + " ms");
  }
  set_timer();
  return welcome;
}

// Handles input of one stranger. The others are not looked at, so that many that wait cost no more than one.
void Listener::on_readable(int descriptor, std::vector<std::unique_ptr<SecureSocket>>& welcome) {
  const auto stranger = std::find_if(strangers_.begin(), strangers_.end(),
                                     [&](const Stranger& one) { return one.descriptor() == descriptor; });
  if (stranger == strangers_.end()) return;
  if (!advance(*stranger)) {
    refuse(stranger, stranger->socket ? stranger->socket->end_reason() : "what it said is no handshake");
  } else if (stranger->socket && stranger->socket->is_open()) {
    epoll_ctl(epoll_.fd, EPOLL_CTL_DEL, descriptor, nullptr);
    welcome.push_back(std::move(stranger->socket));
    strangers_.erase(stranger);
  }
}

void Listener::throttle(bool on) {
  if (throttled_ && !on && paused_) watch_listening(true);
  throttled_ = on;
}

void Listener::accept_from(int listening) {
  if (throttled_) watch_listening(false);  // until the timer ticks
  for (int turn = 0; turn < (throttled_ ? kPerThrottledTick : kPerTurn); ++turn) {
    Descriptor connection(accept4(listening, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (connection.fd < 0) {
      const bool full = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
      // The system has no descriptor left: pauses until the timer ticks.
      if (full && strangers_.empty() && !paused_) watch_listening(false);
      if (full && !strangers_.empty()) make_room();
      return;
    }
    if (static_cast<int>(strangers_.size()) >= limits_.max_strangers) make_room();
    add(epoll_.fd, connection.fd);
    strangers_.push_back({std::move(connection), nullptr, steady_clock::now()});
  }
}

bool Listener::advance(Stranger& stranger) {
  if (!stranger.socket) {
    const FirstBytes said = first_bytes(stranger.raw.fd);
    if (said == FirstBytes::kOther) return false;
    if (said == FirstBytes::kNone) return true;
    stranger.socket = SecureSocket::accept(context_, std::move(stranger.raw));
  }
  stranger.socket->shake_hands();
  return stranger.socket->end_reason().empty();
}

void Listener::refuse(std::list<Stranger>::iterator stranger, const std::string& why) {
  epoll_ctl(epoll_.fd, EPOLL_CTL_DEL, stranger->descriptor(), nullptr);
  ++refused_;
  last_refusal_ = why;
  strangers_.erase(stranger);
}

void Listener::make_room() {
  auto oldest = std::find_if(strangers_.begin(), strangers_.end(), [](const Stranger& one) { return !one.socket; });
  if (oldest == strangers_.end()) oldest = strangers_.begin();
  refuse(oldest, "more than " + std::to_string(limits_.max_strangers) + " connections without a handshake at once");
}

void Listener::watch_listening(bool listening) {
  paused_ = !listening;
  for (const Descriptor& one : listening_) {
    if (listening)
      add(epoll_.fd, one.fd);
    else
      epoll_ctl(epoll_.fd, EPOLL_CTL_DEL, one.fd, nullptr);
  }
}

// Arms the timer while a stranger's timeout may end, or while nothing is accepted.
void Listener::set_timer() {
  const bool needed = paused_ || !strangers_.empty();
  if (needed == timer_armed_) return;
  timer_armed_ = needed;
  itimerspec period = {};
  if (needed) period.it_interval.tv_nsec = period.it_value.tv_nsec = 250'000'000;
  timerfd_settime(timer_.fd, 0, &period, nullptr);
}

}  // namespace herd::net
