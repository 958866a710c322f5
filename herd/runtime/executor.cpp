#include "herd/runtime/executor.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <optional>
#include <set>

#include "herd/base/check.h"
#include "herd/base/error.h"
#include "herd/base/thrown_object.h"
#include "herd/bridge/budget_allocator.h"
#include "herd/program/collective_message.h"
#include "herd/program/program_names.h"
#include "herd/runtime/deferred_release_internal.h"
#include "herd/runtime/device_lane.h"

namespace herd::runtime {
namespace {

double microseconds(Clock::duration d) { return std::chrono::duration<double, std::micro>(d).count(); }

// Returns the exception in flight as an Error whose message begins with `where`.
Error error_at(const std::string& where) {
  try {
    throw;
  } catch (const Error& error) {
    return Error(error.code(), where + ": " + error.message());
  } catch (const std::exception& error) {
    return Error(Code::kBug, where + ": " + error.what());
  } catch (...) {
    return Error(Code::kBug, where + ": " + thrown_object());
  }
}

// Returns "step 7: backward of block3 mb1 on rank 2 (pp 1)", with a long list of parameter groups cut.
std::string op_location(const program::Program& program, const program::Op& op, int64_t step) {
  constexpr size_t kMaxLength = 80;
  std::string what = program::describe(program, op);
  if (what.size() > kMaxLength) what = what.substr(0, what.rfind(' ', kMaxLength)) + " ..";
  return "step " + std::to_string(step) + ": " + what + " on " + program::rank_name(program);
}

// Waits for an op's operation, and puts the name of the op before its error.
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
  void hold() override {
    try {
      inner_->hold();
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
    case program::Lane::kUpdate:
      return thread_lane("herd-update");
  }
  throw Error(Code::kBug, "unknown lane");
}

LaneFactory cpu_lanes_of(const program::Program& step) {
  std::set<program::Lane> blocking;
  for (const program::Op& op : step.ops) {
    const bool encoded =
        op.lane == program::Lane::kReduce && !op.writes.empty() && program::keeps_residuals(op.writes[0].codec);
    if (encoded || is_served(op) || gathers_routing(op) || moves_rows_of_experts(op)) blocking.insert(op.lane);
  }
  return [blocking](program::Lane lane) {
    return blocking.contains(lane) ? thread_lane("herd-" + std::string(program::lane_name(lane))) : make_cpu_lane(lane);
  };
}

LaneFactory lanes_of(const program::Program& step, c10::Device device) {
  if (device.is_cpu()) return cpu_lanes_of(step);
  std::set<program::Lane> served;  // their ops read and write the host's memory, so they wait for copies of the device
  for (const program::Op& op : step.ops) {
    if (is_served(op)) served.insert(op.lane);
  }
  return [device, served](program::Lane lane) {
    if (served.contains(lane)) return thread_lane("herd-" + std::string(program::lane_name(lane)));
    switch (lane) {
      case program::Lane::kCompute:
        return device_inline_lane(device);
      case program::Lane::kHost:
      case program::Lane::kIo:
        return make_cpu_lane(lane);
      default:
        return device_thread_lane("herd-" + std::string(program::lane_name(lane)), device);
    }
  };
}

struct Executor::State {
  // Holds one op of the program, and its newest run.
  struct OpState {
    std::vector<program::Dependency> after;
    std::vector<int> deferred_releases;  // ops that wait for this one in the same step
    Binding binding;
    EventPtr event;                                 // event of the newest run
    int64_t last_run = -1;                          // number of the run that `event` belongs to
    std::shared_ptr<std::atomic<double>> begin_us;  // begin of that run, which its lane may still write
  };
  // Holds the ops of one lane, in the order in which they are handed over.
  struct LaneQueue {
    std::unique_ptr<Lane> lane;
    std::vector<int> ops;
    size_t next = 0;
  };

  program::Program program;
  OpListener listener;
  std::mutex own_mutex;
  std::optional<Error> own_error;  // first error of an op of this rank
  std::vector<OpState> op_states;
  std::map<program::Queue, LaneQueue> queues;  // all ops but deferred releases
  std::mutex deferred_releases_mutex;
  std::vector<std::shared_ptr<DeferredRelease>> deferred_releases;  // those that may not be done yet
  Clock::time_point origin = Clock::now();
  int64_t runs = 0;
  double waited_us = 0;
  ShortageHandler shortage{[this] { return run_deferred_releases(); }};

  // Says whether all ops that an op depends on have been handed over.
  bool can_hand_over(const OpState& op_state) const {
    for (const program::Dependency& d : op_state.after) {
      const int64_t needed = runs - d.distance;
      if (needed >= 0 && op_states[d.op].last_run < needed) return false;
    }
    return true;
  }

  // Returns the events that an op waits for, also those of its own lane: lane order says only that they have started.
  std::vector<EventPtr> events_before(const OpState& op_state) const {
    std::vector<EventPtr> events;
    for (const program::Dependency& d : op_state.after) {
      if (d.distance > runs) continue;
      const EventPtr& event = op_states[d.op].event;
      if (event->done())
        event->wait();  // throws what the op threw
      else
        events.push_back(event);
    }
    return events;
  }

  // Runs the deferred releases whose ops have ended, as the stream that computes sees it. Returns whether others are
  // left.
  bool run_deferred_releases() {
    const std::lock_guard lock(deferred_releases_mutex);
    std::erase_if(deferred_releases, [](const auto& deferred_release) { return deferred_release->release(); });
    return !deferred_releases.empty();
  }

  // Hands over the deferred releases that wait for this op, unless one waits for an op that has not been handed over.
  void hand_over_deferred_releases_of(const OpState& waited_for, int64_t step) {
    for (const int index : waited_for.deferred_releases) {
      OpState& op_state = op_states[index];
      if (op_state.last_run == runs || !can_hand_over(op_state)) continue;
      const program::Op& op = program.ops[index];
      Job job = [this, &op_state, &op, step] { return run_binding(op_state, op, step); };
      const auto deferred_release = std::make_shared<DeferredRelease>(events_before(op_state), std::move(job));
      op_state.event = deferred_release;
      op_state.last_run = runs;
      {
        const std::lock_guard lock(deferred_releases_mutex);
        if (!deferred_release->release()) deferred_releases.push_back(deferred_release);
      }
      hand_over_deferred_releases_of(op_state, step);
    }
  }

  EventPtr run_binding(const OpState& op_state, const program::Op& op, int64_t step) {
    try {
      const EventPtr operation = op_state.binding(op, step);
      return operation ? std::make_shared<NamedEvent>(operation, op_location(program, op, step)) : nullptr;
    } catch (...) {
      const Error error = error_at(op_location(program, op, step));
      record_own_error(error);
      throw error;
    }
  }

  void hand_over(int index, LaneQueue& queue, int64_t step) {
    OpState& op_state = op_states[index];
    const program::Op& op = program.ops[index];
    std::vector<EventPtr> before = events_before(op_state);
    const double submitted_us = now_us();
    op_state.begin_us = std::make_shared<std::atomic<double>>(submitted_us);
    Job job = [this, &op_state, &op, step, begin = op_state.begin_us, submitted_us]() -> EventPtr {
      const double began_us = now_us();
      begin->store(began_us);
      if (op.lane == program::Lane::kCompute) waited_us += began_us - submitted_us;
      run_deferred_releases();
      if (listener.began) listener.began(op_location(program, op, step));
      return run_binding(op_state, op, step);
    };
    op_state.event = queue.lane->submit(std::move(before), std::move(job));
    op_state.last_run = runs;
    queue.next++;
    if (op.lane == program::Lane::kCompute && op_state.event->done())
      op_state.event->wait();  // throws what the op threw
    hand_over_deferred_releases_of(op_state, step);
  }

  void record_own_error(const Error& error) {
    {
      std::lock_guard lock(own_mutex);
      if (own_error) return;
      own_error = error;
    }
    listener.failed(error);
  }

  // Throws this rank's own error, else the first one in program order, as far as errors are known.
  void throw_first_failure() {
    {
      std::lock_guard lock(own_mutex);
      if (own_error) throw *own_error;
    }
    for (OpState& op_state : op_states)
      if (op_state.event && op_state.event->done()) op_state.event->wait();
  }

  // Hands over ops of all lanes but compute, as far as their dependencies have been handed over.
  void advance_others(int64_t step) {
    for (bool moved = true; moved;) {
      moved = false;
      for (auto& [name, queue] : queues) {
        if (name.lane == program::Lane::kCompute) continue;
        while (queue.next < queue.ops.size() && can_hand_over(op_states[queue.ops[queue.next]])) {
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
  const LaneFactory make_lane = lanes ? lanes : cpu_lanes_of(state_->program);
  const auto dependencies = program::dependencies(state_->program);
  const auto& ops = state_->program.ops;
  state_->op_states.resize(ops.size());
  for (size_t i = 0; i < ops.size(); ++i) {
    auto binding = bindings.find(ops[i].kind);
    HERD_CHECK(binding != bindings.end(), "no binding for " + herd::program::describe(state_->program, ops[i]));
    state_->op_states[i].after = dependencies[i];
    state_->op_states[i].binding = binding->second;
    if (program::is_deferred_release(ops[i])) {
      for (const program::Dependency& d : dependencies[i]) {
        if (d.distance == 0)
          state_->op_states[static_cast<size_t>(d.op)].deferred_releases.push_back(static_cast<int>(i));
      }
      continue;
    }
    auto& queue = state_->queues[program::queue_of(ops[i])];
    if (!queue.lane) queue.lane = make_lane(ops[i].lane);
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
    State::LaneQueue& queue = compute->second;
    while (queue.next < queue.ops.size()) {
      const int index = queue.ops[queue.next];
      HERD_CHECK(s.can_hand_over(s.op_states[index]),
                 herd::program::describe(s.program, s.program.ops[index]) + " waits for an op that waits for it");
      s.hand_over(index, queue, step);
      s.advance_others(step);
    }
  }
  for (size_t i = 0; i < s.op_states.size(); ++i)
    HERD_CHECK(s.op_states[i].last_run == s.runs,
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
  for (size_t i = 0; i < state_->op_states.size(); ++i) {
    const State::OpState& op_state = state_->op_states[i];
    if (!op_state.event || !op_state.event->done()) continue;
    const double end_us = microseconds(op_state.event->ended_at() - state_->origin);
    const bool deferred_release = program::is_deferred_release(state_->program.ops[i]);
    const auto began_at = op_state.event->began_at();
    const double begin_us = deferred_release ? end_us
                            : began_at       ? microseconds(*began_at - state_->origin)
                                             : op_state.begin_us->load();
    times.push_back({static_cast<int>(i), begin_us, end_us});
  }
  return times;
}

}  // namespace herd::runtime
