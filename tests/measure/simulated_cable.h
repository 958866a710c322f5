// Two ends of a cable with a clock of their own each, for probes: what a message takes is exact, and nothing waits for
// real. An end's clock goes on with what its core does, and to a message's arrival when it receives it. A cable that
// has passed nothing for a while may pass what it could have passed meanwhile at once, up to a burst (a token bucket).
// Threads: one per end.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <vector>

#include "herd/measure/link_probe.h"
#include "herd/topology/topology.h"

namespace herd::testing_support {

class SimulatedCable {
 public:
  explicit SimulatedCable(const Link& link, double burst_bytes = 0)
      : link_(link), burst_us_(burst_bytes / link.bytes_per_us) {}

  class End final : public measure::ProbeWire {
   public:
    End(SimulatedCable& cable, int side) : cable_(cable), side_(side) {}

    // After each first of two long messages, as a receiver that the machine takes the core from.
    void interrupt_between_halves(double us) { interrupted_us_ = us; }

    // Before each first message of several, as one that gets its memory then.
    void prepare_for(double us) { prepares_us_ = us; }

    // So many messages, the first of all, as an end that the machine gives its core to late.
    void receive_late(int messages, double us) { late_ = messages, late_us_ = us; }

    void send(std::span<std::byte> bytes) override {
      const Link& link = cable_.link_;
      const auto size = static_cast<double>(bytes.size());
      const double core_us = link.core_bytes_per_us > 0 ? size / link.core_bytes_per_us : 0;
      const double first_us = std::max(free_us_, now_us_), after_us = link.latency_us - link.message_us;
      const double saved_us = std::min(first_us - free_us_, cable_.burst_us_);
      free_us_ = first_us - saved_us + size / link.bytes_per_us;
      const double last_us = std::max({first_us, free_us_, now_us_ + core_us});
      now_us_ += core_us + link.message_us;
      cable_.put(side_, {first_us + after_us, last_us + after_us, {bytes.begin(), bytes.end()}});
    }

    void receive(std::span<std::byte> bytes) override {
      const Message message = cable_.take(1 - side_);
      const Link& link = cable_.link_;
      now_us_ = std::max(now_us_, message.first_us);
      if (link.core_bytes_per_us > 0) now_us_ += static_cast<double>(bytes.size()) / link.core_bytes_per_us;
      now_us_ = std::max(now_us_, message.last_us) + link.message_us;
      std::copy(message.bytes.begin(), message.bytes.end(), bytes.begin());
      if (bytes.size() >= kLong && ++long_ones_ % 2 == 1) now_us_ += interrupted_us_;
      if (bytes.size() == kQuestion) now_us_ += prepares_us_;
      if (late_-- > 0) now_us_ += late_us_;
    }

    void exchange(std::span<std::byte> out, std::span<std::byte> in) override {
      send(out);
      receive(in);
    }

    double now_us() override { return now_us_; }

   private:
    static constexpr size_t kLong = 32 << 10, kQuestion = 32;
    SimulatedCable& cable_;
    int side_;
    double now_us_ = 0, free_us_ = 0, interrupted_us_ = 0,
           prepares_us_ = 0;  // free_us_: when its way out has passed all, but for a burst
    int long_ones_ = 0, late_ = 0;
    double late_us_ = 0;
  };

 private:
  struct Message {
    double first_us = 0, last_us = 0;  // when its bytes arrive; they are copied out meanwhile
    std::vector<std::byte> bytes;
  };

  void put(int side, Message message) {
    const std::lock_guard lock(mutex_);
    under_way_[side].push_back(std::move(message));
    changed_.notify_all();
  }

  Message take(int side) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !under_way_[side].empty(); });
    Message message = std::move(under_way_[side].front());
    under_way_[side].pop_front();
    return message;
  }

  Link link_;
  double burst_us_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Message> under_way_[2];
};

}  // namespace herd::testing_support
