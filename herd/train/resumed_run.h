// Decides whether a run may go on from the checkpoint that its folder names, before anything large is allocated.
// Threads: as CheckpointPeers.
#pragma once

#include <string>

#include "herd/checkpoint/peers.h"
#include "herd/spec/run_file.h"
#include "herd/storage/run_folder.h"

namespace herd::train {

struct ResumedRun {
  bool finished = false;  // nothing is left to train: the run's folder stays as it is
  std::string changes;    // "optimizer.lr 0.003 -> 0.001, ranks 2 -> 4"; empty where all is as it was
};

// Compares the run with the checkpoint that `start` goes on from, on rank 0 of `num_ranks`, which knows `folder`. Logs
// where the run is finished. Throws the same error on every rank, kBadConfig: for a checkpoint of weights alone, as
// check_goes_on(), compare_data() and describe_finished_run(), and for a new run that has nothing to train. Collective.
ResumedRun check_resumed_run(const spec::RunFile& run, const std::filesystem::path& folder, const RunStart& start,
                             int num_ranks, CheckpointPeers& peers);

}  // namespace herd::train
