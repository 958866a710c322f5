// A short training run with ranks as threads of this process, beside which others may only serve: what herd train does,
// without folders, calibration and reports.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "herd/bridge/budget_allocator.h"
#include "herd/bridge/device_stream.h"
#include "herd/bridge/split_float.h"
#include "herd/bridge/tensor_buffer.h"
#include "herd/comm/inproc_world.h"
#include "herd/convert/weight_source.h"
#include "herd/models/decoder.h"
#include "herd/runtime/executor.h"
#include "herd/runtime/parameter_update.h"
#include "herd/runtime/weight_refresher.h"
#include "herd/spec/build_model_table.h"
#include "herd/spec/layout.h"
#include "herd/strategies/strategy_table.h"
#include "herd/strategies/techniques.h"
#include "herd/train/end_of_step.h"
#include "herd/train/evaluate.h"
#include "herd/train/expert_load.h"
#include "herd/train/model_buffers.h"
#include "herd/train/model_source.h"
#include "herd/train/model_tensors.h"
#include "herd/train/routing_files.h"
#include "herd/train/run_codec.h"
#include "herd/train/run_optimizer.h"
#include "herd/train/run_servers.h"
#include "herd/train/server_control.h"
#include "herd/train/take_weights.h"
#include "tests/support/temporary_folder.h"

namespace herd::train {

struct Trained {
  std::vector<double> losses;                     // of each step
  std::vector<double> norms;                      // of each step's gradient
  double validation = 0;                          // after the last step
  std::vector<int64_t> sent;                      // by rank, bytes in the last step
  std::map<MemoryLabel, int64_t> held;            // of all ranks together, after the first step
  std::map<std::string, int64_t> gathers;         // by axis: how often rank 0 has gathered weights along it
  int64_t host_bytes = 0, file_bytes = 0;         // of rank 0, what offload keeps in host memory and in its file
  int64_t file_read = 0, file_written = 0;        // by rank 0, bytes of its file in the last step
  program::Program step;                          // of rank 0
  std::vector<int64_t> skipped;                   // by rank, steps whose gradient overflowed
  std::map<std::string, at::Tensor> weights;      // after the last step, where there is one rank
  std::map<std::string, at::Tensor> buffers;      // of rank 0, after the last step
  std::vector<double> imbalance;                  // of the experts, in each step
  std::vector<int64_t> dropped;                   // choices of experts, in each step
  std::vector<int64_t> close;                     // tokens whose choice is close, in each step
  std::vector<std::vector<int64_t>> expert_load;  // by layer, in the last step
};

// Steps of a run that is compared with another: enough for weights that have moved to matter, for moments, and for
// scales that overflow at first.
inline int steps_to_compare() { return std::getenv("HERD_FULL_TESTS") != nullptr ? 20 : 8; }

inline spec::RunFile tiny_run(const std::string& more = "") {
  return spec::parse_run_text(
      "[model]\nlayers = 3\nwidth = 16\nheads = 2\ncontext = 8\nvocab = 40\ndropout = 0.1\n[data]\nkind = \"random\"\n"
      "[train]\nbatch = 12\nmicro_batch = 1\n[optimizer]\nlr = 1e-3\n" +
          more,
      "test");
}

inline at::Tensor exact_copy(const NamedTensor& tensor) {
  if (!tensor.low_halves.defined()) return tensor.value.to(at::kCPU, /*non_blocking=*/false, /*copy=*/true);
  const at::Tensor exact = at::empty(tensor.value.sizes(), at::kFloat);
  join_float(tensor.value.to(at::kCPU), tensor.low_halves.to(at::kCPU), exact);
  return exact;
}

inline void serve_in_threads(const spec::RunFile& run, const spec::ModelTable& table, const spec::Layout& layout,
                             const program::Program& step, const ModelSource& source, const Communicator& world) {
  const runtime::Groups groups = source.make(run, table, step, c10::kCPU).groups;
  const optim::LearningRate rate{.peak = run.optimizer.lr, .schedule = optim::RateSchedule::kConstant};
  runtime::ServerShare share(groups, step, served_options(run, table, layout, groups, rate), world.rank());
  ServerCommands commands(world);
  const auto server = start_server(commands, commands.next(), share, world);
  commands.next();  // kEnd
}

inline Trained train_in_threads(const spec::RunFile& run, int ranks, int steps,
                                std::optional<optim::LossScale> loss_scale = {},
                                const std::shared_ptr<const ModelSource>& source = family_source(),
                                const std::vector<int>& hosts = {}) {  // of each rank; empty = one host
  if (run.strategy.precision == "fp16" && !loss_scale) loss_scale = optim::LossScale();
  const int servers = static_cast<int>(run.strategy.dedicated_servers);  // behind the ranks that train
  const spec::Layout layout = strategies::trainable_layout(run, ranks + servers);
  const spec::ModelTable table = spec::program_table(run, layout.micro_batch);
  const auto programs = strategies::compile_and_verify(run, table, layout);
  Trained out;
  out.step = programs[0];
  out.sent.resize(static_cast<size_t>(ranks));
  out.skipped.resize(static_cast<size_t>(ranks));
  DeviceMemory::install();
  const TemporaryFolder files;
  std::mutex mutex;
  const auto body = [&](Communicator& world) {
    Communicator comm = servers == 0 ? world.share() : world.split(world.rank() < ranks ? 0 : 1, world.rank());
    if (world.rank() >= ranks) return serve_in_threads(run, table, layout, programs[0], *source, world);
    const program::Program& step = programs[static_cast<size_t>(comm.rank())];
    const auto data = source->open(run, Split::kTrain, comm);
    const c10::Device device = run.device.kind == "auto" ? c10::kCPU : open_device(run.device.kind, comm.rank());
    const models::Model model = source->make(run, table, step, device);
    const std::unique_ptr<optim::Optimizer> optimizer = make_optimizer(run.optimizer);
    const runtime::AxisGroups groups(comm, step);
    const uint64_t seed = static_cast<uint64_t>(run.train.seed);
    const std::filesystem::path file = files.path() / ("rank" + std::to_string(comm.rank()) + ".nvme");
    runtime::FlatParameters parameters(model.groups, step, comm, own_state_types(run, layout), seed, {{file}, "test"});
    if (run.model.weights != "none") {
      std::vector<NamedTensor> weights = own_weights(parameters);
      take_weights(*convert::open_weights(run.model.weights), weights);
      runtime::WeightRefresher(parameters, groups, step).refresh();
    }
    const optim::LearningRate rate{.peak = run.optimizer.lr, .schedule = optim::RateSchedule::kConstant};
    const auto served = served_parameters(run, table, layout, parameters, step, rate);
    const auto encoded = encoded_gradients(run, table, parameters, step, served.get());
    std::optional<ServerControl> control;
    if (servers > 0 && world.rank() == 0) control.emplace(world, layout);
    if (served)
      served->start(comm, world, 0, [&](const std::string& name) {
        const auto weights = [&](int64_t key, int64_t first, int64_t count) {
          return served->weights_of(key, first, count);
        };
        if (control) control->start(name, 0, served->keys(), weights);
      });
    const auto recorder = run.train.records_routing()
                              ? std::make_unique<RoutingRecorder>(run.train.record_routing, comm.rank(), ranks)
                              : nullptr;
    if (recorder) recorder->open(0);
    const nn::RecordedRouting replayed =
        run.train.replays_routing() ? read_routing(run.train.replay_routing) : nn::RecordedRouting();
    const runtime::ModelBindings::Options options{.updates_buffers = true,
                                                  .seed = seed,
                                                  .clip = run.optimizer.clip,
                                                  .loss_scale = loss_scale,
                                                  .encoded = encoded.get(),
                                                  .served = served.get(),
                                                  .delays_updates = run.strategy.delayed_update,
                                                  .width = run.model.width,
                                                  .link_bytes_per_us = static_cast<double>(run.memory.link) / 1e6,
                                                  .table = &table,
                                                  .recorded = recorder ? &recorder->routing() : nullptr,
                                                  .replayed = run.train.replays_routing() ? &replayed : nullptr};
    runtime::ModelBindings bindings(model.blocks, parameters, groups,
                                    runtime::parameter_update(parameters, *optimizer, rate), options);
    runtime::Executor executor(step, bindings.table(), {}, bindings.lanes_of(step));
    // Updates that run beside the next step do so here, too, and the host goes ahead of a device, but for the last
    // step, whose bytes are counted.
    const bool overlaps = !device.is_cpu() || run.strategy.delayed_update || run.strategy.direct_host != "none" ||
                          std::any_of(step.ops.begin(), step.ops.end(),
                                      [](const program::Op& op) { return op.lane == program::Lane::kUpdate; });
    for (int64_t s = 0; s < steps; ++s) {
      if (overlaps && s + 1 == steps) executor.drain();
      bindings.begin_step(data->read(s * layout.batch, layout.batch, layout.micro_batch, step));
      const uint64_t before = comm.bytes_moved();
      const NvmeFile* const own_file = comm.rank() == 0 ? parameters.file() : nullptr;
      if (own_file != nullptr) out.file_read = -own_file->bytes_read(), out.file_written = -own_file->bytes_written();
      executor.run(s);
      if (!overlaps || s + 1 == steps) executor.drain();
      if (own_file != nullptr && s + 1 == steps)
        out.file_read += own_file->bytes_read(), out.file_written += own_file->bytes_written();
      if (served) comm.barrier();  // servers send until the last rank has its weights
      if (s + 1 == steps)
        out.sent[static_cast<size_t>(comm.rank())] = static_cast<int64_t>(comm.bytes_moved() - before);
      const EndOfStep end = all_reduce_end_of_step({.loss_sum = bindings.output().loss_sum,
                                                    .tokens = bindings.output().count,
                                                    .expert_load = take_expert_load(model.routers)},
                                                   comm);
      if (recorder) recorder->write();
      const auto load = balance_experts(model.routers, end.expert_load);
      if (comm.rank() != 0) continue;
      const std::lock_guard lock(mutex);
      out.losses.push_back(end.loss_sum / static_cast<double>(end.tokens));
      out.imbalance.push_back(worst_imbalance(load.by_layer));
      out.dropped.push_back(load.dropped);
      out.close.push_back(std::accumulate(load.close_by_layer.begin(), load.close_by_layer.end(), int64_t{0}));
      out.expert_load = load.by_layer;
      out.norms.push_back(bindings.output().gradient_norm);
    }
    if (comm.rank() == 0) {
      std::set<int> axes;
      for (const program::Op& op : step.ops) {
        if (op.kind == program::OpKind::kAllGather && op.lane == program::Lane::kGather) axes.insert(op.axis);
      }
      for (const int axis : axes) {
        for (const AlgorithmUse& use : groups.of(program::Lane::kGather, axis).algorithms_used())
          out.gathers[step.mesh.axes[static_cast<size_t>(axis)].name] += static_cast<int64_t>(use.operations);
      }
    }
    if (const auto& scale = bindings.loss_scale()) out.skipped[static_cast<size_t>(comm.rank())] = scale->skipped();
    comm.barrier();
    if (comm.rank() == 0) {
      for (const MemoryLabel label :
           {MemoryLabel::kWeights, MemoryLabel::kGradients, MemoryLabel::kStates, MemoryLabel::kWorkspace})
        out.held[label] = DeviceMemory::live_bytes(label);
    }
    comm.barrier();
    if (control) control->end(steps);
    if (ranks == 1) {
      for (const NamedTensor& tensor : own_weights(parameters)) out.weights[tensor.name] = exact_copy(tensor);
    }
    if (comm.rank() == 0) {
      out.host_bytes = parameters.host_bytes();
      out.file_bytes = parameters.file() ? parameters.file()->bytes() : 0;
    }
    parameters.forget_mapped();
    ModelBuffers buffers(model.blocks, table, comm);
    buffers.synchronize();
    if (comm.rank() == 0) {
      for (const NamedTensor& tensor : buffers.own()) out.buffers[tensor.name] = tensor.value.clone();
    }
    if (!source->has_validation()) return;
    const auto validation = source->open(run, Split::kValidation, comm);
    const double loss =
        Evaluation(step, model.blocks, parameters, groups, options)
            .run(*validation, comm, {.batches = 1, .batch = layout.batch, .micro_batch = layout.micro_batch})
            ->loss;
    if (comm.rank() == 0) out.validation = loss;
  };
  run_inproc(ranks + servers, body, hosts);
  return out;
}

}  // namespace herd::train
