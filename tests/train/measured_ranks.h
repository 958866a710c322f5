// Trains in processes of their own, and measures what each rank holds at most.
#pragma once

#include <sys/mman.h>

#include <functional>
#include <memory>
#include <vector>

#include "herd/bridge/budget_allocator.h"
#include "herd/comm/fork_world.h"
#include "herd/planner/stage_search.h"
#include "herd/program/memory_bound.h"
#include "herd/train/run_codec.h"
#include "herd/train/run_servers.h"
#include "train_in_threads.h"

namespace herd::train {

// Numbers that forked processes write and their parent reads.
class SharedNumbers {
 public:
  explicit SharedNumbers(int count)
      : bytes_(static_cast<size_t>(count) * sizeof(int64_t)),
        numbers_(
            static_cast<int64_t*>(mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {}
  ~SharedNumbers() { munmap(numbers_, bytes_); }
  SharedNumbers(const SharedNumbers&) = delete;
  SharedNumbers& operator=(const SharedNumbers&) = delete;
  int64_t& operator[](int index) { return numbers_[index]; }

 private:
  size_t bytes_;
  int64_t* numbers_;
};

struct MeasuredRank {
  int64_t bound = 0, peak = 0;
  int64_t in_order = 0;  // what the rank holds where its ops run one by one, and messages arrive when they are received
  int64_t host_bound = 0, host = 0, file_bound = 0, file = 0;  // beside the device: as predicted, and what is taken
};

// Trains two steps with its bound as each rank's budget, and returns that and the most bytes that the rank held since
// its start, or since it has the initial weights of its own modules. Each process begins with `prepare`.
inline std::vector<MeasuredRank> measured_ranks(const spec::RunFile& given, int ranks,
                                                const std::shared_ptr<const ModelSource>& source = family_source(),
                                                const std::function<void()>& prepare = {}) {
  SharedNumbers peaks(ranks), bounds(ranks), in_order(ranks), host_bounds(ranks), host(ranks), file_bounds(ranks),
      file_bytes(ranks);
  const TemporaryFolder files;
  run_forked(ranks, [&](Communicator& comm) {
    if (prepare) prepare();
    DeviceMemory::install();
    const spec::RunFile run = source->complete(given, comm);
    const c10::Device device = run.device.kind == "auto" ? c10::kCPU : open_device(run.device.kind, comm.rank());
    DeviceMemory::count_on(device);
    const spec::Layout uncut = strategies::trainable_layout(run, ranks);
    const spec::ModelTable table = spec::program_table(run, uncut.micro_batch);
    const spec::Layout layout = planner::with_stage_cut(run, table, uncut);
    std::vector<program::Program> programs;
    for (int rank = 0; rank < ranks; ++rank) programs.push_back(strategies::compile_step(run, table, layout, rank));
    const program::Program& step = programs[static_cast<size_t>(comm.rank())];
    const auto data = source->open(run, Split::kTrain, comm);
    const models::Model model = source->make(run, table, step, device);
    const std::unique_ptr<optim::Optimizer> optimizer = make_optimizer(run.optimizer);
    const runtime::AxisGroups groups(comm, step);
    const std::filesystem::path file = files.path() / ("rank" + std::to_string(comm.rank()) + ".nvme");
    runtime::FlatParameters parameters(model.groups, step, comm, own_state_types(run, layout), 1, {{file}, "test"});
    if (run.chain) DeviceMemory::reset_peak();  // a module's initial weights are on the host, without a budget
    const optim::LearningRate rate{.peak = run.optimizer.lr, .schedule = optim::RateSchedule::kConstant};
    const auto served = served_parameters(run, table, layout, parameters, step, rate);
    const auto encoded = encoded_gradients(run, table, parameters, step, served.get());
    if (served) served->start(comm, 0);
    std::optional<optim::LossScale> loss_scale;
    if (run.strategy.precision == "fp16") loss_scale = optim::LossScale();
    runtime::ModelBindings bindings(model.blocks, parameters, groups,
                                    runtime::parameter_update(parameters, *optimizer, rate),
                                    {.seed = 1,
                                     .clip = run.optimizer.clip,
                                     .loss_scale = loss_scale,
                                     .encoded = encoded.get(),
                                     .served = served.get(),
                                     .delays_updates = run.strategy.delayed_update,
                                     .width = run.model.width,
                                     .table = &table});
    // Measured against a budget: what a rank holds beyond it for a moment, where it has none, is no harm.
    bounds[comm.rank()] =
        program::peak_bound(step, program::Tier::kDevice, programs).bytes + strategies::uncounted_bytes(step);
    in_order[comm.rank()] =
        program::in_order_peak(step, program::Tier::kDevice).bytes + strategies::uncounted_bytes(step);
    DeviceMemory::set_budget(bounds[comm.rank()]);
    runtime::Executor executor(step, bindings.table(), {}, bindings.lanes_of(step));
    for (int64_t s = 0; s < 2; ++s) {
      bindings.begin_step(data->read(s * layout.batch, layout.batch, layout.micro_batch, step));
      executor.run(s);
      executor.drain();
    }
    peaks[comm.rank()] = DeviceMemory::peak_bytes();
    host_bounds[comm.rank()] = program::peak_bound(step, program::Tier::kHost, programs).bytes;
    file_bounds[comm.rank()] = program::peak_bound(step, program::Tier::kNvme, programs).bytes;
    host[comm.rank()] = parameters.host_bytes();
    file_bytes[comm.rank()] = parameters.file() ? parameters.file()->bytes() : 0;
    comm.barrier();
  });
  std::vector<MeasuredRank> out;
  for (int rank = 0; rank < ranks; ++rank)
    out.push_back({bounds[rank], peaks[rank], in_order[rank], host_bounds[rank], host[rank], file_bounds[rank],
                   file_bytes[rank]});
  return out;
}

}  // namespace herd::train
