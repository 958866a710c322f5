// Uses herd without torch: who am I in the job, and a value that every rank sees.
#include <cstdio>

#include "herd/base/units.h"
#include "herd/launch/environment.h"
#include "herd/launch/store_client.h"

int main() {
  const herd::launch::Environment env = herd::launch::read_environment();
  const auto store = herd::launch::connect_store(env);
  store->set("from " + std::to_string(env.rank), herd::format_bytes(1 << 20));
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  std::printf("rank %d of %d: %s\n", env.rank, env.size, store->get("from 0", deadline).c_str());
}
