// A short training job whose ranks are forked processes and which saves after every step: what herd train does, without
// its reports. One of its ranks can be told to die before any op of any step, by SIGKILL or another blow, or at any
// byte of what it writes; the next job of the same folder resumes.
#pragma once

#include <ATen/Parallel.h>
#include <signal.h>
#include <sys/wait.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "herd/bridge/tensor_buffer.h"
#include "herd/checkpoint/checkpoint_peers.h"
#include "herd/checkpoint/loader.h"
#include "herd/checkpoint/saver.h"
#include "herd/comm/fork_world.h"
#include "herd/models/decoder.h"
#include "herd/optim/adamw.h"
#include "herd/runtime/executor.h"
#include "herd/runtime/parameter_update.h"
#include "herd/runtime/weight_refresher.h"
#include "herd/spec/build_model_table.h"
#include "herd/spec/layout.h"
#include "herd/strategies/strategy_table.h"
#include "herd/strategies/techniques.h"
#include "herd/train/batches.h"
#include "herd/train/data_source.h"
#include "herd/train/model_tensors.h"
#include "herd/train/peer_listener.h"
#include "herd/train/run_optimizer.h"
#include "herd/train/run_servers.h"

namespace herd::train {

struct Death {
  Rank rank = -1;  // -1: nobody dies
  int64_t step = -1;
  int op = -1;  // before this op of that step
  std::function<void()> blow = [] { raise(SIGKILL); };
  int64_t position = -1;  // or at this byte of all that it writes; every other call that changes files counts as one
  std::chrono::milliseconds deadline{0};  // of the steps' operations; 0 = that of the world
};

struct JobLayout {
  int ranks = 1, zero = 0;
  int servers = 0;                    // with parameter servers; 0 = all-reduce
  std::string_view offload = "none";  // to a file of each rank, where activations are between passes, too; in pieces
  auto operator<=>(const JobLayout&) const = default;
};

struct JobEnd {
  int64_t resumed_from = 0;
  std::map<int64_t, double> losses;            // by steps done
  std::map<Rank, std::vector<int64_t>> calls;  // where each call to the file system begins, and the end of the last
  std::vector<RankEnd> ranks;
  int ops = 0;  // of a step of rank 0
  bool killed(Rank rank) const {
    const int status = ranks[static_cast<size_t>(rank)].status;
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
  }
};

// Dies within the call that reaches `death`: of a write, the bytes before it are written.
class LethalFileSystem final : public FileSystem {
 public:
  LethalFileSystem(int64_t death, const std::filesystem::path& log) : death_(death), log_(log) {}
  ~LethalFileSystem() override { log_ << at_ << '\n'; }
  int create(const std::filesystem::path& path, int permissions) override {
    return pass(), FileSystem::create(path, permissions);
  }
  int64_t write_at(int fd, const void* data, size_t bytes, int64_t offset) override {
    log_ << at_ << '\n';
    if (death_ >= at_ && death_ < at_ + static_cast<int64_t>(bytes)) {
      FileSystem::write_at(fd, data, static_cast<size_t>(death_ - at_), offset);
      raise(SIGKILL);
    }
    at_ += static_cast<int64_t>(bytes);
    return FileSystem::write_at(fd, data, bytes, offset);
  }
  int reserve(int fd, int64_t bytes) override { return pass(), FileSystem::reserve(fd, bytes); }
  int sync(int) override { return pass(), 0; }  // a killed process leaves its pages to the system
  int close(int fd) override { return pass(), FileSystem::close(fd); }
  int rename(const std::filesystem::path& from, const std::filesystem::path& to) override {
    return pass(), FileSystem::rename(from, to);
  }
  int remove(const std::filesystem::path& path) override { return pass(), FileSystem::remove(path); }
  int make_folder(const std::filesystem::path& path) override { return pass(), FileSystem::make_folder(path); }
  int sync_folder(const std::filesystem::path&) override { return pass(), 0; }

 private:
  void pass() {
    log_ << at_ << '\n';
    if (at_++ == death_) raise(SIGKILL);
  }

  int64_t death_, at_ = 0;
  std::ofstream log_;
};

namespace killed_job {

inline std::string file_of(const char* what, Rank rank) { return std::string(what) + std::to_string(rank); }

inline void set_layout(spec::RunFile& run, const JobLayout& layout) {
  run.strategy.zero = layout.zero;
  if (layout.servers > 0) run.strategy.sync = "server", run.strategy.servers = layout.servers;
  if (layout.offload == "none") return;
  run.strategy.offload = layout.offload, run.strategy.offload_activations = "nvme", run.strategy.recompute = "full";
  run.strategy.bucket = 4096;
  if (layout.offload != "nvme") run.strategy.order = "layer_major";  // each gradient is complete before it leaves
}

// A rank of the job, from the newest whole checkpoint to the last step.
inline void run_rank(Communicator& comm, const spec::RunFile& run, const std::filesystem::path& root,
                     const Death& death) {
  at::set_num_threads(1);
  const spec::Layout layout = strategies::trainable_layout(run, comm.size());
  const spec::ModelTable table = spec::model_table(run, layout.micro_batch);
  const program::Program step = strategies::compile_step(run, table, layout, comm.rank());
  const auto data = open_samples(run, Split::kTrain);
  const models::Model model = models::make_model(run.model, table, models::RankPlace{});
  const optim::AdamW adamw({});
  const uint64_t seed = static_cast<uint64_t>(run.train.seed);
  const bool is_victim = comm.rank() == death.rank;
  const auto peers = checkpoint_peers(comm, std::chrono::seconds(30));
  LethalFileSystem files(is_victim ? death.position : -1, root / file_of("calls", comm.rank()));
  runtime::AxisGroups groups(comm, step);
  runtime::FlatParameters parameters(model.groups, step, comm, own_state_types(run, layout), seed,
                                     {{root / file_of("nvme", comm.rank())}, "test"});
  const optim::LearningRate rate{.peak = run.optimizer.lr, .schedule = optim::RateSchedule::kConstant};
  const auto served = served_parameters(run, table, layout, parameters, step, rate);
  runtime::WeightRefresher weights(parameters, groups, step);
  runtime::ModelBindings bindings(
      model.blocks, parameters, groups, runtime::parameter_update(parameters, adamw, rate),
      {.seed = seed,
       .clip = run.optimizer.clip,
       .loss_scale = run.strategy.precision == "fp16" ? std::optional(optim::LossScale()) : std::nullopt,
       .served = served.get(),
       .width = run.model.width});
  const program::Op* deadly = nullptr;
  runtime::BindingTable ops = bindings.table();
  if (is_victim && death.op >= 0) {
    for (auto& [kind, binding] : ops) {
      binding = [&deadly, &death, whole = binding](const program::Op& op, int64_t s) {
        if (s == death.step && &op == deadly) death.blow();
        return whole(op, s);
      };
    }
  }
  runtime::OpListener listener = peer_listener(comm);
  listener.failed = [&served, tell = listener.failed](const Error& error) {
    if (served) served->abort(error.message());
    tell(error);
  };
  runtime::Executor executor(step, ops, listener);
  if (is_victim && death.op >= 0) deadly = &executor.program().ops[static_cast<size_t>(death.op)];

  const auto with_served = [&](std::vector<NamedTensor> tensors) {
    if (!served) return tensors;
    const auto more = served_tensors(served->share(), adamw);
    tensors.insert(tensors.end(), more.begin(), more.end());
    return tensors;
  };
  CheckpointSaver saver({.root = root / "checkpoints", .keep = 2, .herd_version = "test"}, *peers, files);
  int64_t first = 0;
  if (const auto found = find_resumable(root / "checkpoints", *peers)) {
    CheckpointReader reader(*found);
    std::vector<NamedTensor> tensors = with_served(own_tensors(parameters, adamw));
    load_tensors(reader, tensors, tensor_names(parameters, adamw));
    weights.refresh();  // which ends the use of what the file keeps
    first = reader.manifest().step;
    if (bindings.loss_scale())
      bindings.set_loss_scale(optim::LossScale(std::stod(reader.manifest().notes.at("loss_scale"))));
  }
  if (served) served->start(comm, first);
  std::ofstream log;
  if (comm.rank() == 0) {
    log.open(root / "losses");
    log << first << ' ' << step.ops.size() << std::endl;
  }
  if (death.deadline.count() > 0) {
    comm.barrier();
    groups.set_deadline(death.deadline);
  }
  try {
    for (int64_t s = first; s < run.train.steps; ++s) {
      bindings.begin_step({read_micro_batches(*data, s * layout.batch, layout.batch, layout.micro_batch, step),
                           1.0 / static_cast<double>(counted_tokens(*data, s * layout.batch, layout.batch))});
      executor.run(s);
      executor.drain();
      std::vector<double> totals = {bindings.output().loss_sum, static_cast<double>(bindings.output().count)};
      comm.all_reduce(totals);
      if (comm.rank() == 0)
        log << s + 1 << ' ' << std::hexfloat << totals[0] / totals[1] << std::defaultfloat << std::endl;
      std::map<std::string, std::string> notes;
      if (const auto& scale = bindings.loss_scale()) notes["loss_scale"] = std::to_string(scale->scale());
      saver.save({.step = s + 1, .samples = (s + 1) * layout.batch, .config = spec::to_toml(run), .notes = notes},
                 with_served(saved_tensors(parameters, adamw)));
      parameters.forget_mapped();
    }
    saver.wait();
  } catch (const Error& error) {  // as a Trainer does, so that those whom this rank serves hear why it ends
    if (served) served->abort("rank " + std::to_string(comm.rank()) + ": " + error.what());
    throw;
  }
}

}  // namespace killed_job

// Runs the job in `root` until its last step or until the death of a rank has ended it.
inline JobEnd run_job(const std::filesystem::path& root, spec::RunFile run, const JobLayout& layout,
                      const Death& death = {}) {
  killed_job::set_layout(run, layout);
  ForkWorld world(layout.ranks, [&](Communicator& comm) { killed_job::run_rank(comm, run, root, death); });
  JobEnd end;
  end.ranks = world.wait();
  std::ifstream losses(root / "losses");
  losses >> end.resumed_from >> end.ops;
  int64_t step;
  std::string loss;
  while (losses >> step >> loss) end.losses[step] = std::strtod(loss.c_str(), nullptr);
  for (Rank rank = 0; rank < layout.ranks; ++rank) {
    std::ifstream calls(root / killed_job::file_of("calls", rank));
    for (int64_t at; calls >> at;) end.calls[rank].push_back(at);
  }
  return end;
}

}  // namespace herd::train
