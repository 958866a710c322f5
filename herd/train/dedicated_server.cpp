#include "herd/train/dedicated_server.h"

#include <chrono>
#include <cmath>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "herd/base/error.h"
#include "herd/base/log.h"
#include "herd/base/version.h"
#include "herd/checkpoint/checkpoint_peers.h"
#include "herd/checkpoint/loader.h"
#include "herd/spec/build_model_table.h"
#include "herd/strategies/server_sync.h"
#include "herd/strategies/strategy_table.h"
#include "herd/train/check_finite.h"
#include "herd/train/model_tensors.h"
#include "herd/train/run_checkpoints.h"
#include "herd/train/run_optimizer.h"
#include "herd/train/run_servers.h"
#include "herd/train/shared_error.h"
#include "herd/train/stop_signal.h"

namespace herd::train {
namespace {

constexpr std::chrono::milliseconds kBetweenLooks{2};  // at how many ranks are lost

}  // namespace

Communicator savers_with_servers(const spec::RunFile& run, const spec::Layout& layout, Communicator& world) {
  if (strategies::staleness(run, layout) == 0) return world.share();
  std::vector<Rank> members = {0};
  for (Rank rank = layout.world_size; rank < world.size(); ++rank) members.push_back(rank);
  return world.group(members, "ranks that save");
}

DedicatedServer::DedicatedServer(const ModelSource& source, spec::RunFile run, const spec::Layout& layout,
                                 Communicator& world, const JobAttempt& attempt)
    : run_(std::move(run)), world_(world.share()), commands_(world_), savers_(world.share()) {
  try {
    peers_ = checkpoint_peers(world_, std::chrono::minutes(10));
    owned_ = std::make_unique<OwnedFolder>(run_, *peers_, attempt);
    before_ = check_resumed_run(run_, owned_->path(), owned_->start(), layout.world_size, *peers_);
    if (before_.finished) return;
    savers_ = savers_with_servers(run_, layout, world_);
    if (savers_.size() < world_.size()) saver_peers_ = checkpoint_peers(savers_, std::chrono::minutes(10));
    const spec::ModelTable table = spec::program_table(run_, layout.micro_batch);
    const program::Program step = strategies::compile_step(run_, table, layout, 0);
    const runtime::Groups groups = source.make(run_, table, step, c10::kCPU).groups;
    optimizer_ = make_optimizer(run_.optimizer);
    share_ = std::make_unique<runtime::ServerShare>(
        groups, step, served_options(run_, table, layout, groups, learning_rate(run_)), world_.rank());
    saver_ = std::make_unique<CheckpointSaver>(CheckpointSaver::Options{.root = owned_->checkpoints(),
                                                                        .keep = static_cast<int>(run_.checkpoint.keep),
                                                                        .herd_version = version(),
                                                                        .run = owned_->start().run},
                                               saver_peers_ ? *saver_peers_ : *peers_, owned_->files());
    resume();
    const ServerCommand start = next();
    updates_before_ = start.updates;
    server_ = start_server(commands_, start, *share_, world_);
  } catch (const std::exception& error) {
    leave(error);
    throw;
  }
}

DedicatedServer::~DedicatedServer() = default;

ServerCommand DedicatedServer::next() {
  const ServerCommand command = commands_.next();
  if (command.kind != ServerCommand::Kind::kFail) return command;
  is_told_ = true;
  throw SharedError(static_cast<Code>(command.code), "rank 0 has the error");
}

// Others may still be about to get an error that all ranks have, until rank 0 has said so: a rank that leaves would
// give them another one.
void DedicatedServer::leave(const std::exception& error) {
  if (server_) server_->abort("rank " + std::to_string(world_.rank()) + ": " + error.what());
  if (dynamic_cast<const SharedError*>(&error) == nullptr) {
    commands_.abort(error.what());
    return tell_peers(world_, error);
  }
  try {
    while (!is_told_) next();
  } catch (const std::exception&) {  // rank 0 has left
  }
}

void DedicatedServer::resume() {
  const auto& checkpoint = owned_->start().checkpoint;
  if (!checkpoint) return;
  CheckpointReader reader(*checkpoint);
  std::vector<NamedTensor> states = served_tensors(*share_, *optimizer_);
  std::set<std::string> names;  // the ranks that train know which they are
  for (const auto& [name, tensor] : reader.manifest().tensors) names.insert(name);
  for (const NamedTensor& state : states) names.insert(state.name);
  load_tensors(reader, states, names);
  if (run_.health.check_finite) check_finite(states, "the checkpoint " + checkpoint->string());
}

int64_t DedicatedServer::run() {
  StopSignal::note_first_step();
  if (before_.finished) {
    world_.barrier({.name = "every rank knows that the run is finished"});
    return run_.train.steps;
  }
  try {
    while (true) {
      const ServerCommand command = next();
      switch (command.kind) {
        case ServerCommand::Kind::kAwaitLost:
          await_lost(command.lost);
          commands_.answer();
          break;
        case ServerCommand::Kind::kSave:
          save(command);
          commands_.answer();
          break;
        case ServerCommand::Kind::kEnd:
          wait_for_save();
          return command.step;
        default:
          throw Error(Code::kBug, "rank 0 starts a server twice");
      }
    }
  } catch (const std::exception& error) {
    if (is_told_) wait_for_save();
    leave(error);
    throw;
  }
}

void DedicatedServer::await_lost(int64_t lost) const {
  const auto deadline = std::chrono::duration<double>(run_.comm.deadline_s);
  const auto until = std::chrono::steady_clock::now() + deadline;
  while (server_->num_lost() < lost) {
    if (std::chrono::steady_clock::now() >= until)
      throw Error(Code::kTimeout, "this server has not heard within " + std::to_string(run_.comm.deadline_s) +
                                      " s that a rank is lost, as the first one has\n  fix: see whether it still runs");
    std::this_thread::sleep_for(kBetweenLooks);
  }
}

// A save that the disk refuses fails on all ranks, of which rank 0 says so.
void DedicatedServer::save(const ServerCommand& command) {
  const int64_t updates = updates_before_ + share_->updates(savers_, server_.get());
  try {
    saver_->save(
        {.step = command.step, .samples = command.sample, .shard_notes = shard_notes_of_servers(command.step, updates)},
        served_tensors(*share_, *optimizer_));
  } catch (const Error& error) {
    if (error.code() != Code::kStorage) throw;
  }
}

void DedicatedServer::wait_for_save() noexcept {
  try {
    saver_->wait();
  } catch (const std::exception&) {  // all ranks have the error, and rank 0 says it
  }
}

}  // namespace herd::train
