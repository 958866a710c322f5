// Trains three weights with a parameter server in rank 0's process:   herd run -n 2 -- param_server
// Both ranks push gradients; the server averages them, takes a step of gradient descent, and both pull the weights.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <vector>

#include "herd/comm/communicator.h"
#include "herd/param_server/parameter_server.h"
#include "herd/param_server/server_client.h"

int main() {
  auto comm = herd::Communicator::create();
  const herd::ServerLayout layout = herd::colocated_servers(comm.size(), 1);
  const herd::KeyTable keys{{.elements = 3}};  // index 0: a tensor of three weights

  std::unique_ptr<herd::ParameterServer> server;
  if (comm.rank() == 0) {
    herd::ServerOptions options;
    options.optimizer = herd::kernels::SgdHyper{.rate = 1};
    options.initial = [](int64_t, int64_t, std::span<float> weights) { std::ranges::fill(weights, 10.0f); };
    server = std::make_unique<herd::ParameterServer>(comm, layout, keys, options);
  }

  herd::ServerClient client(comm, layout, keys, server.get());
  const std::vector<float> gradient = comm.rank() == 0 ? std::vector<float>{1, 2, 3} : std::vector<float>{1, 0, 1};
  std::vector<float> weights(3);
  for (int step = 0; step < 2; ++step) {
    client.push(0, gradient);
    const int64_t version = client.pull(0, weights);
    std::printf("rank %d has version %lld: [%g, %g, %g]\n", comm.rank(), static_cast<long long>(version), weights[0],
                weights[1], weights[2]);
  }
}
