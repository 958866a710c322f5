#include "herd/train/trainer.h"

#include <ATen/Parallel.h>
#include <torch/version.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <thread>
#include <tuple>

#include "herd/base/device_driver.h"
#include "herd/base/elapsed.h"
#include "herd/base/error.h"
#include "herd/base/log.h"
#include "herd/base/median.h"
#include "herd/base/thrown_object.h"
#include "herd/base/units.h"
#include "herd/base/version.h"
#include "herd/bridge/budget_allocator.h"
#include "herd/bridge/device_stream.h"
#include "herd/bridge/tensor_buffer.h"
#include "herd/checkpoint/checkpoint_peers.h"
#include "herd/draw/timeline_picture.h"
#include "herd/planner/cluster.h"
#include "herd/planner/prediction.h"
#include "herd/planner/stage_search.h"
#include "herd/program/draw_program.h"
#include "herd/program/simulate.h"
#include "herd/runtime/executor.h"
#include "herd/runtime/parameter_update.h"
#include "herd/runtime/weight_refresher.h"
#include "herd/spec/build_model_table.h"
#include "herd/spec/chain_table.h"
#include "herd/spec/layout.h"
#include "herd/spec/masked_tokens.h"
#include "herd/spec/supported.h"
#include "herd/storage/atomic_file.h"
#include "herd/strategies/replicas.h"
#include "herd/strategies/server_sync.h"
#include "herd/strategies/strategy_table.h"
#include "herd/strategies/techniques.h"
#include "herd/topology/topology_text.h"
#include "herd/train/block_timer.h"
#include "herd/train/calibrate.h"
#include "herd/train/calibrate_files.h"
#include "herd/train/chain_source.h"
#include "herd/train/dedicated_server.h"
#include "herd/train/end_of_step.h"
#include "herd/train/evaluate.h"
#include "herd/train/expert_load.h"
#include "herd/train/measured_memory.h"
#include "herd/train/measured_timeline.h"
#include "herd/train/model_buffers.h"
#include "herd/train/model_source.h"
#include "herd/train/nonfinite.h"
#include "herd/train/peer_listener.h"
#include "herd/train/replica_hash.h"
#include "herd/train/resolve_run.h"
#include "herd/train/resumed_run.h"
#include "herd/train/routing_files.h"
#include "herd/train/run_checkpoints.h"
#include "herd/train/run_codec.h"
#include "herd/train/run_description.h"
#include "herd/train/run_optimizer.h"
#include "herd/train/run_report.h"
#include "herd/train/run_servers.h"
#include "herd/train/running_ahead.h"
#include "herd/train/server_control.h"
#include "herd/train/shared_error.h"
#include "herd/train/step_record.h"
#include "herd/train/stop_signal.h"
#include "herd/train/worker_residuals.h"

namespace herd::train {
namespace {

namespace fs = std::filesystem;
using runtime::Clock;

std::chrono::milliseconds deadline_of(const spec::RunFile& run) {
  return std::chrono::milliseconds(std::max<int64_t>(1, std::llround(run.comm.deadline_s * 1e3)));
}

constexpr std::chrono::seconds kBetweenReports{60};  // while a run goes on

// Returns the FLOPs of the passes that a step needs. What it computes a second time is not counted.
double flops_of(const program::Program& step, const spec::ModelTable& model) {
  double flops = 0;
  std::set<std::tuple<program::OpKind, int, int>> counted;  // kind, block and micro-batch
  for (const program::Op& op : step.ops) {
    if (op.kind != program::OpKind::kForward && op.kind != program::OpKind::kBackward &&
        op.kind != program::OpKind::kLoss)
      continue;
    if (!counted.insert({op.kind, op.block, op.micro_batch}).second) continue;
    const spec::BlockShape& block = model.blocks[static_cast<size_t>(op.block)];
    const spec::PassCost& cost = op.kind == program::OpKind::kBackward ? block.backward : block.forward;
    flops += cost.matmul_flops + cost.attention_flops;
  }
  return flops;
}

// Returns a text like "predicted 304 ms a step, measured 310 ms, 102 %".
std::string beside_prediction(double predicted_us, double measured_us) {
  char share[32];
  std::snprintf(share, sizeof share, "%.0f %%", 100 * measured_us / predicted_us);
  return "predicted " + format_us(predicted_us) + " a step, measured " + format_us(measured_us) + ", " + share;
}

// Looks for a GPU before torch is used at all, as open_device() asks for. The kind that rank 0 finds is the one for
// all.
spec::RunFile on_found_device(spec::RunFile run) {
  if (run.device.kind == "auto") run.device.kind = found_device_kind();
  return run;
}

// Counts what a device's libraries hold for the whole run, which shows once all passes have run.
void count_workspaces(program::Simulation& predicted, int64_t bytes) {
  for (program::OpMemory& op : predicted.memory) op.bytes[static_cast<size_t>(program::MemoryUse::kBuffers)] += bytes;
  predicted.device_peak.bytes += bytes;
}

// Chooses how collectives move the memory of a device; groups that are made afterwards do the same. Collective.
void use_engine(const spec::RunFile& run, c10::Device device, Communicator& world) {
  const comm::DeviceEngineChoice choice =
      world.use_device(to_device(device), comm::parse_device_engine(run.comm.device_engine));
  if (world.rank() == 0)
    log_info("collectives on the device: " + std::string(comm::device_engine_name(choice.engine)) + ", " +
             choice.reason);
}

// Returns a text like "cuda: 2 devices of this host serve 4 ranks".
std::string device_text(c10::Device device, size_t ranks) {
  const int devices = device_driver(to_device(device).kind).count();
  return c10::DeviceTypeName(device.type(), /*lower_case=*/true) + ": " + std::to_string(devices) +
         (devices == 1 ? " device" : " devices") + " of this host, " + std::to_string(ranks) +
         (ranks == 1 ? " rank" : " ranks");
}

// Says what ranks that run ahead of each other may do.
std::string ahead_text(int staleness) {
  if (staleness == program::kNoBound)
    return "asynchronous: each rank's gradient is an update of its own, and there is no bound on how far ranks run "
           "ahead";
  return "each rank's gradient is an update of its own, and a rank waits where it is more than " +
         std::to_string(staleness) + (staleness == 1 ? " step" : " steps") + " ahead of the slowest one";
}

}  // namespace

struct Trainer::State {
  std::shared_ptr<const ModelSource> source;
  spec::RunFile run;
  spec::Layout layout;
  Communicator world;  // all ranks of the job
  Communicator comm;   // those that train: all but dedicated servers
  TrainHooks hooks;
  std::unique_ptr<Samples> data, validation;
  spec::ModelTable table;
  models::Model model;
  c10::Device device = c10::kCPU;
  std::unique_ptr<optim::Optimizer> optimizer;
  optim::LearningRate rate;
  std::unique_ptr<runtime::AxisGroups> groups;
  std::unique_ptr<runtime::FlatParameters> parameters;
  std::unique_ptr<runtime::WeightRefresher> weights;
  std::unique_ptr<runtime::ServedParameters> served;   // null where ranks update by themselves
  std::unique_ptr<runtime::EncodedGradients> encoded;  // null where none are; borrows `served`
  std::unique_ptr<ModelBuffers> buffers;
  std::unique_ptr<RoutingRecorder> recorder;  // null where no routing is recorded
  std::optional<nn::RecordedRouting> replayed;
  std::unique_ptr<runtime::ModelBindings> bindings;
  MeasuredMemory memory;  // outlives the executor, which calls it
  std::unique_ptr<runtime::Executor> executor;
  std::unique_ptr<Evaluation> evaluation;       // null where the run has none
  std::unique_ptr<CheckpointPeers> peers;       // of all ranks of the job
  std::unique_ptr<CheckpointPeers> comm_peers;  // of those that train; null where these are all
  // Ranks that validate and compare replicas: all, or where ranks run ahead those that serve, since they outlive the
  // others. With dedicated servers that is rank 0 alone. On other ranks, these have a group of those.
  Communicator keepers;
  bool keeps = true;  // this rank is one of them
  // Ranks that save: the same, and dedicated servers.
  Communicator savers;
  std::unique_ptr<CheckpointPeers> saver_peers;  // null where all ranks save
  std::unique_ptr<ServerControl> control;        // on rank 0 of a run with dedicated servers
  int64_t servers_know_lost = 0;                 // ranks of which these know that they are lost
  std::unique_ptr<RunningAhead> ahead;           // null where ranks wait for each other in each step
  std::unique_ptr<WorkerResiduals> residuals;    // null where each rank saves its own, or has none
  std::unique_ptr<OwnedFolder> owned;
  ResumedRun before;  // what the run's checkpoint says of it
  std::unique_ptr<RunCheckpoints> checkpoints;
  fs::path folder;
  int64_t num_parameters = 0;
  std::string files_text;     // how files are asked, and how fast they are; empty without files
  double flops_per_step = 0;  // those of this rank
  double peak_gflops = 0;
  program::Simulation predicted;
  sim::Timeline trace, measured;                   // of all ranks: the traced steps, and the last of them alone
  double traced_us = 0;                            // their length
  std::vector<program::OpMemory> measured_memory;  // the last of those steps
  std::vector<program::TierTraffic> measured_traffic;
  std::vector<program::ExpertTraffic> measured_expert_traffic;
  Position resumed;                             // what was done before this process
  std::vector<StepMetrics> metrics_so_far;      // on rank 0, for the report
  int64_t num_restarts = 0;                     // of the job, before this process
  Clock::time_point reported = {};              // when the report was written last
  uint64_t bytes_counted = 0;                   // comm.bytes_moved() when the last step ended, or what followed it
  std::optional<Clock::time_point> time_limit;  // set on rank 0, which stops all ranks
  std::map<std::string, std::string> machine = describe_machine();

  std::string strategy_summary;  // what strategy.auto took; empty where the run file says all

  State(std::shared_ptr<const ModelSource> model_source, planner::ResolvedRun resolved, Communicator& c)
      : source(std::move(model_source)),
        run(std::move(resolved.run)),
        layout(strategies::trainable_layout(run, c.size())),
        world(c.share()),
        comm(layout.dedicated_servers > 0 ? world.split(0, world.rank(), "ranks that train") : world.share()),
        keepers(comm.share()),
        savers(world.share()),
        strategy_summary(std::move(resolved.summary)) {}

  bool is_over_time() const { return time_limit && Clock::now() >= *time_limit; }
  bool wants_stop() const {
    return StopSignal::requested() || is_over_time() || (hooks.wants_stop && hooks.wants_stop());
  }
  std::string why_stopped() const {
    if (is_over_time()) return "stopped by train.max_minutes = " + format_number(run.train.max_minutes);
    return StopSignal::requested() || !hooks.wants_stop ? "stopped by a signal" : "stopped by the program";
  }
  // Steps are what a run prints; notes and errors go to the standard error.
  void print(const std::string& line) const {
    if (!root()) return;
    if (hooks.print) return hooks.print(line);
    std::fputs((line + "\n").c_str(), stdout);
    std::fflush(stdout);
  }
  // Peers that wait for this rank's pushes hear of an error as soon as those that wait for its collectives.
  void abort_servers(const std::exception& error) const {
    if (served) served->abort("rank " + std::to_string(comm.rank()) + ": " + error.what());
  }
  // Ranks that run ahead share no group that has to outlive each of them.
  void tell(const std::exception& error) {
    abort_servers(error);
    if (ahead) tell_peers(keepers, error);
    if (!ahead || dynamic_cast<const SharedError*>(&error) == nullptr) tell_peers(comm, error);
    if (control) control->fail(error);
  }
  bool root() const { return comm.rank() == 0; }
  void say(const std::string& text) const {
    if (root()) log_info(text);
  }
  void write(const char* file, const std::string& text) const {
    write_file_atomically(folder / file, text, owned->files());
  }
  // Returns the position in the data before a step. Batches of an earlier process may have had another size.
  int64_t samples_before(int64_t step) const { return resumed.sample + (step - resumed.step) * layout.batch; }
  runtime::ModelBindings::Options options() const;
  runtime::FilePlace file_place() const;
  std::optional<planner::MeasuredFiles> ask_files(program::Calibration& calibration);
  runtime::StepInput read_step(int64_t step) const;
  StepRecord run_step(int64_t step, bool drain, bool& stop);
  void execute(const runtime::StepInput& input, int64_t step);
  bool runs_ahead() const { return ahead != nullptr; }
  EndOfStep end_ahead(int64_t steps_done, bool meets, int64_t& staleness);
  void set_up_savers();
  void start_servers();
  void set_up_keepers(bool survives);
  void set_up(const JobAttempt& attempt);
  std::optional<Validation> validate();
  void save(int64_t steps_done);
  void write_manifest(int64_t ended_at = 0) const;
  void trace_step(double step_ms);
  void write_report(const std::string& failure = "");
  void report_failure(const std::exception& error);
  TrainResult train();
};

// Peers must hear of an error before this rank leaves the groups that it has made, and before it waits for what is in
// flight.
Trainer::Trainer(spec::RunFile run, Communicator& comm, const JobAttempt& attempt, TrainHooks hooks)
    : Trainer(family_source(), std::move(run), comm, attempt, std::move(hooks)) {}

Trainer::Trainer(const Chain& chain, const ChainData& data, spec::RunFile run, Communicator& comm,
                 const JobAttempt& attempt, TrainHooks hooks)
    : Trainer(chain_source(chain, data), std::move(run), comm, attempt, std::move(hooks)) {}

Trainer::Trainer(std::shared_ptr<const ModelSource> source, spec::RunFile run, Communicator& comm,
                 const JobAttempt& attempt, TrainHooks hooks) {
  planner::ResolvedRun resolved = resolve_run(source->complete(on_found_device(std::move(run)), comm), comm);
  const spec::Layout layout = strategies::trainable_layout(resolved.run, comm.size());
  if (comm.rank() >= layout.world_size) {
    comm.split(1, comm.rank(), "ranks that only serve");  // with that of the ranks that train
    server_ = std::make_unique<DedicatedServer>(*source, std::move(resolved.run), layout, comm, attempt);
    return;
  }
  state_ = std::make_unique<State>(source, std::move(resolved), comm);
  state_->hooks = std::move(hooks);
  try {
    state_->set_up(attempt);
  } catch (const std::exception& error) {
    tell_peers(state_->comm, error);
    if (state_->control) state_->control->fail(error);
    throw;
  } catch (...) {  // a hook's
    const std::runtime_error error("a hook throws " + thrown_object());
    tell_peers(state_->comm, error);
    if (state_->control) state_->control->fail(error);
    throw;
  }
}

TrainResult Trainer::run() {
  if (server_) return {.steps_done = server_->run()};
  try {
    return state_->train();
  } catch (const std::exception& error) {
    state_->tell(error);
    state_->report_failure(error);
    // A rank that does not answer won't write its part of a checkpoint: nobody waits for the save that is under way.
    const auto* herd_error = dynamic_cast<const Error*>(&error);
    if (herd_error != nullptr && herd_error->code() == Code::kTimeout) {
      (state_->saver_peers ? *state_->saver_peers : *state_->peers).abandon(error.what());
    }
    throw;
  } catch (...) {  // a hook's
    const std::runtime_error error("a hook throws " + thrown_object());
    state_->tell(error);
    state_->report_failure(error);
    throw;
  }
}

Trainer::~Trainer() = default;

void Trainer::State::set_up(const JobAttempt& attempt) {
  State& s = *this;
  if (s.layout.dedicated_servers > 0 && s.root()) s.control = std::make_unique<ServerControl>(world, s.layout);
  s.peers = checkpoint_peers(world, std::chrono::minutes(10));
  s.owned = std::make_unique<OwnedFolder>(run, *s.peers, attempt);
  s.folder = s.owned->path();
  s.before = check_resumed_run(run, s.folder, s.owned->start(), comm.size(), *s.peers);
  if (s.before.finished) return;
  s.set_up_savers();
  const Topology topology = parse_topology(comm.topology());
  spec::refuse_transport(run, static_cast<int>(parse_topology(world.topology()).hosts.size()));
  s.data = s.source->open(run, Split::kTrain, comm);
  if (run.train.eval_every > 0) s.validation = s.source->open(run, Split::kValidation, comm);
  if (!s.strategy_summary.empty()) s.say(s.strategy_summary);
  s.say(spec::summary(s.layout));
  if (const std::string summary = s.data->summary(); !summary.empty()) s.say(summary);

  s.table = spec::program_table(run, s.layout.micro_batch);
  s.layout = planner::with_stage_cut(run, s.table, std::move(s.layout));
  s.num_parameters = table.parameters();
  s.num_restarts = attempt.restarts_before;
  if (table.frozen_parameters() > 0) {
    s.say(format_count(static_cast<double>(table.frozen_parameters())) + " of " +
          format_count(static_cast<double>(table.parameters())) + " parameters are frozen");
  }
  std::vector<int> ranks_here;
  for (int rank = 0; rank < comm.size(); ++rank) {
    if (topology.host_of(rank) == topology.host_of(comm.rank())) ranks_here.push_back(rank);
  }
  const std::vector<int> simulated = planner::ranks_with_all_stages(ranks_here, s.layout);
  const std::vector<program::Program> programs = strategies::programs_of_run(run, table, s.layout, simulated);
  if (const std::string quotient = strategies::quotient_text(run, s.layout, programs[0], table.is_chain());
      !quotient.empty())
    s.say("the step is proved on " + quotient);

  s.optimizer = make_optimizer(run.optimizer);
  s.rate = learning_rate(run);
  const uint64_t seed = static_cast<uint64_t>(run.train.seed);
  const auto local_index = std::find(ranks_here.begin(), ranks_here.end(), comm.rank()) - ranks_here.begin();
  const program::Program& step = programs[static_cast<size_t>(local_index)];
  s.device = open_device(run.device.kind, static_cast<int>(local_index));
  DeviceMemory::count_on(s.device);
  s.model = s.source->make(run, table, step, s.device);
  s.flops_per_step = flops_of(step, table);
  if (!s.device.is_cpu()) s.say("on " + device_text(s.device, ranks_here.size()));
  if (!s.device.is_cpu() && comm.size() > 1) use_engine(run, s.device, comm);
  s.groups = std::make_unique<runtime::AxisGroups>(comm, step);
  s.parameters = std::make_unique<runtime::FlatParameters>(s.model.groups, step, comm, own_state_types(run, s.layout),
                                                           seed, s.file_place());
  if (const NvmeFile* file = s.parameters->file()) {
    for (const std::string& note : file->notes()) s.say(note);
  }
  s.served = served_parameters(run, table, s.layout, *s.parameters, step, s.rate);
  s.encoded = encoded_gradients(run, table, *s.parameters, step, s.served.get());
  s.set_up_keepers(attempt.survives);
  s.buffers = std::make_unique<ModelBuffers>(s.model.blocks, table, s.keepers);
  s.weights = std::make_unique<runtime::WeightRefresher>(*s.parameters, *s.groups, step);
  program::Calibration calibration = [&] {
    BlockTimer passes(run, s.layout, step, s.model.blocks, *s.parameters, *s.groups, comm,
                      [&](int64_t rows) { return s.source->example(run, rows); });
    program::Calibration measured_here =
        calibrate(run, s.layout, passes, *s.parameters, *s.optimizer, comm, static_cast<int>(ranks_here.size()));
    measured_here.reads_ahead = s.source->reads_ahead();
    return measured_here;
  }();
  const std::optional<planner::MeasuredFiles> files = s.ask_files(calibration);
  s.peak_gflops = calibration.matmul_flops_per_us * calibration.threads / 1e3;
  planner::Cluster cluster = planner::cluster_of(calibration, run, parse_topology(world.topology()));
  cluster.measured = planner::measured_of(calibration, run, s.layout);
  cluster.files = files;
  if (const std::string why = planner::why_no_program(run, s.layout); why.empty()) {
    s.predicted = planner::simulate_on(programs, table, cluster, calibration, ranks_here.size());
    if (!s.device.is_cpu()) count_workspaces(s.predicted, DeviceMemory::live_bytes(MemoryLabel::kActivations));
    s.say("predicted: " + format_us(s.predicted.step_us) + " a step, " +
          format_bytes(static_cast<double>(s.predicted.device_peak.bytes)) + " of device memory at its peak");
    if (!attempt.memory_table.empty())
      std::ofstream(attempt.memory_table) << "device memory at the peak of a step, as predicted:\n"
                                          << memory_table(s.predicted.device_peak);
  } else {
    s.say("not predicted: " + why);
  }
  if (run.train.replays_routing()) s.replayed = read_routing(run.train.replay_routing);
  if (run.train.records_routing())
    s.recorder = std::make_unique<RoutingRecorder>(run.train.record_routing, comm.rank(), comm.size());
  s.bindings = std::make_unique<runtime::ModelBindings>(s.model.blocks, *s.parameters, *s.groups,
                                                        runtime::parameter_update(*s.parameters, *s.optimizer, s.rate),
                                                        s.options());
  if (run.strategy.precision == "fp16") s.bindings->set_loss_scale(optim::LossScale());
  runtime::OpListener listener = peer_listener(comm);
  listener.failed = [&s, tell = listener.failed](const Error& error) {
    s.abort_servers(error);
    if (!s.bindings->is_nonfinite()) tell(error);  // all ranks throw that one, and look for its cause together
  };
  if (hooks.op_begins) {
    listener.began = [&s, tell = listener.began](const std::string& op) {
      tell(op);
      s.hooks.op_begins(op);
    };
  }
  s.executor = std::make_unique<runtime::Executor>(step, s.memory.watch(s.bindings->table()), std::move(listener),
                                                   s.bindings->lanes_of(step));
  if (s.validation)
    s.evaluation = std::make_unique<Evaluation>(step, s.model.blocks, *s.parameters, *s.groups, s.options());

  if (s.root() && run.train.max_minutes > 0) {
    s.time_limit = attempt.job_started.value_or(Clock::now()) +
                   std::chrono::duration_cast<Clock::duration>(
                       std::chrono::duration<double, std::ratio<60>>(run.train.max_minutes));
  }
  s.checkpoints =
      std::make_unique<RunCheckpoints>(run, *s.owned, comm, s.comm_peers ? *s.comm_peers : *s.peers,
                                       RunCheckpoints::Savers{s.savers, s.saver_peers ? *s.saver_peers : *s.peers},
                                       RunCheckpoints::States{*s.parameters, *s.weights, *s.optimizer, *s.bindings,
                                                              s.encoded.get(), s.served.get(), s.buffers.get()});
  s.resumed = s.checkpoints->start(s.before.changes);
  if (run.chain && s.keeps) check_initial_replicas(*s.parameters, s.keepers);
  if (s.recorder) s.recorder->open(s.resumed.step);
  if (s.served) s.start_servers();
  if (s.runs_ahead()) s.say(ahead_text(strategies::staleness(run, s.layout)));
  if (s.root()) {
    s.owned->take_over();
    s.write("config.toml", spec::to_toml(run));
    if (run.chain) s.write(spec::kChainFile, run.chain->text());  // for herd plan, which has none of the blocks
    s.write("cluster.toml", planner::to_toml(cluster));           // for herd plan --cluster
    s.write_manifest();
  }
  s.keepers.set_deadline(deadline_of(run));
  s.groups->set_deadline(deadline_of(run));  // of steps; what came before measures, or reads checkpoints
}

// Dedicated servers, which meet here, train nothing meanwhile.
void Trainer::State::set_up_savers() {
  if (layout.dedicated_servers == 0) return;
  comm_peers = checkpoint_peers(comm, std::chrono::minutes(10));
  const bool runs_ahead = strategies::staleness(run, layout) != 0;
  if (runs_ahead && !root()) return;
  savers = savers_with_servers(run, layout, world);
  if (savers.size() < world.size()) saver_peers = checkpoint_peers(savers, std::chrono::minutes(10));
}

void Trainer::State::start_servers() {
  const int64_t updates_before = resumed.updates.value_or(resumed.step);
  served->start(comm, world, updates_before, [&](const std::string& name) {
    if (control)
      control->start(name, updates_before, served->keys(), [this](int64_t key, int64_t first, int64_t count) {
        return served->weights_of(key, first, count);
      });
  });
}

void Trainer::State::set_up_keepers(bool survives) {
  if (!served || !served->runs_ahead()) return;
  const bool dedicated = layout.dedicated_servers > 0;
  const int num_keepers = dedicated ? 1 : served->num_servers();
  keeps = comm.rank() < num_keepers;
  std::vector<Rank> members;
  for (Rank rank = 0; rank < comm.size(); ++rank) {
    if ((rank < num_keepers) == keeps) members.push_back(rank);
  }
  keepers = comm.group(members, keeps ? "ranks that serve" : "ranks that only work");
  if (!dedicated) savers = keepers.share(), saver_peers = checkpoint_peers(keepers, std::chrono::minutes(10));
  const auto lost = [this, survives](int64_t rank) {
    if (!survives) comm.barrier({.name = "all ranks are there"});  // throws why not
    if (!root()) return;
    log_warning("rank " + std::to_string(rank) + " is lost; " + std::to_string(comm.size() - ahead->num_lost()) +
                " of " + std::to_string(comm.size()) + " ranks go on, and its samples are left out");
  };
  ahead = std::make_unique<RunningAhead>(*served, RunningAhead::Options{.deadline = deadline_of(run), .lost = lost});
  if (encoded && !encoded->groups().empty() && run.checkpoint.every >= 0 && num_keepers < comm.size())
    residuals = std::make_unique<WorkerResiduals>(comm, num_keepers, *encoded, *parameters,
                                                  kDeadlinesOfWork * deadline_of(run));
}

runtime::ModelBindings::Options Trainer::State::options() const {
  return {.updates_buffers = true,
          .seed = static_cast<uint64_t>(run.train.seed),
          .clip = run.optimizer.clip,
          .stop_on_nonfinite = run.health.check_finite,
          .algorithm = run.comm.algorithm == "auto" ? "" : run.comm.algorithm,
          .algorithm_axis = strategies::all_reduced_axis(run, layout),
          .encoded = encoded.get(),
          .served = served.get(),
          .delays_updates = run.strategy.delayed_update,
          .width = run.model.width,
          .link_bytes_per_us = static_cast<double>(run.memory.link) / 1e6,
          .table = &table,
          .recorded = recorder ? &recorder->routing() : nullptr,
          .replayed = replayed ? &*replayed : nullptr};
}

// A run that is set aside, or that was killed, may have left files: those of the run's folder lie in one of its id.
runtime::FilePlace Trainer::State::file_place() const {
  const std::string& id = owned->start().run;
  std::vector<fs::path> paths;
  for (const std::string& named : spec::nvme_folders(run)) paths.emplace_back(named);
  if (paths.empty()) paths.push_back(folder / "nvme" / id);
  for (fs::path& path : paths) path /= "rank" + std::to_string(comm.rank()) + ".nvme";
  return {.paths = std::move(paths), .run = id};
}

// Sets how files are asked, and their rate; returns what another start of the run may take over. Collective.
std::optional<planner::MeasuredFiles> Trainer::State::ask_files(program::Calibration& calibration) {
  const auto& strategy = run.strategy;
  const bool has_files =
      strategy.offload.starts_with("nvme") || strategy.offload_activations == "nvme" || strategy.file_layers > 0;
  if (!has_files) return std::nullopt;
  if (run.memory.nvme_bandwidth > 0) {
    calibration.nvme_bytes_per_us = static_cast<double>(run.memory.nvme_bandwidth) / 1e6;
    return std::nullopt;
  }
  const std::string drives = drives_of(file_place());
  FileCalibrationOptions options;
  options.known = known_files(folder / "cluster.toml", drives, comm);
  const FileCalibration files = calibrate_files(*parameters, options, comm);
  calibration.nvme_bytes_per_us = files.bytes_per_us;
  files_text = "a rank's at " + format_bytes(1e6 * files.bytes_per_us) + "/s, " + std::to_string(files.requests.depth) +
               " requests of " + format_bytes(static_cast<double>(files.requests.chunk)) + " at a time, " +
               (options.known    ? "as measured before"
                : files.compared ? "the fastest of several ways"
                                 : "measured");
  say("files: " + files_text);
  if (!options.known && !files.compared) return std::nullopt;
  return planner::MeasuredFiles{drives, files.requests.depth, files.requests.chunk};
}

runtime::StepInput Trainer::State::read_step(int64_t step) const {
  return data->read(samples_before(step), layout.batch, layout.micro_batch, executor->program());
}

// Runs the step's program. A norm of the gradient that is no finite number is so on all ranks: they look for its origin
// together.
void Trainer::State::execute(const runtime::StepInput& input, int64_t step) {
  bindings->begin_step(input);
  try {
    executor->run(step);
    bindings->output();  // on a device the norm is known no earlier
  } catch (const Error& error) {
    if (!bindings->is_nonfinite()) throw;
    const program::Program step_program = executor->program();
    executor.reset();  // drains it
    const std::string found =
        find_nonfinite(step_program, model.blocks, *parameters, *groups, options(), input, step, comm);
    throw SharedError(
        error.code(),
        "step " + std::to_string(step) + ": the norm of the gradient is " +
            (std::isnan(bindings->output().gradient_norm) ? "nan" : std::to_string(bindings->output().gradient_norm)) +
            "\n  first seen by " + (found.empty() ? "nobody when the step was repeated" : found) +
            "\n  fix: lower optimizer.lr, lengthen warmup_steps, or look at the data of "
            "this step");
  }
}

// Runs one optimizer step. At its end ranks sum the loss and the count of tokens, and agree whether to stop. With
// `drain` the step lasts until its gathers of weights have ended, which otherwise overlap the next step.
StepRecord Trainer::State::run_step(int64_t step, bool drain, bool& stop) {
  const auto begin = Clock::now();
  const runtime::StepInput input = read_step(step);
  DeviceMemory::reset_peak();
  const int64_t skipped = bindings->loss_scale() ? bindings->loss_scale()->skipped() : 0;
  execute(input, step);
  const runtime::StepOutput& output = bindings->output();
  int64_t staleness = 0;
  const EndOfStep end = runs_ahead() ? end_ahead(step + 1, drain, staleness)
                                     : all_reduce_end_of_step({.loss_sum = output.loss_sum,
                                                               .tokens = output.count,
                                                               .stop = wants_stop(),
                                                               .unsaved = checkpoints->failed(),
                                                               .expert_load = take_expert_load(model.routers)},
                                                              comm);
  if (run.chain && !runs_ahead()) check_counted(end.tokens, input.weight);
  const auto drain_begin = Clock::now();
  if (drain || end.stop) executor->drain();
  const double drained_ms = us_since(drain_begin) / 1e3;
  if (end.unsaved) checkpoints->wait();
  stop = end.stop;

  StepRecord record;
  record.steps = run.train.steps;
  record.device_budget = run.memory.device_budget;
  StepMetrics& metrics = record.metrics;
  metrics.step = step + 1;
  metrics.loss = end.loss_sum / static_cast<double>(end.tokens);
  metrics.grad_norm = output.gradient_norm;
  if (runs_ahead()) {
    metrics.staleness = staleness;
    metrics.ranks = comm.size() - ahead->num_lost();
  }
  metrics.lr = rate.of_step(step - skipped);
  metrics.tokens = spec::tokens_of_passes(run, end.tokens);
  metrics.step_ms = us_since(begin) / 1e3;
  metrics.tokens_per_s = 1e3 * static_cast<double>(metrics.tokens) / metrics.step_ms;
  metrics.comm_wait_ms = executor->waited_us() / 1e3 + end.waited_ms + drained_ms;
  const uint64_t bytes_now = comm.bytes_moved();
  metrics.bytes_sent = static_cast<int64_t>(bytes_now - bytes_counted);
  bytes_counted = bytes_now;
  metrics.device_bytes_peak = std::max(DeviceMemory::peak_bytes(), memory.take_peak());
  if (encoded && step >= run.strategy.compression_warmup) {
    metrics.compression_ratio = encoded->ratio();
    metrics.compression_error = encoded->take_relative_error();
  }
  if (recorder) recorder->write();
  ExpertLoad load = balance_experts(model.routers, end.expert_load);
  if (!load.by_layer.empty()) {
    metrics.expert_imbalance = worst_imbalance(load.by_layer);
    if (run.model.capacity_factor > 0) metrics.expert_dropped = load.dropped_share();
  }
  metrics.expert_load = std::move(load.by_layer);
  metrics.close_choices = std::move(load.close_by_layer);
  metrics.predicted_step_ms = predicted.step_us / 1e3;
  metrics.predicted_device_bytes_peak = predicted.device_peak.bytes;
  return record;
}

// Ends a step of a rank that waits for nobody: it tells the first server, and hears of the others' steps since its last
// one. Where all ranks meet after the step, it waits for them, and all have the same weights.
EndOfStep Trainer::State::end_ahead(int64_t steps_done, bool meets, int64_t& staleness) {
  const auto begin = Clock::now();
  ahead->report({.steps = steps_done,
                 .sum = bindings->output().loss_sum,
                 .count = bindings->output().count,
                 .wants_stop = wants_stop()});
  const bool stop = ahead->stop_after() <= steps_done;
  if (meets || stop) {
    executor->drain();
    ahead->wait_for_slowest();
    if (control && ahead->num_lost() > servers_know_lost) control->await_lost(servers_know_lost = ahead->num_lost());
    ahead->meet();  // all have pushed
    served->pull_all();
    ahead->meet();  // all have pulled
  }
  const JobProgress job = ahead->take();
  staleness = job.staleness;
  EndOfStep end{.loss_sum = job.sum, .tokens = job.count, .stop = stop};
  end.waited_ms = us_since(begin) / 1e3;
  return end;
}

std::optional<Validation> Trainer::State::validate() {
  if (!keeps) {
    ahead->meet_after_work();
    return {};
  }
  buffers->synchronize();
  std::vector<int> ranks;
  for (int rank = keepers.rank(); rank < comm.size(); rank += keepers.size()) ranks.push_back(rank);
  const std::optional<Validation> result = evaluation->run(*validation, keepers,
                                                           {.batches = run.train.eval_batches,
                                                            .batch = layout.batch,
                                                            .micro_batch = layout.micro_batch,
                                                            .figures = source->figures().size(),
                                                            .ranks = runs_ahead() ? ranks : std::vector<int>{},
                                                            .stop_requested = [this] { return wants_stop(); }});
  if (runs_ahead()) ahead->meet_after_work();
  return result;
}

void Trainer::State::save(int64_t steps_done) {
  if (control) control->begin_save(steps_done, samples_before(steps_done));
  const Position position{.step = steps_done, .sample = samples_before(steps_done)};
  if (keeps)
    checkpoints->save(position, residuals ? residuals->receive() : std::vector<NamedTensor>{});
  else if (residuals)
    residuals->send();
  if (control) control->await_saved();  // until then no server may update
  // Servers update with each push, so nobody goes on before all are copied.
  if (runs_ahead()) ahead->meet_after_work();
}

// Writes run.json: at the start, so that a run that dies has one, and last of all at the end, when all algorithms are
// known.
void Trainer::State::write_manifest(int64_t ended_at) const {
  std::map<std::string, std::string> algorithms;
  for (const AlgorithmUse& use : groups->algorithms_used()) {
    algorithms[use.collective + " of " + std::to_string(use.bytes) + " bytes"] = use.algorithm;
  }
  write("run.json", format_run_description({.run_id = owned->start().run,
                                            .launch_id = owned->job(),
                                            .initial_checkpoint = owned->start().began_from,
                                            .ended_at = ended_at,
                                            .herd_version = version(),
                                            .torch_version = TORCH_VERSION,
                                            .ranks = world.size(),
                                            .threads = at::get_num_threads(),
                                            .config = spec::to_toml(run),
                                            .automatic_strategy = strategy_summary,
                                            .algorithms = algorithms,
                                            .topology = comm.topology(),
                                            .machine = machine}));
}

// Adds the last step to the trace, of all ranks that keep one.
void Trainer::State::trace_step(double step_ms) {
  if (!keeps) return;
  if (root()) measured_memory = memory.last_step(*executor);
  measured = gather_timelines(last_step(*executor), keepers);
  if (root()) {
    measured_traffic = program::tier_traffic(executor->program(), measured);
    measured_expert_traffic = program::expert_traffic(executor->program(), measured, &bindings->expert_bytes());
  }
  append(trace, measured, traced_us);
  traced_us += 1e3 * step_ms;
}

// A report of what was done before an error, where the folder is still this run's. The error itself matters more than
// any other that this meets.
void Trainer::State::report_failure(const std::exception& error) {
  if (!root() || metrics_so_far.empty()) return;
  try {
    owned->check();
    write_report(error.what());
  } catch (const std::exception& other) {
    log_warning(std::string("no report was written: ") + other.what());
  }
}

// Writes what ran into files that a browser opens.
void Trainer::State::write_report(const std::string& failure) {
  reported = Clock::now();
  if (!trace.spans.empty()) write("trace.json", draw::timeline_trace(trace));
  RunReport report{.title = run.log.name, .metrics = metrics_so_far};
  if (!failure.empty()) report.facts.push_back({"ended by", failure.substr(0, failure.find('\n'))});
  report.facts.push_back({"layout", spec::summary(layout)});
  report.facts.push_back({"parameters", format_count(static_cast<double>(num_parameters))});
  report.facts.push_back({"threads of a rank", std::to_string(at::get_num_threads())});
  if (!files_text.empty()) report.facts.push_back({"files", files_text});
  if (resumed.step > 0) report.facts.push_back({"resumed at step", std::to_string(resumed.step)});
  if (num_restarts > 0) report.facts.push_back({"restarts of the job", std::to_string(num_restarts)});
  report.device_budget = run.memory.device_budget;
  report.first_expert_layer = run.model.dense_layers;
  if (!predicted.timeline.spans.empty()) {
    write("predicted_trace.json", draw::timeline_trace(predicted.timeline));
    report.facts.push_back({"predicted step", format_us(predicted.step_us)});
    report.facts.push_back({"predicted device peak", format_bytes(static_cast<double>(predicted.device_peak.bytes))});
    report.predicted_step_ms = predicted.step_us / 1e3;
    report.predicted_memory = predicted.memory;
    report.predicted_step = predicted.timeline;
    report.predicted_traffic = predicted.traffic;
    report.predicted_expert_traffic = predicted.expert_traffic;
  }
  if (!measured.spans.empty()) report.measured_step = measured;
  report.measured_traffic = measured_traffic;
  report.measured_expert_traffic = measured_expert_traffic;
  report.measured_memory = measured_memory;
  report.config = spec::to_toml(run);
  write("report.html", run_report_html(report));
}

TrainResult Trainer::State::train() {
  State& s = *this;
  StopSignal::note_first_step();
  if (s.before.finished) {
    world.barrier({.name = "every rank knows that the run is finished"});
    return {.steps_done = run.train.steps};
  }
  bytes_counted = comm.bytes_moved();
  TrainResult result{.steps_done = s.resumed.step};
  double average_s = 0;
  std::vector<double> steps_us;  // without the first step, which wakes memory
  std::unique_ptr<MetricsWriter> metrics;
  if (s.root())
    metrics =
        std::make_unique<MetricsWriter>(s.folder / "metrics.jsonl", s.resumed.step, owned->start().run, owned->files());
  if (s.root()) s.metrics_so_far = read_metrics(s.folder / "metrics.jsonl");
  for (int64_t step = s.resumed.step; step < run.train.steps && !result.stopped; ++step) {
    const int64_t done = step + 1;
    if (s.root()) owned->check();
    const bool traced = done - s.resumed.step > 1 && done - s.resumed.step <= 1 + run.log.trace_steps;
    s.memory.set_recording(traced && s.root());
    const bool last = done == run.train.steps;
    const auto due = [&](int64_t every) { return every > 0 && (last || done % every == 0); };
    const bool saves = run.checkpoint.every >= 0 && (last || due(run.checkpoint.every));
    // What follows waits for the step's gathers: their time is the step's, so that step times add up to the run's.
    const bool drain = traced || last || saves || due(run.train.eval_every) || due(run.health.replica_hash_every);
    StepRecord record = s.run_step(step, drain, result.stopped);
    const double took_s = record.metrics.step_ms / 1e3;
    average_s = average_s == 0 ? took_s : 0.9 * average_s + 0.1 * took_s;
    if (done - s.resumed.step > 1) steps_us.push_back(took_s * 1e6);
    record.left_s = average_s * static_cast<double>(run.train.steps - done);
    if (traced) s.trace_step(record.metrics.step_ms);
    result.steps_done = done;
    result.loss = record.metrics.loss;
    // Who asks for a stop waits for seconds only, so a validation is left out or broken off.
    if (!result.stopped && due(run.train.eval_every)) {
      if (const std::optional<Validation> mean = s.validate()) {
        record.metrics.val_loss = mean->loss;
        const std::vector<std::string> names = s.source->figures();
        for (size_t i = 0; i < names.size(); ++i) record.metrics.val_figures[names[i]] = mean->figures[i];
      }
      // Ranks that run ahead hear of it with the next step.
      result.stopped = !record.metrics.val_loss && !s.runs_ahead();
    }
    if (metrics) metrics->write(record.metrics);
    if (hooks.step_done) hooks.step_done(record.metrics);
    if (s.root()) {
      s.metrics_so_far.push_back(record.metrics);
      if (done - s.resumed.step > run.log.trace_steps && Clock::now() - s.reported > kBetweenReports) s.write_report();
    }
    if (due(run.log.every) || result.stopped || done == 1) s.print(step_line(record));
    if (record.metrics.val_loss) s.print(validation_line(record));
    if (!result.stopped && s.keeps && due(run.health.replica_hash_every))
      check_replicas(*s.parameters, s.keepers, done);
    if (saves || (run.checkpoint.every >= 0 && result.stopped)) s.save(done);
    if (drain) bytes_counted = comm.bytes_moved();
  }
  s.checkpoints->wait();
  if (s.control) s.control->end(result.steps_done);
  if (metrics) metrics->finish();
  if (const std::string saved = s.checkpoints->summary(); !saved.empty()) s.say(saved);
  if (s.predicted.step_us > 0 && !steps_us.empty()) s.say(beside_prediction(s.predicted.step_us, median(steps_us)));
  if (s.peak_gflops > 0 && !steps_us.empty())
    s.say(beside_matmul(s.flops_per_step / median(steps_us) / 1e3, s.peak_gflops));
  if (s.root()) s.write_report();
  if (s.root()) s.write_manifest(result.steps_done);
  if (result.stopped)
    s.say(why_stopped() + " after step " + std::to_string(result.steps_done) +
          (run.checkpoint.every >= 0 ? ", saved" : ", nothing saved: checkpoint.every is -1"));
  return result;
}

}  // namespace herd::train
