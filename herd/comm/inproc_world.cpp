#include "herd/comm/inproc_world.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "herd/base/error.h"
#include "herd/transport/cluster_transport.h"
#include "herd/transport/local_transport.h"
#include "herd/transport/thread_courier.h"
#include "herd/transport/thread_wire.h"

namespace herd::comm {
namespace {

using transport::ThreadCourier;
using transport::ThreadHub;

// Holds what the threads of one world share, and makes the transport of each rank.
class MeetingPlace {
 public:
  MeetingPlace(int num_ranks, const std::vector<int>& host_of)
      : world_(std::make_shared<ThreadHub>(num_ranks)), host_of_(host_of) {
    if (host_of.empty()) return;
    int num_seen = 0;
    const bool numbered = std::all_of(host_of.begin(), host_of.end(), [&](int host) {
      num_seen += host == num_seen;
      return host >= 0 && host < num_seen;
    });
    if (!numbered || host_of.size() != static_cast<size_t>(num_ranks)) {
      throw Error(Code::kBadConfig,
                  "run_inproc wants the host of each of " + std::to_string(num_ranks) +
                      " ranks, numbered 0, 1, .. as they first occur\n  fix: {0, 0, 1, 1} for two hosts "
                      "of two ranks");
    }
    queues_ = std::make_shared<transport::ThreadWireQueues>(num_ranks);
    for (int host = 0; host <= *std::max_element(host_of.begin(), host_of.end()); ++host) {
      const auto ranks = std::count(host_of.begin(), host_of.end(), host);
      hosts_.push_back(std::make_shared<ThreadHub>(static_cast<int>(ranks)));
    }
  }

  std::shared_ptr<transport::Transport> join(Rank rank) const {
    using namespace std::chrono_literals;
    const auto deadline = std::chrono::steady_clock::now() + 60s;
    auto courier = std::make_unique<ThreadCourier>(world_, rank);
    if (host_of_.empty()) return std::make_shared<transport::LocalTransport>(std::move(courier), deadline);
    transport::ClusterOptions options;
    options.rank = rank;
    options.host_of = host_of_;
    options.secret = std::string(32, 's');
    options.open_wire = [&](const transport::WireOptions&) {
      return std::make_unique<transport::ThreadWire>(queues_, rank);
    };
    options.courier = [&](const std::vector<Rank>& ranks, SteadyTime) {
      const auto index = static_cast<Rank>(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin());
      const auto host = static_cast<size_t>(host_of_[static_cast<size_t>(rank)]);
      return std::make_unique<ThreadCourier>(hosts_[host], index);
    };
    return std::make_shared<transport::ClusterTransport>(std::move(options),
                                                         transport::courier_exchange(std::move(courier)), deadline);
  }

 private:
  std::shared_ptr<ThreadHub> world_;
  std::vector<std::shared_ptr<ThreadHub>> hosts_;
  std::shared_ptr<transport::ThreadWireQueues> queues_;
  const std::vector<int>& host_of_;
};

// Returns the error of the first rank that failed for a reason of its own, and not since another one was lost.
std::exception_ptr cause_of(const std::vector<std::exception_ptr>& errors) {
  std::exception_ptr first;
  for (const std::exception_ptr& error : errors) {
    if (!error) continue;
    if (!first) first = error;
    try {
      std::rethrow_exception(error);
    } catch (const Error& failure) {
      if (failure.code() != Code::kPeerLost) return error;
    } catch (...) {
      return error;
    }
  }
  return first;
}

}  // namespace

void run_inproc(int num_ranks, const std::function<void(Communicator&)>& body, const std::vector<int>& host_of) {
  const MeetingPlace place(num_ranks, host_of);
  std::vector<std::exception_ptr> errors(static_cast<size_t>(num_ranks));
  std::latch created(num_ranks);  // a body may end the world, so none starts before every rank has joined
  std::vector<std::thread> threads;
  for (Rank rank = 0; rank < num_ranks; ++rank) {
    threads.emplace_back([&, rank] {
      bool joined = false;
      try {
        Communicator world(place.join(rank));
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
  if (const std::exception_ptr error = cause_of(errors)) std::rethrow_exception(error);
}

Communicator world_of_one() {
  const std::vector<int> one_host;
  return Communicator(MeetingPlace(1, one_host).join(0));
}

}  // namespace herd::comm
