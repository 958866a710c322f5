// Measures rounds of push and pull of all workers, the ranks of a job of which the last ones only serve, and prints the
// seconds of each round as JSON on rank 0. Run by hosts.py.
//   herd run ... -- build/release/bench/round DEDICATED MIB ROUNDS
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "herd/comm/communicator.h"
#include "herd/param_server/parameter_server.h"
#include "herd/param_server/server_client.h"

int main(int count, char** arguments) {
  if (count != 4) {
    std::fprintf(stderr, "usage: round DEDICATED MIB ROUNDS\n");
    return 2;
  }
  const int dedicated = std::atoi(arguments[1]), rounds = std::atoi(arguments[3]);
  const int64_t num_keys = 4, elements = std::atoll(arguments[2]) * (1 << 20) / 4 / num_keys;
  auto world = herd::Communicator::create();
  const int num_workers = world.size() - dedicated;
  const herd::ServerLayout layout = herd::mixed_servers(world.size(), dedicated);
  const herd::KeyTable keys(std::vector<herd::Key>(num_keys, {.elements = elements}),
                            herd::balanced_shares(world.size(), dedicated));
  herd::ParameterServer server(world, layout, keys);
  if (world.rank() < num_workers) {
    herd::ServerClient client(world, layout, keys, &server);
    std::vector<std::vector<float>> gradients(num_keys, std::vector<float>(static_cast<size_t>(elements), 1));
    for (int round = 0; round < rounds; ++round) {
      const auto begin = std::chrono::steady_clock::now();
      for (int64_t key = 0; key < num_keys; ++key) client.push(key, gradients[static_cast<size_t>(key)]);
      const std::chrono::duration<double> pushed = std::chrono::steady_clock::now() - begin;
      for (int64_t key = 0; key < num_keys; ++key) client.pull(key, gradients[static_cast<size_t>(key)]);
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
      if (world.rank() == 0)
        std::printf("{\"round\":%d,\"push_s\":%.4f,\"s\":%.4f}\n", round, pushed.count(), took.count());
      std::fflush(stdout);
    }
  }
  server.wait();
}
