#include "herd/launch/local_meeting.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <thread>
#include <utility>

#include "herd/base/descriptor.h"
#include "herd/base/error.h"
#include "herd/base/log.h"

namespace herd::launch {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

struct Address {
  sockaddr_un address = {};
  socklen_t length = 0;
};

// Returns the abstract Unix address of a job. An address holds 107 bytes, so a longer name ends in a hash.
Address abstract_address(const std::string& job_id) {
  std::string name = "herd/" + std::to_string(getuid()) + "/" + job_id;
  Address result;
  if (name.size() > sizeof result.address.sun_path - 1) {
    name = name.substr(0, 64) + "#" + std::to_string(std::hash<std::string>()(job_id));
  }
  result.address.sun_family = AF_UNIX;
  std::memcpy(result.address.sun_path + 1, name.data(), name.size());
  result.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return result;
}

bool same_user(int fd) {
  ucred peer = {};
  socklen_t length = sizeof peer;
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == geteuid();
}

}  // namespace

// Runs the thread that gives the store's address and token to processes of the same user.
struct LocalMeeting::State {
  State(int listening, int stopping, std::string text) : listener(listening), stop(stopping), answer(std::move(text)) {
    thread = std::thread([this] { serve(); });
  }
  ~State() {
    const uint64_t one = 1;
    [[maybe_unused]] const auto written = write(stop.fd, &one, sizeof one);
    thread.join();
  }
  void serve() {
    while (true) {
      pollfd items[] = {{listener.fd, POLLIN, 0}, {stop.fd, POLLIN, 0}};
      if (poll(items, 2, -1) < 0 && errno != EINTR) return;
      if (items[1].revents) return;
      if (!items[0].revents) continue;
      const Descriptor peer(accept4(listener.fd, nullptr, nullptr, SOCK_CLOEXEC));
      if (peer.fd < 0) continue;
      if (same_user(peer.fd)) {
        [[maybe_unused]] const auto sent = send(peer.fd, answer.data(), answer.size(), MSG_NOSIGNAL);
      } else {
        log_warning("a process of another user asked for this job's token; it got nothing");
      }
    }
  }
  Descriptor listener, stop;
  std::string answer;
  std::thread thread;
};

LocalMeeting::LocalMeeting(const std::string& job_id, MeetingPoint point) {
  const Address at = abstract_address(job_id);
  Descriptor listener(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (listener.fd < 0) throw_errno(Code::kStorage, "Unix socket", errno);
  if (bind(listener.fd, reinterpret_cast<const sockaddr*>(&at.address), at.length) != 0) {
    if (errno != EADDRINUSE) throw_errno(Code::kStorage, "bind the meeting of job " + job_id, errno);
    throw Error(Code::kBadConfig,
                "another job on this host has the id \"" + job_id +
                    "\"\n  fix: give each job an id of its own (torchrun: --rdzv-id or --master-port), "
                    "or stop the other one");
  }
  if (listen(listener.fd, 128) != 0) throw_errno(Code::kStorage, "listen", errno);
  Descriptor stop(eventfd(0, EFD_CLOEXEC));
  if (stop.fd < 0) throw_errno(Code::kStorage, "eventfd", errno);
  state_ = std::make_unique<State>(std::exchange(listener.fd, -1), std::exchange(stop.fd, -1),
                                   point.rendezvous + " " + point.token);
}
LocalMeeting::~LocalMeeting() = default;

MeetingPoint ask_local_meeting(const std::string& job_id, SteadyTime deadline) {
  const Address at = abstract_address(job_id);
  const auto started = Clock::now();
  while (true) {
    const Descriptor peer(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (peer.fd < 0) throw_errno(Code::kStorage, "Unix socket", errno);
    if (connect(peer.fd, reinterpret_cast<const sockaddr*>(&at.address), at.length) == 0) {
      if (!same_user(peer.fd)) {
        throw Error(Code::kBadConfig, "a process of another user answers for job \"" + job_id +
                                          "\"\n  fix: give the job an id of its own");
      }
      const timeval limit = {1, 0};  // 1 s for one short message; rank 0 may be busy
      setsockopt(peer.fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
      char text[1024];
      std::string answer;
      for (ssize_t got; (got = recv(peer.fd, text, sizeof text, 0)) > 0;) answer.append(text, static_cast<size_t>(got));
      const size_t space = answer.find(' ');
      if (space != std::string::npos) return {answer.substr(0, space), answer.substr(space + 1)};
    }
    if (Clock::now() >= deadline) {
      throw Error(Code::kTimeout,
                  "rank 0 of job \"" + job_id + "\" did not appear on this host within " +
                      std::to_string(std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - started).count()) +
                      " s\n  fix: start rank 0 too; with ranks in several containers set HERD_RENDEZVOUS "
                      "and HERD_TOKEN for all of them");
    }
    std::this_thread::sleep_for(20ms);
  }
}

}  // namespace herd::launch
