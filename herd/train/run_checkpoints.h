// Saves a run, and decides where it begins. That may be its newest checkpoint, one that the run file names, another
// run's weights, or weights made from the seed. Threads: one; collective, but for failed().
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "herd/checkpoint/named_tensor.h"
#include "herd/checkpoint/saver.h"
#include "herd/comm/communicator.h"
#include "herd/optim/optimizer.h"
#include "herd/runtime/encoded_gradients.h"
#include "herd/runtime/flat_parameters.h"
#include "herd/runtime/model_bindings.h"
#include "herd/runtime/served_parameters.h"
#include "herd/runtime/weight_refresher.h"
#include "herd/spec/run_file.h"
#include "herd/storage/small_file.h"
#include "herd/train/model_buffers.h"
#include "herd/train/owned_folder.h"

namespace herd::train {

// Says how far a run is.
struct Position {
  int64_t step = 0;                     // optimizer steps done
  int64_t sample = 0;                   // global samples consumed
  std::optional<int64_t> updates = {};  // of each weight by parameter servers, where not one a step
};

// Returns what a shard of a run with parameter servers states of itself.
std::map<std::string, std::string> shard_notes_of_servers(int64_t step, int64_t updates);

class RunCheckpoints {
 public:
  // A checkpoint saves these and is loaded into them. It borrows all.
  struct States {
    runtime::FlatParameters& parameters;
    runtime::WeightRefresher& weights;
    const optim::Optimizer& optimizer;
    runtime::ModelBindings& bindings;              // holds the loss scale
    runtime::EncodedGradients* encoded = nullptr;  // null where gradients are summed without residuals
    runtime::ServedParameters* served = nullptr;   // null where ranks update by themselves
    ModelBuffers* buffers = nullptr;               // null where there are none to save
  };
  // The ranks that save: all, or those that serve where ranks run ahead of each other. Dedicated servers are among
  // them.
  struct Savers {
    Communicator& comm;
    CheckpointPeers& peers;
  };
  // Borrows `run`, `folder`, `peers` and `savers`, too.
  RunCheckpoints(const spec::RunFile& run, OwnedFolder& folder, Communicator& comm, CheckpointPeers& peers,
                 const Savers& savers, const States& states);

  // Loads what the run begins with, and logs what that is; `changes` says what differs from the run that the checkpoint
  // is of (resumed_run.h). Throws as CheckpointReader and load_tensors(); kBadConfig for weights of another model,
  // and for NaN or infinity in what is loaded.
  Position start(const std::string& changes);

  // Copies the states, and writes them while training goes on. REQUIRES that nothing updates them during the copy.
  // `of_others` are residuals of ranks that do not save. Collective over the savers.
  // A failed save is thrown by the next save() or wait(), with the same words on all ranks.
  void save(const Position& done, const std::vector<NamedTensor>& of_others = {});
  void wait();
  // Tells whether this rank's save in flight failed: wait() then throws at once.
  bool failed() const { return saver_.failed(); }

  std::string summary() const;  // says how long training waited for saves; empty if nothing was saved

 private:
  Position resume_from(const std::filesystem::path& checkpoint, const std::string& changes);
  void add_buffers(const std::set<std::string>& available, std::vector<NamedTensor>& tensors,
                   std::set<std::string>& names) const;
  std::string add_residuals(const Manifest& manifest, std::vector<NamedTensor>& tensors) const;
  void begin_with_weights();
  void take_counts(const std::filesystem::path& checkpoint) const;
  Position load(const std::string& changes);
  // Adds the gradients that wait for a delayed update to what is read, and the factor that clips them. Returns what to
  // say where the run does not delay updates.
  std::string add_waiting_gradients(const Manifest& manifest, const std::string& checkpoint,
                                    std::vector<NamedTensor>& tensors) const;
  // Takes over notes and tokenizer files of the checkpoint or folder that the run begins with.
  void inherit(const Manifest& manifest, const std::filesystem::path& folder);
  void note_data();
  void take_tokenizer_of_data();
  void saving(const std::function<void()>& action) const;
  void say(const std::string& text) const;

  const spec::RunFile& run_;
  const OwnedFolder& folder_;
  Communicator& comm_;
  States states_;
  CheckpointPeers& peers_;
  Savers savers_;
  CheckpointSaver saver_;
  // Holds the notes of the checkpoint that the run began with, which say the tokenizer and the ends of text of its
  // weights.
  std::map<std::string, std::string> inherited_;
  const std::map<std::string, std::string> data_notes_;  // data_identity.h
  // Holds, on rank 0, the tokenizer files of the data, else of what the run began with; each checkpoint of the run gets
  // a copy.
  std::shared_ptr<const std::map<std::string, SmallFile>> companions_;
};

}  // namespace herd::train
