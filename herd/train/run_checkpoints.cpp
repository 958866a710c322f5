#include "herd/train/run_checkpoints.h"

#include <ATen/Parallel.h>

#include "herd/base/error.h"
#include "herd/base/log.h"
#include "herd/base/units.h"
#include "herd/base/version.h"
#include "herd/checkpoint/loader.h"
#include "herd/convert/convert.h"
#include "herd/convert/gpt2_folder.h"
#include "herd/storage/checkpoint_folder.h"
#include "herd/train/loss_scale_notes.h"
#include "herd/train/model_tensors.h"
#include "herd/train/same_model.h"
#include "herd/train/shared_error.h"

namespace herd::train {

namespace fs = std::filesystem;

RunCheckpoints::RunCheckpoints(const spec::RunFile& run, const OwnedFolder& folder, Communicator& comm,
                               CheckpointPeers& peers, const States& states)
    : run_(run),
      folder_(folder),
      comm_(comm),
      states_(states),
      peers_(peers),
      saver_({.root = folder.checkpoints(),
              .keep = static_cast<int>(run.checkpoint.keep),
              .herd_version = version(),
              .run = folder.start().run},
             peers) {}

Position RunCheckpoints::start() {
  if (const auto& checkpoint = folder_.start().checkpoint) return resume_from(*checkpoint);
  if (run_.model.weights != "none") take_weights();
  return {};
}

fs::path RunCheckpoints::resolved(const fs::path& path) const {
  return peers_.from_root(comm_.rank() == 0 ? resolve_checkpoint(path).string() : "");
}

void RunCheckpoints::take_weights() {
  const fs::path path = run_.model.weights;
  if (convert::is_gpt2_folder(path)) {
    throw Error(Code::kBadConfig, "model.weights = \"" + path.string() + "\" is no checkpoint of herd" +
                                      "\n  fix: herd checkpoint convert " + path.string() + " --to herd --out FOLDER");
  }
  const fs::path checkpoint = resolved(path);
  CheckpointReader reader(checkpoint);
  check_same_model(reader.manifest(), run_, checkpoint.string());
  inherit_notes(reader.manifest());
  std::vector<NamedTensor> tensors = own_weights(states_.parameters);
  load_weights(reader, tensors);
  states_.weights.refresh();
  say("starts with the weights of " + checkpoint.string());
}

Position RunCheckpoints::resume_from(const fs::path& checkpoint) {
  CheckpointReader reader(checkpoint);
  const auto& notes = reader.manifest().notes;
  const auto holds = notes.find(convert::kHoldsNote);
  if (holds != notes.end() && holds->second == convert::kHoldsWeights) {
    throw Error(Code::kBadConfig, "the checkpoint " + checkpoint.string() + " holds weights alone, so no run resumes " +
                                      "from it\n  fix: checkpoint.resume = \"none\" and model.weights = \"" +
                                      checkpoint.string() + "\"");
  }
  std::vector<NamedTensor> tensors = own_tensors(states_.parameters, states_.optimizer);
  load_tensors(reader, tensors, tensor_names(states_.parameters, states_.optimizer));
  states_.weights.refresh();
  inherit_notes(reader.manifest());
  if (states_.bindings.loss_scale()) states_.bindings.set_loss_scale(loss_scale_of(notes, checkpoint.string()));
  say("resumed from " + checkpoint.string() + ", step " + std::to_string(reader.manifest().step));
  return {reader.manifest().step, reader.manifest().samples};
}

// What a checkpoint says of its tokens goes on with its weights.
void RunCheckpoints::inherit_notes(const Manifest& manifest) {
  for (const char* name : {"tokenizer", "begin_of_text", "end_of_text"}) {
    if (const auto note = manifest.notes.find(name); note != manifest.notes.end()) inherited_.insert(*note);
  }
}

void RunCheckpoints::save(const Position& done) {
  std::map<std::string, std::string> notes = {{"ranks", std::to_string(comm_.size())},
                                              {"threads", std::to_string(at::get_num_threads())}};
  notes.insert(inherited_.begin(), inherited_.end());
  if (const auto& scale = states_.bindings.loss_scale()) note_loss_scale(*scale, notes);
  saving([&] {
    saver_.save({.step = done.step, .samples = done.sample, .config = spec::to_toml(run_), .notes = notes},
                saved_tensors(states_.parameters, states_.optimizer));
  });
}

void RunCheckpoints::wait() {
  saving([this] { saver_.wait(); });
}

void RunCheckpoints::saving(const std::function<void()>& action) const {
  try {
    action();
  } catch (const Error& error) {
    if (error.code() == Code::kStorage) throw SharedError(error.code(), error.message());
    throw;
  }
}

std::string RunCheckpoints::summary() const {
  const CheckpointSaver::Times& times = saver_.times();
  if (times.saves == 0) return "";
  return "saved " + std::to_string(times.saves) + (times.saves == 1 ? " checkpoint" : " checkpoints") +
         ": training stood still for " + format_us(1e3 * times.stood_ms) + ", writing took " +
         format_us(1e3 * times.wrote_ms) + " beside it, from " +
         format_bytes(static_cast<double>(saver_.snapshot_bytes())) + " of host memory in rank 0";
}

void RunCheckpoints::say(const std::string& text) const {
  if (comm_.rank() == 0) log::info(text);
}

}  // namespace herd::train
