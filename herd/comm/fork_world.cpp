#include "herd/comm/fork_world.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <exception>
#include <memory>
#include <utility>

#include "herd/base/error.h"
#include "herd/transport/cluster_transport.h"
#include "herd/transport/local_transport.h"
#include "herd/transport/process_courier.h"

namespace herd::comm {
namespace {

using SocketTable = std::vector<std::vector<int>>;  // [i][j]: rank i's socket to rank j, -1 where there is none

struct SocketTables {
  SocketTable world;
  SocketTable hosts;  // between ranks of one host; empty where there is one host
};

// Makes sockets between the ranks of each host, by their ranks in the world.
SocketTable make_host_sockets(const std::vector<int>& host_of) {
  SocketTable all(host_of.size(), std::vector<int>(host_of.size(), -1));
  for (int host = 0; host <= *std::max_element(host_of.begin(), host_of.end()); ++host) {
    std::vector<size_t> ranks;
    for (size_t rank = 0; rank < host_of.size(); ++rank) {
      if (host_of[rank] == host) ranks.push_back(rank);
    }
    const SocketTable pairs = transport::make_socket_pairs(static_cast<int>(ranks.size()));
    for (size_t i = 0; i < ranks.size(); ++i) {
      for (size_t j = 0; j < ranks.size(); ++j) all[ranks[i]][ranks[j]] = pairs[i][j];
    }
  }
  return all;
}

void close_all(const SocketTable& table, Rank except) {
  for (size_t rank = 0; rank < table.size(); ++rank) {
    for (int socket : table[rank]) {
      if (static_cast<Rank>(rank) != except && socket >= 0) close(socket);
    }
  }
}

std::shared_ptr<transport::Transport> join(Rank rank, const SocketTables& tables, const WorldOptions& world) {
  using namespace std::chrono_literals;
  const auto deadline = std::chrono::steady_clock::now() + 60s;
  const auto self = static_cast<size_t>(rank);
  auto courier = std::make_unique<transport::ProcessCourier>(rank, tables.world[self], deadline);
  if (world.host_of.empty()) return std::make_shared<transport::LocalTransport>(std::move(courier), deadline);
  transport::ClusterOptions options;
  options.rank = rank;
  options.host_of = world.host_of;
  options.secret = std::string(32, 's');
  options.kind = world.wire;
  options.wire.interfaces = world.interfaces;
  options.courier = [&](const std::vector<Rank>& ranks, SteadyTime until) {
    std::vector<int> sockets;
    for (Rank peer : ranks) sockets.push_back(tables.hosts[self][static_cast<size_t>(peer)]);
    const auto index = static_cast<Rank>(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin());
    return std::make_unique<transport::ProcessCourier>(index, std::move(sockets), until, ranks);
  };
  return std::make_shared<transport::ClusterTransport>(std::move(options),
                                                       transport::courier_exchange(std::move(courier)), deadline);
}

std::string run_rank(Rank rank, const SocketTables& tables, const std::function<void(Communicator&)>& body,
                     const WorldOptions& options) {
  try {
    if (options.run_first) options.run_first(rank);
    Communicator world(join(rank, tables, options));
    body(world);
    return "";
  } catch (const std::exception& error) {
    return error.what();
  }
}

}  // namespace

WorldOptions one_rank_per_host(int num_ranks, transport::WireKind wire) {
  WorldOptions options;
  options.wire = wire;
  for (int rank = 0; rank < num_ranks; ++rank) options.host_of.push_back(rank);
  return options;
}

ForkWorld::ForkWorld(int num_ranks, std::function<void(Communicator&)> body, const WorldOptions& options) {
  SocketTables tables = {transport::make_socket_pairs(num_ranks), {}};
  if (!options.host_of.empty()) tables.hosts = make_host_sockets(options.host_of);
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
      close_all(tables.world, rank);
      close_all(tables.hosts, rank);
      const std::string error = run_rank(rank, tables, body, options);
      if (!error.empty() && write(ends[1], error.data(), error.size()) < 0) _exit(3);
      _exit(error.empty() ? 0 : 1);
    }
    close(ends[1]);
    ends_.push_back({pid, 0, ""});
    pipes_.push_back(ends[0]);
    waited_.push_back(false);
  }
  close_all(tables.world, -1);
  close_all(tables.hosts, -1);
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
  for (size_t i = 0; i < ends_.size(); ++i) wait(static_cast<Rank>(i));
  return ends_;
}

RankEnd ForkWorld::wait(Rank rank) {
  const auto i = static_cast<size_t>(rank);
  if (waited_[i]) return ends_[i];
  char text[4096];
  ssize_t size = 0;
  while ((size = read(pipes_[i], text, sizeof text)) > 0) ends_[i].error.append(text, static_cast<size_t>(size));
  while (waitpid(ends_[i].pid, &ends_[i].status, 0) < 0 && errno == EINTR) {
  }
  waited_[i] = true;
  return ends_[i];
}

void run_forked(int num_ranks, const std::function<void(Communicator&)>& body, const WorldOptions& options) {
  ForkWorld world(num_ranks, body, options);
  const std::vector<RankEnd> ends = world.wait();
  std::string failures;  // of all ranks: the first one often says only that another has left
  for (size_t rank = 0; rank < ends.size(); ++rank) {
    if (ends[rank].status == 0) continue;
    failures += (failures.empty() ? "rank " : "\nrank ") + std::to_string(rank) + " ended with wait status " +
                std::to_string(ends[rank].status) + ": " + ends[rank].error;
  }
  if (!failures.empty()) throw Error(Code::kBug, failures);
}

}  // namespace herd::comm
