#include "herd/comm/inproc_world.h"

#include <chrono>
#include <exception>
#include <latch>
#include <memory>
#include <thread>
#include <vector>

#include "herd/transport/local_transport.h"
#include "herd/transport/thread_courier.h"

namespace herd {

void run_inproc(int num_ranks, const std::function<void(Communicator&)>& body) {
  using namespace std::chrono_literals;
  const auto hub = std::make_shared<transport::ThreadHub>(num_ranks);
  std::vector<std::exception_ptr> errors(static_cast<size_t>(num_ranks));
  std::latch created(num_ranks);  // a body may end the world at once: not before every rank has joined it
  std::vector<std::thread> threads;
  for (Rank rank = 0; rank < num_ranks; ++rank) {
    threads.emplace_back([&, rank] {
      bool joined = false;
      try {
        auto courier = std::make_unique<transport::ThreadCourier>(hub, rank);
        const auto deadline = std::chrono::steady_clock::now() + 60s;
        Communicator world(std::make_shared<transport::LocalTransport>(std::move(courier), deadline));
        joined = true;
        created.arrive_and_wait();
        body(world);
      } catch (...) {
        if (!joined) created.count_down();
        errors[static_cast<size_t>(rank)] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

}  // namespace herd
