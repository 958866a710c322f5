#include "herd/program/simulate.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <set>
#include <tuple>

#include "herd/program/collective_message.h"
#include "herd/program/op_dependencies.h"
#include "herd/program/passes.h"
#include "herd/program/program_names.h"
#include "herd/program/value_memory.h"
#include "herd/sim/engine.h"

namespace herd::program {
namespace {

constexpr int kSteps = 4;  // simulated steps; the first fills the lanes, and the last but one is shown

int64_t bytes_of(const Program& step, const std::vector<Value>& values) {
  int64_t sum = 0;
  for (const Value& value : values) sum += step.values.at(value).bytes;
  return sum;
}

int64_t bytes_of_gradients(const Program& step, const std::vector<Value>& values) {
  int64_t sum = 0;
  for (const Value& value : values) sum += value.kind == ValueKind::kGradient ? step.values.at(value).bytes : 0;
  return sum;
}

// Holds what one op costs the cores of its rank.
struct OpWork {
  PassWork pass;
  bool measured = false;                    // its time was measured on this machine while other ranks ran
  const spec::BlockShape* block = nullptr;  // block whose inner collectives it issues
  bool on_device = true;                    // false: the host link or the host does it, while the device computes
  double latency_us = 0;                    // time in which it uses nothing of the rank
};

// Returns the work of moving bytes over the link between a device and its host.
PassWork host_link_work(double bytes, const Calibration& calibration) {
  return {calibration.op_overhead_us + bytes / calibration.host_link_bytes_per_us, bytes};
}

// Returns the work of copying values from one tier to another.
OpWork copy_work(const Program& step, const Op& op, const Calibration& calibration) {
  const double bytes = static_cast<double>(copied_bytes(step, op));
  if (op.lane == Lane::kIo)
    return {.pass = {}, .on_device = false, .latency_us = bytes / calibration.nvme_bytes_per_us};
  if (calibration.host_link_bytes_per_us > 0) return {.pass = host_link_work(bytes, calibration), .on_device = false};
  OpWork work{.pass = pass_work({}, 2 * bytes, calibration)};
  if (calibration.emulated_link_bytes_per_us > 0)
    work.latency_us = std::max(0.0, bytes / calibration.emulated_link_bytes_per_us - work.pass.work_us);
  return work;
}

// Returns the rate at which the host's memory is read from the device, in bytes a microsecond; 0 = that of its own.
double link_rate(const Calibration& calibration) {
  return calibration.host_link_bytes_per_us > 0 ? calibration.host_link_bytes_per_us
                                                : calibration.emulated_link_bytes_per_us;
}

// Returns what an op costs; nothing if it takes no time of the rank's cores.
std::optional<OpWork> work_of(const Program& step, const Op& op, const spec::ModelTable& model,
                              const Calibration& calibration) {
  const auto pass = [&](OpKind kind) {
    const spec::BlockShape& block = model.blocks.at(static_cast<size_t>(op.block));
    const double share = kind == OpKind::kForward ? 1 : share_of_backward(op, block);
    const spec::PassCost cost = cost_of(op, block);
    const double read_bytes = static_cast<double>(bytes_of_gradients(step, op.reads));  // gradients that it adds to
    const double gradient_bytes = read_bytes + static_cast<double>(bytes_of_gradients(step, op.writes));
    if (const auto measured = calibration.measured_us.find({kind, op.block}); measured != calibration.measured_us.end())
      return OpWork{{share * measured->second + read_bytes / (calibration.core_bytes_per_us * calibration.threads),
                     cost.memory_bytes + gradient_bytes},
                    true,
                    &block};
    return OpWork{pass_work(cost, gradient_bytes, calibration), false, &block};
  };
  const double bytes = static_cast<double>(bytes_of(step, op.reads) + bytes_of(step, op.writes));
  const double elements =
      static_cast<double>(bytes_of_gradients(step, op.reads)) / static_cast<double>(size_of(model.gradient_dtype));
  const bool beside_device = op.lane == Lane::kHost && calibration.host_link_bytes_per_us > 0;
  switch (op.kind) {
    case OpKind::kForward:
    case OpKind::kRecompute:
      return pass(OpKind::kForward);
    case OpKind::kLoss:
    case OpKind::kLogits:
    case OpKind::kBackward:
      return pass(op.kind);
    case OpKind::kBackwardWeight:
      return pass(model.blocks.at(static_cast<size_t>(op.block)).is_loss() ? OpKind::kLoss : OpKind::kBackward);
    case OpKind::kStep: {
      const double measured_us = elements * calibration.update_us_per_element / calibration.threads;
      if (beside_device && measured_us > 0) return OpWork{.pass = {measured_us, 0}, .on_device = false};
      if (beside_device) return OpWork{.pass = host_link_work(bytes, calibration), .on_device = false};
      return measured_us > 0 ? OpWork{{measured_us, bytes}, true} : OpWork{pass_work({}, bytes, calibration)};
    }
    case OpKind::kNorm:
      if (calibration.norm_us_per_element > 0) return OpWork{{elements * calibration.norm_us_per_element, bytes}, true};
      return OpWork{pass_work({}, bytes, calibration)};
    case OpKind::kFetch:
    case OpKind::kEvict:
      return copy_work(step, op, calibration);
    case OpKind::kEncode:
    case OpKind::kDecode:
      if (beside_device) return OpWork{.pass = host_link_work(bytes, calibration), .on_device = false};
      return OpWork{pass_work({}, bytes, calibration)};
    case OpKind::kAdd:
      return OpWork{pass_work({}, bytes, calibration)};
    case OpKind::kLoad:
    case OpKind::kClip:
      return OpWork{pass_work({}, 0, calibration)};
    default:
      return std::nullopt;
  }
}

// Counts the bytes of values that the host and files hold while a step runs: those that stay, and others from their
// first write to their release.
class ValuesBeyondDevice {
 public:
  explicit ValuesBeyondDevice(const Program& step) : step_(step) {
    for (const auto& [value, info] : step.values) bytes_[value.tier] += info.persistent ? info.bytes : 0;
    for (const Op& op : step.ops) {  // what the step before leaves
      for (const Value& value : op.writes) set_live(value, op.kind != OpKind::kRelease);
    }
  }
  void set_live(const Value& value, bool is_live) {
    const ValueInfo& info = step_.values.at(value);
    if (value.tier == Tier::kDevice || info.persistent) return;
    if (is_live ? live_.insert(value).second : live_.erase(value) > 0)
      bytes_[value.tier] += is_live ? info.bytes : -info.bytes;
  }
  int64_t bytes(Tier tier) { return bytes_[tier]; }

 private:
  const Program& step_;
  std::map<Tier, int64_t> bytes_;
  std::set<Value> live_;
};

// Simulates several steps of the programs of one host's ranks, which share its cores and its memory bus.
class Simulator {
 public:
  Simulator(const std::vector<Program>& programs, const spec::ModelTable& model, const Calibration& calibration,
            const CollectiveCost& cost, size_t memory_of)
      : programs_(programs), model_(model), calibration_(calibration), cost_(cost), memory_index_(memory_of) {
    cores_ = engine_.add_resource("cores", calibration.cores);
    bus_ = engine_.add_resource("memory bus", calibration.host_bytes_per_us);
  }

  Simulation run() {
    for (int rank = 0; rank < static_cast<int>(programs_.size()); ++rank) add_rank(rank);
    for (const auto& [key, tasks] : meetings_) {  // the work of each rank begins when all have arrived
      for (const int work : tasks.work)
        after_[work].insert(after_[work].end(), tasks.arrivals.begin(), tasks.arrivals.end());
    }
    for (size_t t = 0; t < tasks_.size(); ++t) {
      tasks_[t].after.insert(tasks_[t].after.end(), after_[static_cast<int>(t)].begin(),
                             after_[static_cast<int>(t)].end());
      engine_.add_task(tasks_[t]);
    }
    times_ = engine_.run().tasks;
    shown_us_ = std::min(step_end(kSteps - 3), first_pass_begin());
    Simulation out;
    out.step_us = (step_end(kSteps - 1) - step_end(0)) / (kSteps - 1);
    out.idle_share = idle_share();
    draw(out);
    out.traffic = tier_traffic(programs_[memory_index_], out.timeline);
    out.expert_traffic = program::expert_traffic(programs_[memory_index_], out.timeline);
    add_memory(out);
    return out;
  }

 private:
  // Holds the tasks of one collective or message: by them its ranks arrive, and then do their work.
  struct Meeting {
    std::vector<int> arrivals, work;
  };

  // Holds the spans that are drawn of one pass in a ring: a task, its row, and the place of the rank whose keys it has.
  struct RingSpan {
    int task, row, owner;
  };
  struct RingPass {
    int first_task = 0;
    std::vector<RingSpan> spans = {};
  };
  static constexpr int kLanes = 16;  // rows of a rank: its lanes, two of rings, and reads
  static constexpr int kRingKeys = 10, kRingGradients = 11, kReads = 12;  // rows behind those of Lane
  static int lane_of(int rank, Lane lane) { return rank * kLanes + static_cast<int>(lane); }

  int add_task(sim::Task task) {
    tasks_.push_back(std::move(task));
    return static_cast<int>(tasks_.size()) - 1;
  }

  void add_rank(int rank) {
    const Program& step = programs_[static_cast<size_t>(rank)];
    const auto waits = dependencies(step);
    const int n = static_cast<int>(step.ops.size());
    std::vector<int> last_task(static_cast<size_t>(n * kSteps));
    std::map<std::string, int> issued;  // number of collectives and messages so far, by key of their meetings
    std::vector<int> read;              // the task that reads the samples of the step, where that takes time
    for (int position = 0; position < n * kSteps; ++position) {
      const Op& op = step.ops[static_cast<size_t>(position % n)];
      if (position % n == 0 && calibration_.read_us_per_sample > 0)
        read = {add_read(rank, position == 0 ? -1 : last_task[static_cast<size_t>(position - n)])};
      sim::Task task{.lane = is_deferred_release(op) ? -1 : lane_of(rank, op.lane), .after = read};
      for (const Dependency& d : waits[static_cast<size_t>(position % n)]) {
        const int earlier = position - position % n - d.distance * n + d.op;
        if (earlier >= 0) task.after.push_back(last_task[static_cast<size_t>(earlier)]);
      }
      if (is_served(op)) {
        add_served(step, op, task, issued);
      } else if (const bool message = op.kind == OpKind::kSend || op.kind == OpKind::kReceive;
                 message || is_collective(op)) {
        Meeting& meeting = meetings_[message ? message_key(step, op, issued) : meeting_key(step, op, issued)];
        meeting.arrivals.push_back(add_task(task));
        task.after.clear();
        const int64_t bytes = message ? bytes_of(step, op.reads) + bytes_of(step, op.writes) : message_bytes(step, op);
        const OpKind kind = is_collective(op) ? traffic_kind(op) : op.kind;
        const bool on_host = moves_on_host(op);
        const CollectivePrice price = on_host ? cost_.price_on_host(kind, bytes, step.mesh, op.axis)
                                              : cost_.price(kind, bytes, step.mesh, op.axis);
        task.latency_us = price.latency_us;
        task.work_us = price.work_us;
        if (price.work_us > 0 && !on_host)  // the host's cores are not simulated beside devices
          task.uses = {{cores_, 1},
                       {bus_, bus_rate(price.host_bytes, price.work_us, calibration_.reduce_us_per_byte > 0)}};
        meeting.work.push_back(add_task(task));
      } else {
        if (auto work = work_of(step, op, model_, calibration_)) {
          if (work->block != nullptr && work->block->in_ring && op.axis != kNoAxis) {
            last_task[static_cast<size_t>(position)] = add_ring(rank, position, op, *work, task, issued);
            continue;
          }
          if (work->block != nullptr) {
            add_direct_reads(op, step, *work);
            add_inner(op, step, *work->block, work->pass, task.latency_us);
          }
          task.latency_us += work->latency_us;
          task.work_us = work->pass.work_us;
          if (task.work_us > 0 && work->on_device)
            task.uses = {{cores_, static_cast<double>(calibration_.threads)},
                         {bus_, bus_rate(work->pass.host_bytes, task.work_us, work->measured)}};
        }
        add_task(task);
      }
      last_task[static_cast<size_t>(position)] = static_cast<int>(tasks_.size()) - 1;
    }
    last_task_.push_back(std::move(last_task));
  }

  // Adds what reads the samples of a step. A loader reads them once the step before has begun, as far ahead as one
  // step.
  int add_read(int rank, int begin_of_step_before) {
    const Program& step = programs_[static_cast<size_t>(rank)];
    const double us = calibration_.read_us_per_sample * static_cast<double>(step.micro_batches * model_.micro_batch);
    sim::Task task{.lane = calibration_.reads_ahead ? rank * kLanes + kReads : lane_of(rank, Lane::kCompute)};
    if (calibration_.reads_ahead && begin_of_step_before >= 0) task.after = {begin_of_step_before};
    if (calibration_.host_link_bytes_per_us > 0) {  // the host reads; its cores are not simulated
      task.latency_us = us;
    } else {
      task.work_us = us;
      task.uses = {{cores_, 1}};
    }
    return add_task(std::move(task));
  }

  // Adds a pass of attention in a ring, and returns the task with which it ends. Each step works on the keys and values
  // of one rank, while those of the next are on their way. In backward the sums of their gradients follow each step;
  // the last message brings home those of this rank.
  int add_ring(int rank, int position, const Op& op, const OpWork& work, sim::Task task,
               std::map<std::string, int>& issued) {
    const Program& step = programs_[static_cast<size_t>(rank)];
    const int P = step.mesh.size(op.axis), place = step.mesh.index(op.axis, step.rank);
    const int number = issued["ring of " + std::to_string(op.axis)]++;
    RingPass& pass = ring_passes_[{rank, position}];
    const auto message = [&](int row, int s, const spec::InnerCollective& inner, int messages, std::vector<int> after) {
      Meeting& meeting = meetings_["ring of " + std::to_string(op.axis) + " of " +
                                   std::to_string(step.mesh.peer(op.axis, step.rank, 0)) + "/" + std::to_string(row) +
                                   "#" + std::to_string(number) + "." + std::to_string(s)];
      meeting.arrivals.push_back(add_task({.after = std::move(after)}));
      const CollectivePrice price =
          cost_.price(OpKind::kSend, inner.bytes * (P - 1) / P / messages, step.mesh, op.axis);
      sim::Task moves{.lane = rank * kLanes + row, .latency_us = price.latency_us, .work_us = 2 * price.work_us};
      if (moves.work_us > 0)
        moves.uses = {{cores_, 1},
                      {bus_, bus_rate(2 * price.host_bytes, moves.work_us, calibration_.reduce_us_per_byte > 0)}};
      meeting.work.push_back(add_task(std::move(moves)));
      pass.spans.push_back({meeting.work.back(), row, (place - s + P) % P});
      return meeting.work.back();
    };
    const std::vector<spec::InnerCollective>& inner = work.block->inner;
    task.latency_us = work.latency_us;
    task.work_us = work.pass.work_us / P;
    if (task.work_us > 0)
      task.uses = {{cores_, static_cast<double>(calibration_.threads)},
                   {bus_, bus_rate(work.pass.host_bytes / P, task.work_us, work.measured)}};
    pass.first_task = add_task({.lane = task.lane, .after = task.after});
    std::vector<int> begun = {pass.first_task}, computed;  // what a message of keys waits for, and a task a step
    int sums = -1;                                         // message of the gradients of the step before
    for (int s = 0; s < P; ++s) {
      const int keys = s > 0 ? message(kRingKeys, s, inner.at(0), P - 1, begun) : -1;
      if (s > 0) begun = {keys, computed.back()}, task.after = {keys};
      computed.push_back(add_task(task));
      pass.spans.push_back({computed.back(), static_cast<int>(op.lane), (place - s + P) % P});
      task.latency_us = 0;
      if (op.kind != OpKind::kBackward) continue;
      std::vector<int> after = {computed.back()};
      if (sums >= 0) after.push_back(sums);
      sums = message(kRingGradients, s, inner.at(1), P, std::move(after));
    }
    return sums < 0 ? computed.back() : add_task({.lane = task.lane, .after = {sums}});
  }

  // Adds a push, which waits for nobody, or a pull, which begins when all ranks have pushed: those of the same step, or
  // with a staleness s those of the step s before, and without a bound nobody is waited for. Where the servers lie
  // among the ranks, the one that moves most sets the pace: a push moves as much as a reduce-scatter of all that it
  // gets, and a pull as much as an all-gather of that. So do those of a part of a group.
  void add_served(const Program& step, const Op& op, sim::Task& task, std::map<std::string, int>& issued) {
    const bool push = op.kind == OpKind::kPush;
    const std::vector<int> members = step.mesh.ranks(op.axis, step.rank);
    const Value& room = push ? op.writes.at(0) : op.reads.at(0);
    const std::string key = "servers of " + std::to_string(op.axis) + " of " + std::to_string(members.front()) + "/" +
                            std::to_string(room.index) + ":" + std::to_string(op.part);
    const int number = issued[key + (push ? " push" : " pull")]++;
    int64_t served = 0;
    for (const int member : members) {
      if (static_cast<size_t>(member) < programs_.size())
        served = std::max(served, programs_[static_cast<size_t>(member)].values.at(room).bytes);
    }
    CollectivePrice price = op.servers > 0 ? cost_.price_served(served_bytes(step, op), op.servers, step.mesh, op.axis)
                                           : cost_.price(push ? OpKind::kReduceScatter : OpKind::kAllGather,
                                                         served_part(step, op, served), step.mesh, op.axis);
    if (!push && op.reads.size() > 1) {  // the update of what this rank serves
      const double bytes = 2.0 * static_cast<double>(served_part(step, op, step.values.at(op.reads[1]).bytes));
      price.work_us += pass_work({}, bytes, calibration_).work_us;
      price.host_bytes += bytes;
    }
    task.latency_us = price.latency_us;
    task.work_us = price.work_us;
    if (price.work_us > 0)
      task.uses = {{cores_, 1}, {bus_, bus_rate(price.host_bytes, price.work_us, calibration_.reduce_us_per_byte > 0)}};
    const int served_task = add_task(task);
    const int round = number - std::max(0, op.staleness);
    if (op.staleness == kNoBound || round < 0) return;
    Meeting& meeting = meetings_[key + "#" + std::to_string(round)];
    (push ? meeting.arrivals : meeting.work).push_back(served_task);
  }

  // Tells whether a collective moves weights or gradients in the hosts' memory, where devices have another.
  bool moves_on_host(const Op& op) const {
    const auto is_there = [](const Value& v) {
      return (v.kind == ValueKind::kWeight || v.kind == ValueKind::kGradient) && v.tier == Tier::kHost;
    };
    return calibration_.host_link_bytes_per_us > 0 && std::ranges::any_of(op.writes, is_there);
  }

  // Returns the bytes per microsecond that a task takes of the memory bus. A time that was measured while the other
  // ranks ran includes the wait for the bus, so the task takes at most the rank's share.
  double bus_rate(double bytes, double us, bool measured) const {
    const double rate = bytes / us;
    return measured ? std::min(rate, calibration_.host_bytes_per_us / static_cast<double>(programs_.size())) : rate;
  }

  // A pass that reads weights on the host lasts as long as these take over the link, at least.
  void add_direct_reads(const Op& op, const Program& step, OpWork& work) const {
    const double rate = link_rate(calibration_);
    const auto bytes = static_cast<double>(direct_bytes(step, op, *work.block));
    if (rate > 0 && bytes > 0) work.latency_us += std::max(0.0, bytes / rate - work.pass.work_us);
  }

  // Adds the collectives that autograd issues within the op; the rank's threads wait for them.
  void add_inner(const Op& op, const Program& step, const spec::BlockShape& block, PassWork& pass,
                 double& latency_us) const {
    for (const spec::InnerCollective& inner : block.inner) {
      const int axis = step.mesh.find(inner.axis);
      const int times = runs_of_inner_collective(inner, op);
      if (axis == kNoAxis || times == 0) continue;
      const OpKind kind = inner.is_all_reduce ? OpKind::kAllReduce : OpKind::kAllGather;
      const CollectivePrice price = cost_.price(kind, inner.bytes, step.mesh, axis);
      latency_us += times * price.latency_us;
      pass.work_us += times * price.work_us;
      pass.host_bytes += times * price.host_bytes;
    }
  }

  // Returns a key of the ranks that meet, with the number of their meetings so far.
  static std::string meeting_key(const Program& step, const Op& op, std::map<std::string, int>& issued) {
    const std::string key = std::to_string(op.axis) + " of " + std::to_string(step.mesh.peer(op.axis, step.rank, 0)) +
                            "/" + std::string(lane_name(op.lane));
    return key + "#" + std::to_string(issued[key]++);
  }
  static std::string message_key(const Program& step, const Op& op, std::map<std::string, int>& issued) {
    const std::string own = std::to_string(step.rank),
                      peer = std::to_string(step.mesh.peer(op.axis, step.rank, op.peer));
    const std::string key = op.kind == OpKind::kSend ? own + ">" + peer : peer + ">" + own;
    return key + "#" + std::to_string(issued[key]++);
  }

  double step_end(int iteration) const {
    double end = 0;
    for (size_t r = 0; r < programs_.size(); ++r) {
      const size_t n = programs_[r].ops.size();
      for (size_t i = 0; i < n; ++i)
        end = std::max(end, times_[static_cast<size_t>(last_task_[r][static_cast<size_t>(iteration) * n + i])].end_us);
    }
    return end;
  }

  sim::TaskTime time_of(size_t rank, size_t op, size_t step = kSteps - 2) const {
    const size_t position = step * programs_[rank].ops.size() + op;
    sim::TaskTime time = times_[static_cast<size_t>(last_task_[rank][position])];
    const auto ring = ring_passes_.find({static_cast<int>(rank), static_cast<int>(position)});
    if (ring != ring_passes_.end()) time.start_us = times_[static_cast<size_t>(ring->second.first_task)].start_us;
    return time;
  }

  // Returns the time of an op as it is drawn. What the shown step has done before it begins, such as a copy ahead, is
  // drawn where the next step does it.
  sim::TaskTime drawn_time_of(size_t rank, size_t op) const {
    const sim::TaskTime time = time_of(rank, op);
    return time.end_us <= shown_us_ ? time_of(rank, op, kSteps - 1) : time;
  }

  // Returns when the first pass of the shown step begins, which may be before the step before it has ended.
  double first_pass_begin() const {
    double begin = std::numeric_limits<double>::infinity();
    for (size_t r = 0; r < programs_.size(); ++r) {
      for (size_t i = 0; i < programs_[r].ops.size(); ++i) {
        if (is_pass(programs_[r].ops[i])) begin = std::min(begin, time_of(r, i).start_us);
      }
    }
    return begin;
  }

  // Returns the share of the time between the first and the last pass of the shown step in which a rank runs none.
  double idle_share() const {
    double begin_us = std::numeric_limits<double>::infinity(), end_us = 0, busy_us = 0;
    for (size_t r = 0; r < programs_.size(); ++r) {
      for (size_t i = 0; i < programs_[r].ops.size(); ++i) {
        if (!is_pass(programs_[r].ops[i])) continue;
        const sim::TaskTime time = time_of(r, i);
        begin_us = std::min(begin_us, time.start_us);
        end_us = std::max(end_us, time.end_us);
        busy_us += time.end_us - time.start_us;
      }
    }
    const double all_us = static_cast<double>(programs_.size()) * (end_us - begin_us);
    return all_us > 0 ? std::max(0.0, 1 - busy_us / all_us) : 0;
  }

  void draw(Simulation& out) const {
    out.timeline.title = "Predicted training step";
    std::map<std::pair<size_t, int>, int> rows;
    for (size_t r = 0; r < programs_.size(); ++r) {
      for (const Op& op : programs_[r].ops) rows.try_emplace({r, static_cast<int>(op.lane)}, 0);
    }
    for (const auto& [position, pass] : ring_passes_) {
      for (const RingSpan& span : pass.spans) rows.try_emplace({static_cast<size_t>(position.first), span.row}, 0);
    }
    for (auto& [key, row] : rows) {
      row = static_cast<int>(out.timeline.rows.size());
      const std::string name = key.second == kRingKeys        ? "ring of keys"
                               : key.second == kRingGradients ? "ring of gradients"
                                                              : std::string(lane_name(static_cast<Lane>(key.second)));
      out.timeline.rows.push_back({"rank " + std::to_string(programs_[key.first].rank), name});
    }
    const auto add_span = [&](int row, const std::string& name, std::string_view category, const sim::TaskTime& time) {
      if (time.end_us <= time.start_us) return;
      out.timeline.spans.push_back({row, name, std::string(category), std::max(0.0, time.start_us - shown_us_),
                                    std::max(0.0, time.end_us - shown_us_)});
    };
    for (size_t r = 0; r < programs_.size(); ++r) {
      const size_t n = programs_[r].ops.size();
      for (size_t i = 0; i < n; ++i) {
        const Op& op = programs_[r].ops[i];
        if (op.kind == OpKind::kRelease) continue;
        const std::string name = std::string(op_name(op.kind)) + " " + subject(programs_[r], op);
        const auto ring = ring_passes_.find({static_cast<int>(r), static_cast<int>((kSteps - 2) * n + i)});
        if (ring == ring_passes_.end()) {
          add_span(rows.at({r, static_cast<int>(op.lane)}), name, op_name(op.kind), drawn_time_of(r, i));
          continue;
        }
        for (const RingSpan& span : ring->second.spans) {
          const std::string owner = " of " + axis_name(programs_[r].mesh, op.axis) + " " + std::to_string(span.owner);
          const bool keys = span.row == kRingKeys, sums = span.row == kRingGradients;
          add_span(rows.at({r, span.row}),
                   (keys || sums ? "" : name + ", ") + (sums ? "gradients of keys" : "keys") + owner,
                   keys   ? "receive"
                   : sums ? "send"
                          : op_name(op.kind),
                   times_[static_cast<size_t>(span.task)]);
        }
      }
    }
  }

  // Adds the device memory of one rank over the shown step: what is held throughout, what ops take when they start, and
  // what releases give back.
  void add_memory(Simulation& out) const {
    const Program& step = programs_[memory_index_];
    const std::set<int> received_slots = slots_of_received(step);
    Program no_ops = step;
    no_ops.ops.clear();
    for (auto& [value, info] : no_ops.values) {
      if (received_slots.contains(info.slot)) info.slot = -1;
    }
    const Peak held_throughout = in_order_peak(no_ops, Tier::kDevice);
    std::map<ValueKind, int64_t> by_kind = held_throughout.by_kind;
    int64_t scratch = held_throughout.pool_bytes;
    // Time, event and op. Events: 1 an op starts, 0 a release starts, -1 an op with scratch ends.
    std::vector<std::tuple<double, int, size_t>> events;
    for (size_t i = 0; i < step.ops.size(); ++i) {
      const sim::TaskTime time = time_of(memory_index_, i);
      events.emplace_back(time.start_us, step.ops[i].kind == OpKind::kRelease ? 0 : 1, i);
      if (step.scratch.contains(scratch_key(step.ops[i]))) events.emplace_back(time.end_us, -1, i);
    }
    std::stable_sort(events.begin(), events.end(),
                     [](const auto& a, const auto& b) { return std::get<0>(a) < std::get<0>(b); });
    ValueMemory memory(step);
    ValuesBeyondDevice beyond(step);
    for (const auto& [at, event, i] : events) {
      const Op& op = step.ops[i];
      const auto scratch_of_op = step.scratch.find(scratch_key(op));
      if (event == -1) {
        scratch -= scratch_of_op->second;
        continue;
      }
      if (scratch_of_op != step.scratch.end()) scratch += scratch_of_op->second;
      for (const Value& value : op.writes) {
        const ValueInfo& info = step.values.at(value);
        if (event >= 0) beyond.set_live(value, event == 1);
        const bool is_in_slot = info.slot >= 0 && !received_slots.contains(info.slot);
        if (info.persistent || is_in_slot || value.tier != Tier::kDevice) continue;
        if (event == 1)
          for (const auto& [owner, bytes] : memory.take(value)) by_kind[owner.kind] += bytes;
        if (event == 0)
          for (const auto& [owner, bytes] : memory.give_back(value)) by_kind[owner.kind] -= bytes;
      }
      int64_t total = scratch;
      for (const auto& [kind, bytes] : by_kind) total += bytes;
      if (event == 1 && op.lane == Lane::kCompute) {
        add_op_memory(i, by_use(by_kind, total), out);
        out.memory.back().host_bytes = beyond.bytes(Tier::kHost);
        out.memory.back().file_bytes = beyond.bytes(Tier::kNvme);
      }
      if (total > out.device_peak.bytes)
        out.device_peak = {total, static_cast<int>(i), by_kind, held_throughout.pool_bytes};
    }
  }

  void add_op_memory(size_t index, const BytesByUse& bytes, Simulation& out) const {
    const Op& op = programs_[memory_index_].ops[index];
    const sim::TaskTime time = time_of(memory_index_, index);
    out.memory.push_back({static_cast<int>(index), describe(programs_[memory_index_], op),
                          std::max(0.0, time.start_us - shown_us_), std::max(0.0, time.end_us - shown_us_), bytes});
  }

  const std::vector<Program>& programs_;
  const spec::ModelTable& model_;
  const Calibration& calibration_;
  const CollectiveCost& cost_;
  const size_t memory_index_;  // index of the program whose memory is shown
  sim::Engine engine_;
  int cores_ = 0, bus_ = 0;
  std::vector<sim::Task> tasks_;
  std::map<int, std::vector<int>> after_;  // tasks that a task waits for besides those of its program
  std::map<std::string, Meeting> meetings_;
  std::map<std::pair<int, int>, RingPass> ring_passes_;  // by index of the program and position of the op
  std::vector<std::vector<int>> last_task_;              // by program and op: the task with which the op ends
  std::vector<sim::TaskTime> times_;
  double shown_us_ = 0;  // when the shown step begins
};

}  // namespace

PassWork pass_work(const spec::PassCost& cost, double more_bytes, const Calibration& calibration) {
  const double flops_us =
      cost.matmul_flops / calibration.matmul_flops_per_us + cost.attention_flops / calibration.attention_flops_per_us;
  const double bytes = cost.memory_bytes + more_bytes;
  return {calibration.op_overhead_us + (flops_us + bytes / calibration.core_bytes_per_us) / calibration.threads, bytes};
}

CollectivePrice SharedMemoryCost::price(OpKind kind, int64_t bytes, const Mesh& mesh, int axis) const {
  if (mesh.size(axis) < 2) return {};
  if (kind == OpKind::kSend || kind == OpKind::kReceive) {  // copied into the ring or out of it
    const double traffic = 2.0 * static_cast<double>(bytes);
    return {.latency_us = 2, .work_us = traffic / calibration_.core_bytes_per_us, .host_bytes = traffic};
  }
  const double traffic = (kind == OpKind::kAllReduce ? 2.0 : 1.0) * static_cast<double>(bytes);
  const double measured = traffic / 2 * calibration_.reduce_us_per_byte;
  return {.latency_us = 2,
          .work_us = measured > 0 ? measured : traffic / calibration_.core_bytes_per_us,
          .host_bytes = traffic};
}

CollectivePrice SharedMemoryCost::price_on_host(OpKind kind, int64_t bytes, const Mesh& mesh, int axis) const {
  Calibration host = calibration_;
  host.core_bytes_per_us = calibration_.host_link_bytes_per_us;
  host.reduce_us_per_byte = 0;  // measured among devices
  return SharedMemoryCost(host).price(kind, bytes, mesh, axis);
}

Simulation simulate(const std::vector<Program>& programs, const spec::ModelTable& model, const Calibration& calibration,
                    const CollectiveCost& cost, size_t memory_of) {
  return Simulator(programs, model, calibration, cost, memory_of).run();
}

}  // namespace herd::program
