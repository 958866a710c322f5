// Defines how a run saves itself, and where it begins: at its own newest checkpoint, at the one that the run file
// names, with the weights of another run, or with what the seed gives. Threads: one; collective, but for failed().
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "herd/checkpoint/saver.h"
#include "herd/comm/communicator.h"
#include "herd/optim/optimizer.h"
#include "herd/runtime/flat_parameters.h"
#include "herd/runtime/model_bindings.h"
#include "herd/runtime/whole_weights.h"
#include "herd/spec/run_file.h"
#include "herd/train/owned_folder.h"

namespace herd::train {

// How far a run is.
struct Position {
  int64_t step = 0;    // optimizer steps done
  int64_t sample = 0;  // global samples consumed
};

class RunCheckpoints {
 public:
  // Of what it borrows, a checkpoint holds the states and is loaded into them.
  struct States {
    runtime::FlatParameters& parameters;
    runtime::WholeWeights& weights;
    const optim::Optimizer& optimizer;
    runtime::ModelBindings& bindings;  // for the loss scale
  };
  // One for each save in the folder. Borrows `run`, `folder` and `peers`, too.
  RunCheckpoints(const spec::RunFile& run, const OwnedFolder& folder, Communicator& comm, CheckpointPeers& peers,
                 const States& states);

  // Loads what the run begins with, and says what that was. Throws as CheckpointReader and load_tensors(); kBadConfig
  // for weights of another model, or of which no run resumes.
  Position start();

  // Copies the states; they are written while training goes on. Nothing may be updating them. Here, in wait() and
  // after failed() a failure is thrown that all ranks have in the same words.
  void save(const Position& done);
  void wait();
  bool failed() const { return saver_.failed(); }  // the save in flight, here: wait() throws at once

  std::string summary() const;  // how long training stood still for it; empty if nothing was saved

 private:
  Position resume_from(const std::filesystem::path& checkpoint);
  void begin_with_weights();
  Position load();
  void inherit(const Manifest& manifest, const std::filesystem::path& folder);
  void note_data();
  void saving(const std::function<void()>& action) const;
  void say(const std::string& text) const;

  const spec::RunFile& run_;
  const OwnedFolder& folder_;
  Communicator& comm_;
  States states_;
  CheckpointPeers& peers_;
  CheckpointSaver saver_;
  std::map<std::string, std::string> inherited_;  // notes of what the run began with: whose tokens its weights know
  // Of rank 0: the tokenizer of what the run began with, which its checkpoints keep.
  std::shared_ptr<const std::map<std::string, std::string>> companions_;
};

}  // namespace herd::train
