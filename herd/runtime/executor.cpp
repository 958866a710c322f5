#include "herd/runtime/executor.h"

#include <atomic>
#include <map>
#include <mutex>
#include <optional>

#include "herd/base/check.h"
#include "herd/base/error.h"
#include "herd/program/program_names.h"
#include "herd/runtime/deferred_release_internal.h"

namespace herd::runtime {
namespace {

double microseconds(Clock::duration d) { return std::chrono::duration<double, std::micro>(d).count(); }

// The exception in flight as an Error that opens with `where`.
Error error_at(const std::string& where) {
  try {
    throw;
  } catch (const Error& error) {
    return Error(error.code(), where + ": " + error.message());
  } catch (const std::exception& error) {
    return Error(Code::kBug, where + ": " + error.what());
  }
}

// "step 7: backward of block3 mb1 on rank 2 (pp 1)"; of many parameter groups the first.
std::string place_of(const program::Program& program, const program::Op& op, int64_t step) {
  constexpr size_t kLongest = 80;
  std::string what = program::describe(program, op);
  if (what.size() > kLongest) what = what.substr(0, what.rfind(' ', kLongest)) + " ..";
  return "step " + std::to_string(step) + ": " + what + " on " + program::rank_name(program);
}

// Names the op in what its operation throws.
class NamedEvent final : public Event {
 public:
  NamedEvent(EventPtr inner, std::string where) : inner_(std::move(inner)), where_(std::move(where)) {}
  bool done() const override { return inner_->done(); }
  void wait() override {
    try {
      inner_->wait();
    } catch (...) {
      throw error_at(where_);
    }
  }
  Clock::time_point ended_at() const override { return inner_->ended_at(); }

 private:
  EventPtr inner_;
  std::string where_;
};

}  // namespace

std::unique_ptr<Lane> make_cpu_lane(program::Lane lane) {
  switch (lane) {
    case program::Lane::kCompute:
      return inline_lane();
    case program::Lane::kGather:
      return ready_lane("herd-gather");
    case program::Lane::kReduce:
      return ready_lane("herd-reduce");
    case program::Lane::kActivations:
      return ready_lane("herd-activate");
    case program::Lane::kPeerIn:
      return ready_lane("herd-peer-in");
    case program::Lane::kPeerOut:
      return ready_lane("herd-peer-out");
    case program::Lane::kCopyIn:
      return thread_lane("herd-copy-in");
    case program::Lane::kCopyOut:
      return thread_lane("herd-copy-out");
    case program::Lane::kHost:
      return thread_lane("herd-host");
    case program::Lane::kIo:
      return thread_lane("herd-io");
  }
  throw Error(Code::kBug, "unknown lane");
}

struct Executor::State {
  struct Slot {  // one op of the loop body
    std::vector<program::Dependency> after;
    std::vector<int> deferred_releases;  // ops that wait for this one in the same step
    Binding binding;
    EventPtr event;                                 // of the newest run
    int64_t handed_over = -1;                       // run that `event` belongs to
    std::shared_ptr<std::atomic<double>> begin_us;  // of that run; its lane may still be about to write it
  };
  struct Queue {
    std::unique_ptr<Lane> lane;
    std::vector<int> ops;
    size_t next = 0;
  };

  program::Program program;
  OpListener listener;
  std::mutex own_mutex;
  std::optional<Error> own_error;  // the first that an op of this rank threw
  std::vector<Slot> slots;
  std::map<program::Queue, Queue> queues;  // of ops that are no deferred_releases
  std::mutex deferred_releases_mutex;
  std::vector<std::shared_ptr<DeferredRelease>> deferred_releases;  // that may not have taken effect yet
  Clock::time_point origin = Clock::now();
  int64_t runs = 0;
  double waited_us = 0;

  bool submittable(const Slot& slot) const {
    for (const program::Dependency& d : slot.after) {
      const int64_t needed = runs - d.distance;
      if (needed >= 0 && slots[d.op].handed_over < needed) return false;
    }
    return true;
  }

  // Of ops of the same lane too: lane order says only that they have started.
  std::vector<EventPtr> events_before(const Slot& slot) const {
    std::vector<EventPtr> events;
    for (const program::Dependency& d : slot.after) {
      if (d.distance > runs) continue;
      const EventPtr& event = slots[d.op].event;
      if (event->done())
        event->wait();  // throws what the op threw
      else
        events.push_back(event);
    }
    return events;
  }

  // Lets every release take effect that can.
  void run_deferred_releases() {
    const std::lock_guard lock(deferred_releases_mutex);
    std::erase_if(deferred_releases, [](const auto& deferred_release) { return deferred_release->done(); });
  }

  // As soon as all that a deferred_release waits for has been handed over, before any op that comes after it.
  void hand_over_deferred_releases_of(const Slot& handed, int64_t step) {
    for (const int index : handed.deferred_releases) {
      Slot& slot = slots[index];
      if (slot.handed_over == runs || !submittable(slot)) continue;
      const program::Op& op = program.ops[index];
      Job job = [this, &slot, &op, step] { return run_binding(slot, op, step); };
      const auto deferred_release = std::make_shared<DeferredRelease>(events_before(slot), std::move(job));
      slot.event = deferred_release;
      slot.handed_over = runs;
      {
        const std::lock_guard lock(deferred_releases_mutex);
        if (!deferred_release->done()) deferred_releases.push_back(deferred_release);
      }
      hand_over_deferred_releases_of(slot, step);
    }
  }

  EventPtr run_binding(const Slot& slot, const program::Op& op, int64_t step) {
    try {
      const EventPtr rest = slot.binding(op, step);
      return rest ? std::make_shared<NamedEvent>(rest, place_of(program, op, step)) : nullptr;
    } catch (...) {
      const Error error = error_at(place_of(program, op, step));
      note_own(error);
      throw error;
    }
  }

  void hand_over(int index, Queue& queue, int64_t step) {
    Slot& slot = slots[index];
    const program::Op& op = program.ops[index];
    std::vector<EventPtr> before = events_before(slot);
    const double submitted = now_us();
    slot.begin_us = std::make_shared<std::atomic<double>>(submitted);
    Job job = [this, &slot, &op, step, begin = slot.begin_us, submitted]() -> EventPtr {
      const double begun = now_us();
      begin->store(begun);
      if (op.lane == program::Lane::kCompute) waited_us += begun - submitted;
      run_deferred_releases();
      if (listener.began) listener.began(place_of(program, op, step));
      return run_binding(slot, op, step);
    };
    slot.event = queue.lane->submit(std::move(before), std::move(job));
    slot.handed_over = runs;
    queue.next++;
    if (op.lane == program::Lane::kCompute && slot.event->done()) slot.event->wait();  // throws what the op threw
    hand_over_deferred_releases_of(slot, step);
  }

  void note_own(const Error& error) {
    {
      std::lock_guard lock(own_mutex);
      if (own_error) return;
      own_error = error;
    }
    listener.failed(error);
  }

  // This rank's own, else the first in program order, as far as they are known already.
  void throw_first_failure() {
    {
      std::lock_guard lock(own_mutex);
      if (own_error) throw *own_error;
    }
    for (Slot& slot : slots)
      if (slot.event && slot.event->done()) slot.event->wait();
  }

  // Hands over ops of the other lanes as far as their dependencies have been handed over.
  void advance_others(int64_t step) {
    for (bool moved = true; moved;) {
      moved = false;
      for (auto& [name, queue] : queues) {
        if (name.lane == program::Lane::kCompute) continue;
        while (queue.next < queue.ops.size() && submittable(slots[queue.ops[queue.next]])) {
          hand_over(queue.ops[queue.next], queue, step);
          moved = true;
        }
      }
    }
  }

  void run(int64_t step);

  void drain() {
    for (auto& [lane, queue] : queues) queue.lane->drain();
    run_deferred_releases();
  }

  double now_us() const { return microseconds(Clock::now() - origin); }
};

Executor::Executor(program::Program program, BindingTable bindings, OpListener listener, const LaneFactory& lanes)
    : state_(std::make_unique<State>()) {
  state_->listener = std::move(listener);
  state_->program = std::move(program);
  const auto after = program::dependencies(state_->program);
  const auto& ops = state_->program.ops;
  state_->slots.resize(ops.size());
  for (size_t i = 0; i < ops.size(); ++i) {
    auto binding = bindings.find(ops[i].kind);
    HERD_CHECK(binding != bindings.end(), "no binding for " + herd::program::describe(state_->program, ops[i]));
    state_->slots[i].after = after[i];
    state_->slots[i].binding = binding->second;
    if (program::is_deferred_release(ops[i])) {
      for (const program::Dependency& d : after[i]) {
        if (d.distance == 0) state_->slots[static_cast<size_t>(d.op)].deferred_releases.push_back(static_cast<int>(i));
      }
      continue;
    }
    auto& queue = state_->queues[program::queue_of(ops[i])];
    if (!queue.lane) queue.lane = lanes(ops[i].lane);
    queue.ops.push_back(static_cast<int>(i));
  }
}

Executor::~Executor() { state_->drain(); }

void Executor::run(int64_t step) {
  try {
    state_->run(step);
  } catch (...) {
    state_->throw_first_failure();
    throw;
  }
}

void Executor::State::run(int64_t step) {
  State& s = *this;
  for (auto& [lane, queue] : s.queues) queue.next = 0;
  s.waited_us = 0;
  s.advance_others(step);
  if (auto compute = s.queues.find({program::Lane::kCompute}); compute != s.queues.end()) {
    State::Queue& queue = compute->second;
    while (queue.next < queue.ops.size()) {
      const int index = queue.ops[queue.next];
      HERD_CHECK(s.submittable(s.slots[index]),
                 herd::program::describe(s.program, s.program.ops[index]) + " waits for an op that waits for it");
      s.hand_over(index, queue, step);
      s.advance_others(step);
    }
  }
  for (size_t i = 0; i < s.slots.size(); ++i)
    HERD_CHECK(s.slots[i].handed_over == s.runs,
               herd::program::describe(s.program, s.program.ops[i]) + " waits for an op that waits for it");
  s.runs++;
}

void Executor::drain() {
  state_->drain();
  state_->throw_first_failure();
}

const program::Program& Executor::program() const { return state_->program; }
double Executor::waited_us() const { return state_->waited_us; }

std::vector<OpTime> Executor::times() const {
  std::vector<OpTime> times;
  for (size_t i = 0; i < state_->slots.size(); ++i) {
    const State::Slot& slot = state_->slots[i];
    if (!slot.event || !slot.event->done()) continue;
    const double end_us = microseconds(slot.event->ended_at() - state_->origin);
    const bool deferred_release = program::is_deferred_release(state_->program.ops[i]);
    times.push_back({static_cast<int>(i), deferred_release ? end_us : slot.begin_us->load(), end_us});
  }
  return times;
}

}  // namespace herd::runtime
