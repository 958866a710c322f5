// Measures rounds of push and pull of all workers, the ranks of a job of which the last ones only serve, and prints the
// seconds of each round as JSON on rank 0. Run by hosts.py.
//   herd run ... -- build/release/bench/round DEDICATED MIB ROUNDS [alone]
// alone: the workers serve nothing, as lectures have it.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <vector>

#include "herd/comm/communicator.h"
#include "herd/param_server/parameter_server.h"
#include "herd/param_server/server_client.h"

// The weights of a key follow its gradients, so with hosts that only serve K keys take (K + 1) / K of the equation.
constexpr int64_t kKeyBytes = 512 << 10;

int main(int count, char** arguments) {
  if (count != 4 && count != 5) {
    std::fprintf(stderr, "usage: round DEDICATED MIB ROUNDS [alone]\n");
    return 2;
  }
  const int dedicated = std::atoi(arguments[1]), rounds = std::atoi(arguments[3]);
  const int64_t elements = kKeyBytes / 4, num_keys = std::atoll(arguments[2]) * (1 << 20) / kKeyBytes;
  auto world = herd::Communicator::create();
  const int num_workers = world.size() - dedicated;
  const bool alone = count == 5;
  const herd::ServerLayout layout =
      alone ? herd::dedicated_servers(world.size(), dedicated) : herd::mixed_servers(world.size(), dedicated);
  const std::vector<herd::Key> all(num_keys, {.elements = elements});
  const herd::KeyTable keys =
      alone ? herd::KeyTable(all) : herd::KeyTable(all, herd::balanced_shares(world.size(), dedicated));
  std::optional<herd::ParameterServer> server;
  if (!alone || world.rank() >= num_workers) server.emplace(world, layout, keys);
  if (world.rank() < num_workers) {
    herd::ServerClient client(world, layout, keys, server ? &*server : nullptr);
    std::vector<std::vector<float>> gradients(num_keys, std::vector<float>(static_cast<size_t>(elements), 1));
    auto weights = gradients;
    for (int round = 0; round < rounds; ++round) {
      const auto begin = std::chrono::steady_clock::now();
      std::vector<herd::ServerCall> calls;
      for (int64_t key = 0; key < num_keys; ++key) {
        calls.push_back(client.start_push(key, gradients[static_cast<size_t>(key)]));
        calls.push_back(client.start_pull(key, weights[static_cast<size_t>(key)]));
      }
      for (herd::ServerCall& call : calls) call.wait();
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
      if (world.rank() == 0) std::printf("{\"round\":%d,\"s\":%.4f}\n", round, took.count());
      std::fflush(stdout);
    }
  }
  if (server) server->wait();
}
