#include "herd/program/simulate.h"

#include <algorithm>
#include <optional>
#include <set>
#include <tuple>

#include "herd/program/collective_message.h"
#include "herd/program/op_dependencies.h"
#include "herd/program/passes.h"
#include "herd/program/program_names.h"
#include "herd/sim/engine.h"

namespace herd::program {
namespace {

constexpr int kSteps = 4;  // the first fills the lanes, the one before the last is shown

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

struct Work {
  PassWork pass;
  bool measured = false;                    // on this machine, beside the other ranks
  const spec::BlockShape* block = nullptr;  // whose inner collectives it issues
};

// Empty for what takes no time of the rank's cores.
std::optional<Work> work_of(const Program& step, const Op& op, const spec::ModelTable& model,
                            const Calibration& calibration) {
  const auto pass = [&](OpKind kind) {
    const spec::BlockShape& block = model.blocks.at(static_cast<size_t>(op.block));
    const double share = kind == OpKind::kForward ? 1 : share_of_backward(op, block);
    const spec::PassCost cost = cost_of(op, block);
    const double so_far = static_cast<double>(bytes_of_gradients(step, op.reads));  // what it adds to
    const double more = so_far + static_cast<double>(bytes_of_gradients(step, op.writes));
    if (const auto measured = calibration.measured_us.find({kind, op.block}); measured != calibration.measured_us.end())
      return Work{{share * measured->second + so_far / (calibration.core_bytes_per_us * calibration.threads),
                   cost.memory_bytes + more},
                  true,
                  &block};
    return Work{pass_work(cost, more, calibration), false, &block};
  };
  const double bytes = static_cast<double>(bytes_of(step, op.reads) + bytes_of(step, op.writes));
  const double elements =
      static_cast<double>(bytes_of_gradients(step, op.reads)) / static_cast<double>(size_of(model.gradient_dtype));
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
    case OpKind::kStep:
      if (calibration.update_us_per_element > 0)
        return Work{{elements * calibration.update_us_per_element / calibration.threads, bytes}, true};
      return Work{pass_work({}, bytes, calibration)};
    case OpKind::kNorm:
      if (calibration.norm_us_per_element > 0) return Work{{elements * calibration.norm_us_per_element, bytes}, true};
      return Work{pass_work({}, bytes, calibration)};
    case OpKind::kFetch:
    case OpKind::kEvict:
    case OpKind::kEncode:
    case OpKind::kDecode:
      return Work{pass_work({}, bytes, calibration)};
    case OpKind::kLoad:
    case OpKind::kClip:
      return Work{pass_work({}, 0, calibration)};
    default:
      return std::nullopt;
  }
}

class Simulator {
 public:
  Simulator(const std::vector<Program>& programs, const spec::ModelTable& model, const Calibration& calibration,
            const CollectiveCost& cost, size_t memory_of)
      : programs_(programs), model_(model), calibration_(calibration), cost_(cost), memory_of_(memory_of) {
    cores_ = engine_.add_resource("cores", calibration.cores);
    bus_ = engine_.add_resource("memory bus", calibration.host_bytes_per_us);
  }

  Simulation run() {
    for (int rank = 0; rank < static_cast<int>(programs_.size()); ++rank) add_rank(rank);
    for (const auto& [meeting, tasks] : meetings_) {  // each rank's work begins when the last one has come
      for (const int begun : tasks.work)
        after_[begun].insert(after_[begun].end(), tasks.arrivals.begin(), tasks.arrivals.end());
    }
    for (size_t t = 0; t < tasks_.size(); ++t) {
      tasks_[t].after.insert(tasks_[t].after.end(), after_[static_cast<int>(t)].begin(),
                             after_[static_cast<int>(t)].end());
      engine_.add_task(tasks_[t]);
    }
    times_ = engine_.run().tasks;
    shown_us_ = step_end(kSteps - 3);
    Simulation out;
    out.step_us = (step_end(kSteps - 1) - step_end(0)) / (kSteps - 1);
    draw(out);
    remember(out);
    return out;
  }

 private:
  struct Meeting {
    std::vector<int> arrivals, work;
  };

  int add_task(sim::Task task) {
    tasks_.push_back(std::move(task));
    return static_cast<int>(tasks_.size()) - 1;
  }

  void add_rank(int rank) {
    const Program& step = programs_[static_cast<size_t>(rank)];
    const auto waits = dependencies(step);
    const int n = static_cast<int>(step.ops.size());
    std::vector<int> done(static_cast<size_t>(n * kSteps));
    std::map<std::string, int> issued;  // collectives and messages so far, by whom they meet
    for (int position = 0; position < n * kSteps; ++position) {
      const Op& op = step.ops[static_cast<size_t>(position % n)];
      sim::Task task{.lane = is_deferred_release(op) ? -1 : rank * 16 + static_cast<int>(op.lane)};
      for (const Dependency& d : waits[static_cast<size_t>(position % n)]) {
        const int before = position - position % n - d.distance * n + d.op;
        if (before >= 0) task.after.push_back(done[static_cast<size_t>(before)]);
      }
      if (const bool message = op.kind == OpKind::kSend || op.kind == OpKind::kReceive; message || is_collective(op)) {
        Meeting& meeting = meetings_[message ? message_of(step, op, issued) : meeting_of(step, op, issued)];
        meeting.arrivals.push_back(add_task(task));
        task.after.clear();
        const int64_t bytes = message ? bytes_of(step, op.reads) + bytes_of(step, op.writes) : message_bytes(step, op);
        const CollectivePrice price = cost_.price(op.kind, bytes, step.mesh, op.axis);
        task.latency_us = price.latency_us;
        task.work_us = price.work_us;
        if (price.work_us > 0)
          task.uses = {{cores_, 1},
                       {bus_, bus_rate(price.host_bytes, price.work_us, calibration_.reduce_us_per_byte > 0)}};
        meeting.work.push_back(add_task(task));
      } else {
        if (auto work = work_of(step, op, model_, calibration_)) {
          if (work->block != nullptr) add_inner(op, step, *work->block, work->pass, task.latency_us);
          task.work_us = work->pass.work_us;
          if (task.work_us > 0)
            task.uses = {{cores_, static_cast<double>(calibration_.threads)},
                         {bus_, bus_rate(work->pass.host_bytes, task.work_us, work->measured)}};
        }
        add_task(task);
      }
      done[static_cast<size_t>(position)] = static_cast<int>(tasks_.size()) - 1;
    }
    done_.push_back(std::move(done));
  }

  // Bytes of the memory bus per microsecond. What was measured beside all other ranks has had its share.
  double bus_rate(double bytes, double us, bool measured) const {
    const double rate = bytes / us;
    return measured ? std::min(rate, calibration_.host_bytes_per_us / static_cast<double>(programs_.size())) : rate;
  }

  // Collectives that autograd issues within the op: the rank's threads wait for them.
  void add_inner(const Op& op, const Program& step, const spec::BlockShape& block, PassWork& pass,
                 double& latency_us) const {
    for (const spec::InnerCollective& one : block.inner) {
      const int axis = step.mesh.find(one.axis);
      const int times = runs_of_inner_collective(one, op);
      if (axis == kNoAxis || times == 0) continue;
      const OpKind kind = one.is_all_reduce ? OpKind::kAllReduce : OpKind::kAllGather;
      const CollectivePrice price = cost_.price(kind, one.bytes, step.mesh, axis);
      latency_us += times * price.latency_us;
      pass.work_us += times * price.work_us;
      pass.host_bytes += times * price.host_bytes;
    }
  }

  // Who meets, and how often they have met before.
  static std::string meeting_of(const Program& step, const Op& op, std::map<std::string, int>& issued) {
    const std::string key = std::to_string(op.axis) + " of " + std::to_string(step.mesh.peer(op.axis, step.rank, 0)) +
                            "/" + std::string(lane_name(op.lane));
    return key + "#" + std::to_string(issued[key]++);
  }
  static std::string message_of(const Program& step, const Op& op, std::map<std::string, int>& issued) {
    const std::string here = std::to_string(step.rank),
                      there = std::to_string(step.mesh.peer(op.axis, step.rank, op.peer));
    const std::string key = op.kind == OpKind::kSend ? here + ">" + there : there + ">" + here;
    return key + "#" + std::to_string(issued[key]++);
  }

  double step_end(int iteration) const {
    double end = 0;
    for (size_t r = 0; r < programs_.size(); ++r) {
      const size_t n = programs_[r].ops.size();
      for (size_t i = 0; i < n; ++i)
        end = std::max(end, times_[static_cast<size_t>(done_[r][static_cast<size_t>(iteration) * n + i])].end_us);
    }
    return end;
  }

  sim::TaskTime time_of(size_t rank, size_t op) const {
    const size_t n = programs_[rank].ops.size();
    return times_[static_cast<size_t>(done_[rank][(kSteps - 2) * n + op])];
  }

  void draw(Simulation& out) const {
    out.timeline.title = "Predicted training step";
    std::map<std::pair<size_t, Lane>, int> rows;
    for (size_t r = 0; r < programs_.size(); ++r) {
      for (const Op& op : programs_[r].ops) rows.try_emplace({r, op.lane}, 0);
    }
    for (auto& [key, row] : rows) {
      row = static_cast<int>(out.timeline.rows.size());
      out.timeline.rows.push_back(
          {"rank " + std::to_string(programs_[key.first].rank), std::string(lane_name(key.second))});
    }
    for (size_t r = 0; r < programs_.size(); ++r) {
      for (size_t i = 0; i < programs_[r].ops.size(); ++i) {
        const Op& op = programs_[r].ops[i];
        const sim::TaskTime time = time_of(r, i);
        if (op.kind == OpKind::kRelease || time.end_us <= time.start_us) continue;
        const std::string name(op_name(op.kind));
        out.timeline.spans.push_back({rows.at({r, op.lane}), name + " " + subject(programs_[r], op), name,
                                      std::max(0.0, time.start_us - shown_us_),
                                      std::max(0.0, time.end_us - shown_us_)});
      }
    }
  }

  // One rank's own device memory: standing values and slots, what ops take as they start and give back.
  void remember(Simulation& out) const {
    const Program& step = programs_[memory_of_];
    Program nothing_runs = step;
    nothing_runs.ops.clear();
    const Peak standing = in_order_peak(nothing_runs, Tier::kDevice);
    std::map<ValueKind, int64_t> by_kind = standing.by_kind;
    int64_t scratch = standing.pool_bytes;
    std::vector<std::tuple<double, int, size_t>> events;  // time; 0 = an op ends, 1 = it starts; op
    for (size_t i = 0; i < step.ops.size(); ++i) {
      const sim::TaskTime time = time_of(memory_of_, i);
      events.emplace_back(time.start_us, step.ops[i].kind == OpKind::kRelease ? 0 : 1, i);
      if (step.scratch.contains({step.ops[i].kind, step.ops[i].block})) events.emplace_back(time.end_us, -1, i);
    }
    std::stable_sort(events.begin(), events.end(),
                     [](const auto& a, const auto& b) { return std::get<0>(a) < std::get<0>(b); });
    std::set<Value> live;
    for (const auto& [at, what, i] : events) {
      const Op& op = step.ops[i];
      const auto taken = step.scratch.find({op.kind, op.block});
      if (what == -1) {
        scratch -= taken->second;
        continue;
      }
      if (taken != step.scratch.end()) scratch += taken->second;
      for (const Value& value : op.writes) {
        const ValueInfo& info = step.values.at(value);
        if (info.persistent || info.slot >= 0 || value.tier != Tier::kDevice) continue;
        if (what == 1 && live.insert(value).second) by_kind[value.kind] += info.bytes;
        if (what == 0 && live.erase(value) > 0) by_kind[value.kind] -= info.bytes;
      }
      int64_t total = scratch;
      for (const auto& [kind, bytes] : by_kind) total += bytes;
      if (what == 1 && op.lane == Lane::kCompute) note(i, by_use(by_kind, total), out);
      if (total > out.device_peak.bytes) out.device_peak = {total, static_cast<int>(i), by_kind, standing.pool_bytes};
    }
  }

  void note(size_t index, const BytesByUse& bytes, Simulation& out) const {
    const Op& op = programs_[memory_of_].ops[index];
    const sim::TaskTime time = time_of(memory_of_, index);
    out.memory.push_back({static_cast<int>(index), describe(programs_[memory_of_], op),
                          std::max(0.0, time.start_us - shown_us_), std::max(0.0, time.end_us - shown_us_), bytes});
  }

  const std::vector<Program>& programs_;
  const spec::ModelTable& model_;
  const Calibration& calibration_;
  const CollectiveCost& cost_;
  const size_t memory_of_;  // memory is shown
  sim::Engine engine_;
  int cores_ = 0, bus_ = 0;
  std::vector<sim::Task> tasks_;
  std::map<int, std::vector<int>> after_;
  std::map<std::string, Meeting> meetings_;
  std::vector<std::vector<int>> done_;
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
  if (kind == OpKind::kSend || kind == OpKind::kReceive) {  // into the ring, or out of it
    const double traffic = 2.0 * static_cast<double>(bytes);
    return {.latency_us = 2, .work_us = traffic / calibration_.core_bytes_per_us, .host_bytes = traffic};
  }
  const double traffic = (kind == OpKind::kAllReduce ? 2.0 : 1.0) * static_cast<double>(bytes);
  const double measured = traffic / 2 * calibration_.reduce_us_per_byte;
  return {.latency_us = 2,
          .work_us = measured > 0 ? measured : traffic / calibration_.core_bytes_per_us,
          .host_bytes = traffic};
}

Simulation simulate(const std::vector<Program>& programs, const spec::ModelTable& model, const Calibration& calibration,
                    const CollectiveCost& cost, size_t memory_of) {
  return Simulator(programs, model, calibration, cost, memory_of).run();
}

}  // namespace herd::program
