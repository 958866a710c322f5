#include "herd/train/calibrate.h"

#include <ATen/Parallel.h>
#include <ATen/ops/add.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>

#include <algorithm>
#include <chrono>
#include <functional>

#include "herd/base/device_driver.h"
#include "herd/base/elapsed.h"
#include "herd/base/midmean.h"
#include "herd/bridge/device_stream.h"
#include "herd/bridge/host_memory.h"
#include "herd/bridge/tensor_buffer.h"
#include "herd/launch/cores.h"
#include "herd/optim/clip.h"
#include "herd/optim/mixed_step.h"
#include "herd/strategies/replicas.h"
#include "herd/train/mean_over_ranks.h"

namespace herd::train {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kRateSeconds = 0.1;  // time to measure one rate: its fastest call counts
constexpr double kRoundsSeconds = 6;  // time of all rounds together, about
constexpr int kMinRounds = 4, kMaxRounds = 12;
constexpr double kDeviceWarmSeconds = 2;  // of work after which a GPU has the clock that it keeps
constexpr int kMaxDeviceRounds = 40;
constexpr int64_t kStepsPerRound = 20;      // a long run may have more rounds: one for each so many of its steps
constexpr int64_t kMaxElements = 16 << 20;  // elements that a measurement works on, about: more than caches hold
constexpr int64_t kSmallSide = 128;         // side of square matrices, if gradient memory has no room for the layer's
constexpr double kFillValue = 1e-3;         // fills memory that is measured, since processors move zeros faster

// Returns the us of the fastest call, which is what the machine can do, after one call that warms up.
double best_us(c10::Device device, const std::function<void()>& enqueue) {
  const auto work = [&] {
    enqueue();
    synchronize(device);
  };
  work();
  double best = 1e300;
  for (const auto start = Clock::now(); us_since(start) < kRateSeconds * 1e6;) {
    const auto begin = Clock::now();
    work();
    best = std::min(best, us_since(begin));
  }
  return best;
}

int64_t min_over_ranks(int64_t number, Communicator& comm) {
  std::vector<int64_t> minimum = {number};
  if (comm.size() > 1) comm.all_reduce(minimum, {.op = ReduceOp::kMin, .name = "calibration"});
  return minimum[0];
}

// Measures this machine together with the other ranks. Its figures are means over the ranks.
class Measurements {
 public:
  Measurements(const spec::RunFile& run, const spec::Layout& layout, runtime::FlatParameters& parameters,
               const optim::Optimizer& optimizer, Communicator& comm, int ranks_here)
      : run_(run),
        layout_(layout),
        parameters_(parameters),
        optimizer_(optimizer),
        comm_(comm),
        ranks_here_(ranks_here),
        common_elements_(min_over_ranks(elements(), comm)) {}

  program::Calibration run(BlockTimer& passes) {
    const bool on_cpu = parameters_.device().is_cpu();  // the ranks of a host share its cores, or its devices
    const int threads = on_cpu ? at::get_num_threads() : 1;
    program::Calibration machine;
    machine.cores = on_cpu ? launch::usable_cores() : device_cores();
    machine.threads = threads;
    parameters_.gradients().fill_(kFillValue);
    const double matmul = mean_over_ranks(matmul_flops_per_us(), comm_),
                 stream = mean_over_ranks(stream_bytes_per_us(), comm_);
    measure_rounds(passes);

    machine.matmul_flops_per_us = matmul / threads;
    machine.core_bytes_per_us = stream / threads;
    machine.host_bytes_per_us = stream * ranks_here_;
    // Where ranks outnumber cores, they have taken turns in these measurements. The simulation adds turns by itself, so
    // it gets the times of ranks with cores of their own.
    const double core_share = std::min(1.0, static_cast<double>(machine.cores) / (threads * ranks_here_));
    const auto figures = passes.block_times_us();
    const double slowest = passes.slowest_rank_ratio(figures);
    for (const auto& [op, us] : figures) machine.measured_us[op] = us * core_share * slowest;
    machine.update_us_per_element = mean_of_measured(midmean(update_), comm_) * core_share;  // a rank may own nothing
    machine.norm_us_per_element = mean_over_ranks(midmean(norm_), comm_) * core_share;
    machine.reduce_us_per_byte = comm_.size() > 1 ? mean_over_ranks(midmean(reduce_), comm_) * core_share : 0;
    if (run_.chain) machine.read_us_per_sample = mean_over_ranks(passes.read_us_per_sample(), comm_) * core_share;
    if (on_cpu)
      machine.emulated_link_bytes_per_us = static_cast<double>(run_.memory.link) / 1e6;
    else
      machine.host_link_bytes_per_us = mean_over_ranks(host_link_bytes_per_us(), comm_);
    for (int g = 0; g < parameters_.num_groups(); ++g) {
      if (!parameters_.holds(g) || parameters_.group(g).frozen()) continue;
      for (int k = 0; k < parameters_.num_states(); ++k) parameters_.update_state(k, g, first_piece(g)).zero_();
    }
    parameters_.gradients().zero_();
    return machine;
  }

 private:
  int64_t elements() const { return parameters_.gradients().numel(); }
  // A device computes and copies at once, where ranks do not share it.
  int device_cores() const {
    const int devices = device_driver(to_device(parameters_.device()).kind).count();
    return devices >= ranks_here_ ? 2 * ranks_here_ : devices;
  }
  // Returns the piece of the group whose update is measured; 0 where it is updated as one.
  int first_piece(int group) const { return std::min(1, parameters_.num_pieces(group)); }
  void meet_ranks() { comm_.barrier({.name = "calibration"}); }

  // Measures everything that a step has, in rounds. So each figure covers all the seconds that this takes: the speed of
  // a shared machine changes within one. The first round does not count; it wakes pages, libraries and thread pools.
  void measure_rounds(BlockTimer& passes) {
    measure_round(passes);
    for (double us = 0; !parameters_.device().is_cpu() && us < kDeviceWarmSeconds * 1e6;) us += measure_round(passes);
    passes.discard_warm_up();
    for (auto* times : {&update_, &norm_, &reduce_}) times->clear();
    const double seconds = measure_round(passes) / 1e6;
    const int most = parameters_.device().is_cpu() ? kMaxRounds : kMaxDeviceRounds;
    const int max_rounds = static_cast<int>(std::max<int64_t>(most, run_.train.steps / kStepsPerRound));
    const int num_rounds = std::clamp(static_cast<int>(kRoundsSeconds / seconds), kMinRounds, max_rounds);
    for (int i = 1; i < num_rounds; ++i) measure_round(passes);
  }
  double measure_round(BlockTimer& passes) {
    const auto begin = Clock::now();
    passes.run();
    update_.push_back(update_us_per_element());
    norm_.push_back(norm_us_per_element());
    if (comm_.size() > 1) reduce_.push_back(reduce_us_per_byte());
    return mean_over_ranks(us_since(begin), comm_);
  }
  double time_us(const std::function<void()>& work) {
    synchronize(parameters_.device());
    meet_ranks();
    const auto begin = Clock::now();
    work();
    synchronize(parameters_.device());
    return us_since(begin);
  }

  // Returns the rate of a matrix product of the feed-forward layer's shape, all three matrices in gradient memory.
  // Where that is short, it takes fewer rows. Where gradients are next to nothing, it takes small squares in memory of
  // their own, less than a step needs for activations.
  double matmul_flops_per_us() {
    int64_t D = run_.model.width, F = run_.model.ffn, rows = layout_.micro_batch * run_.model.context;
    at::Tensor memory = parameters_.gradients().view(parameters_.weights().scalar_type());
    const int64_t fit = (memory.numel() - D * F) / (D + F);
    rows = std::min(rows, fit);
    if (fit < 1) {
      rows = F = D = std::min(D, kSmallSide);
      memory = at::full({3 * D * D}, kFillValue, memory.options());
    }
    const auto part = [&](int64_t at, int64_t height, int64_t width) {
      return memory.narrow(0, at, height * width).view({height, width});
    };
    const at::Tensor w = part(0, D, F), x = part(D * F, rows, D);
    at::Tensor y = part(D * F + rows * D, rows, F);
    meet_ranks();
    return 2.0 * static_cast<double>(rows * D * F) / best_us(parameters_.device(), [&] { at::mm_out(y, x, w); });
  }

  // Returns the rate of memory: adds one region to another, which reads both and writes one.
  double stream_bytes_per_us() {
    const int64_t count = std::min(kMaxElements, elements() / 2);
    at::Tensor to = parameters_.gradients().narrow(0, 0, count);
    const at::Tensor from = parameters_.gradients().narrow(0, count, count);
    meet_ranks();
    return 3.0 * static_cast<double>(to.nbytes()) /
           best_us(parameters_.device(), [&] { at::add_out(to, to, from, 0); });
  }

  // Returns the rate of copies from the device to page-locked memory, while all ranks copy.
  double host_link_bytes_per_us() {
    const at::Tensor from = parameters_.gradients().narrow(0, 0, std::min(kMaxElements, elements()));
    const at::Tensor to = host_zeros(from.numel(), from.scalar_type(), from.device());
    meet_ranks();
    return static_cast<double>(to.nbytes()) / best_us(from.device(), [&] { to.copy_(from, /*non_blocking=*/true); });
  }

  // Returns the time of an update on one thread. It works on the parameters themselves, so that it takes no memory. At
  // a rate of 0 an update changes no bit of a weight where gradients and states are finite. What these hold is void
  // until the first step.
  double update_us_per_element() {
    if (parameters_.num_states() != optimizer_.num_states()) return 0;  // servers keep the states, and update
    std::vector<int> groups;
    int64_t count = 0;
    for (int g = 0; g < parameters_.num_groups() && count < kMaxElements; ++g) {
      if (!parameters_.holds(g) || parameters_.group(g).frozen() || parameters_.part(g).size() == 0) continue;
      parameters_.update_gradient(g, first_piece(g)).fill_(kFillValue);
      groups.push_back(g);
      count += parameters_.piece(g, first_piece(g)).size();
    }
    const double us = time_us([&] {
      for (const int g : groups) update_without_effect(g);
    });
    return count == 0 ? 0 : us / static_cast<double>(count);
  }
  // One thread updates on a CPU, which a rank's threads divide; where a device computes, all threads update on the
  // host.
  void update_without_effect(int group) {
    const at::Tensor weights = parameters_.update_weights(group, first_piece(group));
    const int64_t count = weights.numel();
    if (!parameters_.device().is_cpu() && weights.is_cpu())
      at::parallel_for(0, count, 1 << 16, [&](int64_t begin, int64_t end) { update_part(group, begin, end - begin); });
    else
      update_part(group, 0, count);
  }
  void update_part(int group, int64_t begin, int64_t count) {
    const auto part = [&](const at::Tensor& all) { return all.defined() ? all.narrow(0, begin, count) : all; };
    const int piece = first_piece(group);
    const at::Tensor weights = part(parameters_.update_weights(group, piece));
    const bool mixed = weights.scalar_type() != at::kFloat;
    optim::Shard master{
        .weights = mixed ? part(parameters_.update_master(group, piece)) : weights, .gradient = {}, .states = {}};
    for (int k = 0; k < parameters_.num_states(); ++k)
      master.states.push_back(part(parameters_.update_state(k, group, piece)));
    optim::mixed_step(optimizer_,
                      {mixed ? weights : at::Tensor(), part(parameters_.own_low_halves(group)),
                       part(parameters_.update_gradient(group, piece)), std::move(master)},
                      {.step = 0, .rate = 0});
  }
  double norm_us_per_element() {
    const int64_t count = std::min(kMaxElements, elements());
    const at::Tensor part = parameters_.gradients().narrow(0, 0, count);
    const double us = time_us([&] {
      part.is_cpu() ? (void)optim::sum_of_squares(part) : (void)optim::sum_of_squares_on_device(part);
    });  // also a rank without gradients meets the others
    return count == 0 ? 0 : us / static_cast<double>(count);
  }
  // Returns the time of an all-reduce. Each call takes the next bucket, as a step does, so that none is in a cache.
  double reduce_us_per_byte() {
    if (common_elements_ == 0) return 0;
    const int64_t element = static_cast<int64_t>(parameters_.gradients().element_size());
    const int64_t count = std::clamp<int64_t>(run_.strategy.bucket / element, 1, common_elements_);
    const int axis = strategies::all_reduced_axis(run_, layout_);
    // Where the axis does not have all ranks, the run's algorithm serves other groups than this one.
    const bool use_algorithm_of_run = run_.comm.algorithm != "auto" && layout_.mesh.size(axis) == comm_.size();
    const std::string algorithm = use_algorithm_of_run ? run_.comm.algorithm : "";
    at::Tensor bucket = parameters_.gradients().narrow(0, bucket_at_, count);
    bucket_at_ = bucket_at_ + 2 * count <= common_elements_ ? bucket_at_ + count : 0;
    return time_us([&] { comm_.all_reduce(bucket, {.name = "calibration", .algorithm = algorithm}); }) /
           static_cast<double>(element * count);
  }

  const spec::RunFile& run_;
  const spec::Layout& layout_;
  runtime::FlatParameters& parameters_;
  const optim::Optimizer& optimizer_;
  Communicator& comm_;
  int ranks_here_;
  const int64_t common_elements_;  // elements of gradients that every rank has
  int64_t bucket_at_ = 0;
  std::vector<double> update_, norm_, reduce_;  // us of each round, by element or byte
};

}  // namespace

program::Calibration calibrate(const spec::RunFile& run, const spec::Layout& layout, BlockTimer& passes,
                               runtime::FlatParameters& parameters, const optim::Optimizer& optimizer,
                               Communicator& comm, int ranks_here) {
  return Measurements(run, layout, parameters, optimizer, comm, ranks_here).run(passes);
}

}  // namespace herd::train
