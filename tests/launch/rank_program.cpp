// A rank as the tests need it: rank_program MODE [FOLDER, DEADLINE_S/STEPS or VICTIMS]. Prints one line when it has met
// its peers.
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "herd/base/error.h"
#include "herd/comm/communicator.h"
#include "herd/launch/environment.h"
#include "herd/launch/status.h"
#include "herd/launch/stop_request.h"
#include "herd/launch/store_client.h"
#include "herd/param_server/parameter_server.h"
#include "herd/param_server/server_client.h"

namespace {

using namespace herd::launch;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// Every rank sees what every other has set.
void meet(herd::Store& store, const Environment& env) {
  store.set("from " + std::to_string(env.rank), std::to_string(env.rank * 10));
  int sum = 0;
  for (int rank = 0; rank < env.size; ++rank) {
    sum += std::stoi(store.get("from " + std::to_string(rank), Clock::now() + 20s));
  }
  std::printf("rank %d of %d on node %d met by %s: sum %d, restart %d\n", env.rank, env.size, env.node_rank,
              env.source.c_str(), sum, env.num_restarts);
  std::fflush(stdout);
}

// Prints more than any pipe holds, then waits to be stopped; files in `folder` say how far it is.
int chatter(const std::string& folder) {
  static volatile sig_atomic_t stop = 0;
  signal(SIGTERM, [](int) { stop = 1; });
  const std::string line(999, 'x');
  for (int i = 0; i < 12'000; ++i) std::puts(line.c_str());
  std::fflush(stdout);
  std::ofstream(folder + "/talked") << "12 MB";
  while (!stop) usleep(2000);
  std::ofstream(folder + "/saved") << "all";
  return 0;
}

// Takes steps of 50 ms, each with a barrier of all ranks: "DEADLINE_S/STEPS".
int take_steps(const std::string& text) {
  herd::Communicator comm = herd::Communicator::create();
  comm.set_deadline(std::chrono::milliseconds(std::stoi(text) * 1000));
  const int steps = std::stoi(text.substr(text.find('/') + 1));
  for (int step = 0; step < steps; ++step) {
    if (step == 1) std::printf("rank %d takes steps\n", comm.rank());
    std::fflush(stdout);
    std::this_thread::sleep_for(50ms);
    comm.barrier({.name = "step"});
  }
  std::printf("rank %d took all steps\n", comm.rank());
  return 0;
}

// Pushes to an asynchronous parameter server in rank 0's process, in 20 steps; the ranks whose digits `victims` has are
// killed in the fifth.
int push_and_pull(const std::string& victims) {
  herd::Communicator comm = herd::Communicator::create();
  const herd::ServerLayout layout = herd::colocated_servers(comm.size(), 1);
  const herd::KeyTable keys{{.elements = 3}};
  std::unique_ptr<herd::ParameterServer> server;
  if (comm.rank() == 0)
    server = std::make_unique<herd::ParameterServer>(comm, layout, keys,
                                                     herd::ServerOptions{.staleness = herd::kAsynchronous});
  herd::ServerClient client(comm, layout, keys, server.get());
  std::vector<float> weights(3);
  comm.barrier({.name = "all are connected"});
  for (int step = 0; step < 20; ++step) {
    if (step == 5 && victims.find(std::to_string(comm.rank())) != std::string::npos) raise(SIGKILL);
    client.push(0, weights);
    client.pull(0, weights);
    std::this_thread::sleep_for(10ms);  // others fail meanwhile
  }
  std::printf("rank %d took all steps\n", comm.rank());
  return 0;
}

int create_twice(bool keeps_first) {
  auto first = std::make_unique<herd::Communicator>(herd::Communicator::create());
  first->barrier();
  if (!keeps_first) first.reset();
  herd::Communicator::create();
  return 0;
}

int run(const std::string& mode, const std::string& folder) {
  if (mode == "creates-twice" || mode == "creates-again") return create_twice(mode == "creates-twice");
  if (mode == "chatters") return chatter(folder);
  if (mode == "steps") return take_steps(folder);
  if (mode == "pushes") return push_and_pull(folder);
  const Environment env = read_environment();
  const bool last = env.rank == env.size - 1;
  if (mode == "dies-before-it-connects" && last) return 7;
  auto store = connect_store(env);
  if (mode == "meet") meet(*store, env);
  if (mode == "fails-once" || mode == "fails") {
    meet(*store, env);
    if (last && (mode == "fails" || env.num_restarts == 0)) return 5;
  }
  if (mode == "killed-in-operation" || mode == "stuck") {
    publish_status(*store, env.rank, last ? "all_reduce \"a\"" : "all_reduce \"b\"", last ? 11 : 12);
    std::ofstream(env.memory_table) << "activations 3 GiB of rank " << env.rank << "\n";
    std::this_thread::sleep_for(600ms);
    meet(*store, env);
    if (last && mode == "killed-in-operation") raise(SIGKILL);
  }
  if (mode == "eats-memory") {
    std::ofstream(env.memory_table) << "activations of rank " << env.rank << ": all there is\n";
    std::vector<std::string> eaten;
    while (last) eaten.emplace_back(1 << 20, 'x');
  }
  if (mode == "saves") {
    static volatile sig_atomic_t stop = 0;
    for (const int asks : kStopSignals) signal(asks, [](int) { stop = 1; });
    meet(*store, env);
    while (!stop) usleep(2000);
    std::printf("rank %d saved\n", env.rank);
    return 0;
  }
  if (mode != "meet" && mode != "fails-once") store->get("never", Clock::now() + 60s);  // ends by the job's failure
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc > 1 ? argv[1] : "meet", argc > 2 ? argv[2] : "");
  } catch (const herd::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
