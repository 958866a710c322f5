#include "herd/comm/fork_world.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <exception>
#include <memory>
#include <utility>

#include "herd/base/error.h"
#include "herd/transport/local_transport.h"
#include "herd/transport/process_courier.h"

namespace herd {
namespace {

std::string run_rank(Rank rank, std::vector<int> sockets, const std::function<void(Communicator&)>& body) {
  using namespace std::chrono_literals;
  try {
    const auto deadline = std::chrono::steady_clock::now() + 60s;
    auto courier = std::make_unique<transport::ProcessCourier>(rank, std::move(sockets), deadline);
    Communicator world(std::make_shared<transport::LocalTransport>(std::move(courier), deadline));
    body(world);
    return "";
  } catch (const std::exception& error) {
    return error.what();
  }
}

}  // namespace

ForkWorld::ForkWorld(int num_ranks, std::function<void(Communicator&)> body) {
  const auto mesh = transport::make_mesh(num_ranks);
  const int parent = getpid();
  for (Rank rank = 0; rank < num_ranks; ++rank) {
    int ends[2] = {-1, -1};
    if (pipe2(ends, O_CLOEXEC) != 0) throw_errno(Code::kStorage, "create a pipe", errno);
    const int pid = fork();
    if (pid < 0) throw_errno(Code::kStorage, "fork rank " + std::to_string(rank), errno);
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(1);
      close(ends[0]);
      for (int pipe : pipes_) close(pipe);
      for (size_t i = 0; i < mesh.size(); ++i) {
        for (int socket : mesh[i]) {
          if (static_cast<Rank>(i) != rank && socket >= 0) close(socket);
        }
      }
      const std::string error = run_rank(rank, mesh[static_cast<size_t>(rank)], body);
      if (!error.empty() && write(ends[1], error.data(), error.size()) < 0) _exit(3);
      _exit(error.empty() ? 0 : 1);
    }
    close(ends[1]);
    ends_.push_back({pid, 0, ""});
    pipes_.push_back(ends[0]);
    waited_.push_back(false);
  }
  for (const auto& row : mesh) {
    for (int socket : row) {
      if (socket >= 0) close(socket);
    }
  }
}

ForkWorld::~ForkWorld() {
  for (size_t i = 0; i < ends_.size(); ++i) {
    if (!waited_[i]) {
      ::kill(ends_[i].pid, SIGKILL);
      waitpid(ends_[i].pid, nullptr, 0);
    }
    close(pipes_[i]);
  }
}

void ForkWorld::kill(Rank rank, int signal) { ::kill(pid(rank), signal); }

std::vector<RankEnd> ForkWorld::wait() {
  for (size_t i = 0; i < ends_.size(); ++i) {
    if (waited_[i]) continue;
    char text[4096];
    ssize_t size = 0;
    while ((size = read(pipes_[i], text, sizeof text)) > 0) ends_[i].error.append(text, static_cast<size_t>(size));
    while (waitpid(ends_[i].pid, &ends_[i].status, 0) < 0 && errno == EINTR) {
    }
    waited_[i] = true;
  }
  return ends_;
}

void run_forked(int num_ranks, const std::function<void(Communicator&)>& body) {
  ForkWorld world(num_ranks, body);
  const std::vector<RankEnd> ends = world.wait();
  for (size_t rank = 0; rank < ends.size(); ++rank) {
    if (ends[rank].status == 0) continue;
    throw Error(Code::kBug, "rank " + std::to_string(rank) + " ended with wait status " +
                                std::to_string(ends[rank].status) + ": " + ends[rank].error);
  }
}

}  // namespace herd
