// Runs a rank that is a parameter server and trains nothing (strategy.dedicated_servers): the last ranks of a job. It
// keeps its share of weights and optimizer states on the host, and does what rank 0 says (server_control.h): it starts
// with the weights of rank 0, writes its states into checkpoints, and ends with the ranks that train.
// Threads: one.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <vector>

#include "herd/checkpoint/peers.h"
#include "herd/checkpoint/saver.h"
#include "herd/comm/communicator.h"
#include "herd/optim/optimizer.h"
#include "herd/param_server/parameter_server.h"
#include "herd/runtime/server_share.h"
#include "herd/spec/layout.h"
#include "herd/spec/run_file.h"
#include "herd/train/model_source.h"
#include "herd/train/owned_folder.h"
#include "herd/train/resumed_run.h"
#include "herd/train/server_control.h"

namespace herd::train {

// Returns the ranks that write checkpoints where there are dedicated servers: all, but rank 0 and the servers alone
// where ranks run ahead of each other, since it outlives no other. Collective over these.
Communicator savers_with_servers(const spec::RunFile& run, const spec::Layout& layout, Communicator& world);

class DedicatedServer {
 public:
  // Collective with the set-up of the ranks that train: `world` has these, too. Throws as Trainer.
  DedicatedServer(const ModelSource& source, spec::RunFile run, const spec::Layout& layout, Communicator& world,
                  const JobAttempt& attempt);
  ~DedicatedServer();

  // Serves until rank 0 ends it, and returns the steps that were done. Throws what ended the run.
  int64_t run();

 private:
  ServerCommand next();  // throws the error that rank 0 has
  void leave(const std::exception& error);
  void resume();
  void await_lost(int64_t lost) const;
  void save(const ServerCommand& command);
  void wait_for_save() noexcept;

  spec::RunFile run_;
  Communicator world_;
  ServerCommands commands_;
  std::unique_ptr<CheckpointPeers> peers_, saver_peers_;
  std::unique_ptr<OwnedFolder> owned_;
  ResumedRun before_;
  Communicator savers_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::unique_ptr<runtime::ServerShare> share_;
  std::unique_ptr<CheckpointSaver> saver_;
  int64_t updates_before_ = 0;
  bool is_told_ = false;                     // rank 0 has said that all ranks have an error
  std::unique_ptr<ParameterServer> server_;  // ends before what it uses
};

}  // namespace herd::train
