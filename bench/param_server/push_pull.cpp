// Measures push and pull of one worker and one server, processes with a core each, and prints a JSON object a line:
//   push_pull_polling  4 KiB there and back, one call after the other (server and worker poll)
//   push_with_pull     4 KiB there and back, the pull started right after the push, as training does
//   push_pull_asleep   the same after a pause of 5 ms, in which the server falls asleep
//   push, pull         64 MiB each, beside a copy of 64 MiB by one core (bound_GBps), in turns
//   build/release/bench/push_pull; push_pull.py makes a table of it
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <thread>
#include <vector>

#include "herd/comm/fork_world.h"
#include "herd/kernels/copy.h"
#include "herd/param_server/parameter_server.h"
#include "herd/param_server/server_client.h"

namespace {

using std::chrono::steady_clock;

constexpr int64_t kSmall = 1024, kLarge = 16 << 20;  // elements
constexpr int kLargeTimes = 15;

double us_of(const std::function<void()>& run) {
  const auto begin = steady_clock::now();
  run();
  return std::chrono::duration<double, std::micro>(steady_clock::now() - begin).count();
}

double median(std::vector<double> times) {
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2), times.end());
  return times[times.size() / 2];
}

void print(const char* op, int64_t elements, const std::vector<double>& us, double bound_GBps) {
  const double bytes = static_cast<double>(elements) * 4;
  std::printf("{\"op\":\"%s\",\"bytes\":%.0f,\"us_min\":%.2f,\"us_median\":%.2f,\"GBps\":%.2f,\"bound_GBps\":%.2f}\n",
              op, bytes, *std::min_element(us.begin(), us.end()), median(us), bytes / median(us) / 1e3, bound_GBps);
  std::fflush(stdout);
}

void work(herd::ServerClient& client) {
  std::vector<float> small(kSmall), large(kLarge), weights(kLarge), target(kLarge);
  const auto both = [&] {
    client.push(0, small);
    client.pull(0, std::span(weights).first(kSmall));
  };
  const auto together = [&] {
    herd::ServerCall pushed = client.start_push(0, small);
    herd::ServerCall pulled = client.start_pull(0, std::span(weights).first(kSmall));
    pulled.wait();
    pushed.wait();
  };
  std::vector<double> polling, overlapping, asleep, push, pull, copy;
  for (int i = 0; i < 20000; ++i) polling.push_back(us_of(both));
  for (int i = 0; i < 20000; ++i) overlapping.push_back(us_of(together));
  for (int i = 0; i < 200; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    asleep.push_back(us_of(both));
  }
  for (int i = 0; i < kLargeTimes; ++i) {
    std::fill(large.begin(), large.end(), static_cast<float>(i));  // its owner rewrites what is sent
    push.push_back(us_of([&] { client.push(1, large); }));
    client.pull(1, weights);  // waits for the update
    pull.push_back(us_of([&] { client.pull(1, weights); }));
    std::fill(large.begin(), large.end(), static_cast<float>(-i));
    double best = 1e30;
    for (const auto kind : {herd::kernels::WriteKind::kCached, herd::kernels::WriteKind::kStream}) {
      best = std::min(best, us_of([&] { herd::kernels::copy(target.data(), large.data(), kLarge * 4, kind); }));
    }
    copy.push_back(best);
  }
  const double bound = static_cast<double>(kLarge) * 4 / median(copy) / 1e3;
  print("push_pull_polling", kSmall, polling, 0);
  print("push_with_pull", kSmall, overlapping, 0);
  print("push_pull_asleep", kSmall, asleep, 0);
  print("push", kLarge, push, bound);
  print("pull", kLarge, pull, bound);
}

void take_core(int core) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(core, &cores);
  sched_setaffinity(0, sizeof cores, &cores);
}

}  // namespace

int main() {
  herd::run_forked(2, [](herd::Communicator& world) {
    take_core(world.rank());
    const herd::ServerLayout layout = herd::dedicated_servers(2, 1);
    const herd::KeyTable keys{{.elements = kSmall}, {.elements = kLarge}};
    if (world.rank() == 1) return herd::ParameterServer(world, layout, keys).wait();
    herd::ServerClient client(world, layout, keys);
    work(client);
  });
}
