#include "herd/train/run_checkpoints.h"

#include <ATen/Parallel.h>

#include <charconv>

#include "herd/base/error.h"
#include "herd/base/log.h"
#include "herd/base/units.h"
#include "herd/base/version.h"
#include "herd/checkpoint/loader.h"
#include "herd/convert/cast.h"
#include "herd/convert/companions.h"
#include "herd/convert/text_ends.h"
#include "herd/convert/weight_source.h"
#include "herd/data/token_folder.h"
#include "herd/spec/same_model.h"
#include "herd/storage/checkpoint_folder.h"
#include "herd/storage/checkpoint_reader.h"
#include "herd/storage/residual_name.h"
#include "herd/storage/waiting_gradient_name.h"
#include "herd/train/check_finite.h"
#include "herd/train/data_identity.h"
#include "herd/train/loss_scale_notes.h"
#include "herd/train/model_tensors.h"
#include "herd/train/shared_error.h"
#include "herd/train/take_weights.h"

namespace herd::train {

namespace fs = std::filesystem;

namespace {

constexpr const char* kUpdatesNote = "server updates";
constexpr const char* kFactorNote = "factor of the waiting gradient";

// Returns digits that give the same number back.
std::string text_of(float number) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, number).ptr};
}

float factor_of(const std::string& note, const std::string& checkpoint) {
  float factor = 0;
  const char* const end = note.data() + note.size();
  const auto parsed = std::from_chars(note.data(), end, factor);
  if (parsed.ptr == end && parsed.ec == std::errc() && factor >= 0 && factor <= 1) return factor;
  throw Error(Code::kCorruptFile, checkpoint + ": the note \"" + kFactorNote + "\" is \"" + note +
                                      "\", which is no factor in [0, 1]\n  fix: resume from another checkpoint");
}

std::optional<int64_t> updates_of(const Manifest& manifest, const std::string& checkpoint) {
  const auto note = manifest.notes.find(kUpdatesNote);
  if (note == manifest.notes.end()) return {};
  int64_t updates = -1;
  const char* const end = note->second.data() + note->second.size();
  const auto parsed = std::from_chars(note->second.data(), end, updates);
  if (parsed.ptr == end && parsed.ec == std::errc() && updates >= 0) return updates;
  throw Error(Code::kCorruptFile, checkpoint + ": the note \"" + kUpdatesNote + "\" is \"" + note->second +
                                      "\", which is no count of updates\n  fix: resume from another checkpoint");
}

}  // namespace

std::map<std::string, std::string> shard_notes_of_servers(int64_t step, int64_t updates) {
  return {{"step", std::to_string(step)}, {kUpdatesNote, std::to_string(updates)}};
}

RunCheckpoints::RunCheckpoints(const spec::RunFile& run, OwnedFolder& folder, Communicator& comm,
                               CheckpointPeers& peers, const Savers& savers, const States& states)
    : run_(run),
      folder_(folder),
      comm_(comm),
      states_(states),
      peers_(peers),
      savers_(savers),
      saver_({.root = folder.checkpoints(),
              .keep = static_cast<int>(run.checkpoint.keep),
              .herd_version = version(),
              .run = folder.start().run},
             savers.peers, folder.files()),
      data_notes_(data_notes(run)) {}

Position RunCheckpoints::start(const std::string& changes) {
  const Position position = load(changes);
  note_data();
  return position;
}

// Gives the checkpoints the tokenizer that made the data. One that the weights came with is kept where it is the same;
// otherwise the weights learn other tokens by now.
void RunCheckpoints::take_tokenizer_of_data() {
  const fs::path path = fs::path(run_.data.path) / kTokenizerFile;
  if (!fs::exists(path)) return;  // the tokens alone suffice to train
  SmallFile tokenizer = read_small_file(path);
  convert::Companions companions;
  if (companions_) companions = *companions_;
  const auto given = companions.find(convert::kSentencePiece);
  if (given != companions.end() && given->second.bytes == tokenizer.bytes) return;
  companions_ =
      std::make_shared<convert::Companions>(convert::Companions{{convert::kSentencePiece, std::move(tokenizer)}});
}

// Notes which ids end a text of another tokenizer: those that the data folder states, else those of the weights.
void RunCheckpoints::note_data() {
  if (run_.data.kind != "tokens") return;
  const TokenFolderFacts data = read_token_folder(run_.data.path);
  if (data.has_tokenizer) {
    for (const char* name : {"tokenizer", "begin_of_text", "end_of_text"}) inherited_.erase(name);
    if (comm_.rank() == 0) take_tokenizer_of_data();
    return;
  }
  convert::Notes data_notes;
  convert::TextEnds ends;
  if (data.end_of_text) ends.end = {*data.end_of_text};
  convert::write_text_ends(ends, data_notes);
  if (data.end_of_text)
    for (auto& [name, ids] : data_notes) inherited_.insert_or_assign(name, ids);
  else
    inherited_.merge(data_notes);
  inherited_.try_emplace("tokenizer", "of the program that wrote the ids in " + run_.data.path);
}

Position RunCheckpoints::load(const std::string& changes) {
  if (const auto& checkpoint = folder_.start().checkpoint) return resume_from(*checkpoint, changes);
  if (run_.model.weights != "none") begin_with_weights();
  return {};
}

void RunCheckpoints::begin_with_weights() {
  const fs::path found = comm_.rank() == 0 ? convert::find_weights(run_.model.weights) : fs::path();
  const auto source = convert::open_weights(peers_.broadcast_from_root(found.string()));
  spec::check_same_model(source->run().model, run_.model, source->path().string());
  inherit(source->manifest(), source->path());
  std::vector<NamedTensor> tensors = own_weights(states_.parameters);
  std::set<std::string> available, names;
  for (const convert::Weight& weight : source->weights()) available.insert(weight.name);
  add_buffers(available, tensors, names);
  take_weights(*source, tensors);
  take_counts(source->path());
  states_.weights.refresh();
  say("starts with the weights of " + source->path().string());
}

// Takes the buffers that weights are no source of, since they are integers or fp64, as the checkpoint has them.
void RunCheckpoints::take_counts(const fs::path& checkpoint) const {
  if (states_.buffers == nullptr || !fs::exists(checkpoint / kManifestName)) return;
  CheckpointReader reader(checkpoint);
  const auto& saved = reader.manifest().tensors;
  std::set<std::string> names;
  for (const auto& [name, tensor] : saved) names.insert(name);
  std::vector<NamedTensor> tensors = states_.buffers->own();
  std::erase_if(tensors, [&](const NamedTensor& tensor) {
    const auto found = saved.find(tensor.name);
    return found == saved.end() || convert::is_weight_type(found->second.dtype);
  });
  load_tensors(reader, tensors, names);
}

Position RunCheckpoints::resume_from(const fs::path& checkpoint, const std::string& changes) {
  CheckpointReader reader(checkpoint);
  std::vector<NamedTensor> tensors = own_tensors(states_.parameters, states_.optimizer);
  std::set<std::string> names = tensor_names(states_.parameters, states_.optimizer);
  for (const auto& [name, tensor] : reader.manifest().tensors) {
    if (is_residual_name(name) || is_waiting_gradient_name(name)) names.insert(name);
  }
  if (states_.served != nullptr) {
    const auto served = served_tensors(states_.served->share(), states_.optimizer);
    tensors.insert(tensors.end(), served.begin(), served.end());
  }
  std::set<std::string> available;
  for (const auto& [name, tensor] : reader.manifest().tensors) available.insert(name);
  add_buffers(available, tensors, names);
  const std::string left_out = add_residuals(reader.manifest(), tensors) +
                               add_waiting_gradients(reader.manifest(), checkpoint.string(), tensors);
  load_tensors(reader, tensors, names);
  if (run_.health.check_finite) check_finite(tensors, "the checkpoint " + checkpoint.string());
  states_.weights.refresh();
  inherit(reader.manifest(), checkpoint);
  if (states_.bindings.loss_scale())
    states_.bindings.set_loss_scale(loss_scale_of(reader.manifest().notes, checkpoint.string()));
  say("resumed from " + checkpoint.string() + ", step " + std::to_string(reader.manifest().step) +
      (changes.empty() ? "" : "; changed: " + changes) + left_out);
  return {reader.manifest().step, reader.manifest().samples, updates_of(reader.manifest(), checkpoint.string())};
}

// Adds the buffers that are there to what is read. Others keep what the run gives them: a bias that has not moved.
void RunCheckpoints::add_buffers(const std::set<std::string>& available, std::vector<NamedTensor>& tensors,
                                 std::set<std::string>& names) const {
  if (states_.buffers == nullptr) return;
  for (const std::string& name : states_.buffers->names()) {
    if (available.contains(name)) names.insert(name);
  }
  for (NamedTensor& tensor : states_.buffers->own()) {
    if (available.contains(tensor.name)) tensors.push_back(std::move(tensor));
  }
}

// Adds what this rank has lost by encoding gradients to what is read. Residuals belong to a rank among as many: another
// number of ranks, another layout or another codec starts with none. Returns what to say of that.
std::string RunCheckpoints::add_residuals(const Manifest& manifest, std::vector<NamedTensor>& tensors) const {
  if (states_.encoded == nullptr) return "";
  const auto ranks = manifest.notes.find("ranks");
  bool fits = ranks != manifest.notes.end() && ranks->second == std::to_string(comm_.size());
  const std::vector<NamedTensor> own = residual_tensors(*states_.encoded, states_.parameters, comm_.rank());
  for (const NamedTensor& tensor : own) {
    const auto saved = manifest.tensors.find(tensor.name);
    fits = fits && saved != manifest.tensors.end() && saved->second.shape == tensor.shape;
  }
  if (!fits) return "; what encoding gradients has lost before is left out: it is of other ranks, or of another codec";
  tensors.insert(tensors.end(), own.begin(), own.end());
  // Where ranks ran ahead of each other, some may have been lost before the save.
  for (const int group : states_.encoded->groups()) {
    for (int rank = 0; rank < comm_.size(); ++rank) {
      if (!manifest.tensors.contains(residual_name(rank, states_.parameters.group(group).name())))
        return "; what encoding gradients has lost on ranks that were lost before is left out";
    }
  }
  return "";
}

std::string RunCheckpoints::add_waiting_gradients(const Manifest& manifest, const std::string& checkpoint,
                                                  std::vector<NamedTensor>& tensors) const {
  const auto factor = manifest.notes.find(kFactorNote);
  if (factor == manifest.notes.end()) return "";
  if (!run_.strategy.delayed_update)
    return "; the gradient that waits for its update is left out, since updates are no longer delayed";
  const std::vector<NamedTensor> own = own_waiting_gradients(states_.parameters);
  tensors.insert(tensors.end(), own.begin(), own.end());
  states_.bindings.set_waiting_gradient(factor_of(factor->second, checkpoint));
  return "";
}

// Keeps what a checkpoint says of its tokens, and its tokenizer, for the checkpoints of this run.
void RunCheckpoints::inherit(const Manifest& manifest, const fs::path& folder) {
  for (const char* name : {"tokenizer", "begin_of_text", "end_of_text"}) {
    if (const auto note = manifest.notes.find(name); note != manifest.notes.end()) inherited_.insert(*note);
  }
  if (comm_.rank() == 0) companions_ = std::make_shared<convert::Companions>(convert::read_companions(folder));
}

void RunCheckpoints::save(const Position& done, const std::vector<NamedTensor>& of_others) {
  std::map<std::string, std::string> notes = {{"ranks", std::to_string(comm_.size())},
                                              {"threads", std::to_string(at::get_num_threads())}};
  notes.insert(inherited_.begin(), inherited_.end());
  notes.insert(data_notes_.begin(), data_notes_.end());
  std::vector<NamedTensor> tensors =
      states_.served != nullptr && states_.served->runs_ahead()
          ? weights_of_server(*states_.served, states_.parameters, savers_.comm.rank() == 0)
          : saved_tensors(states_.parameters, states_.optimizer);
  if (states_.encoded != nullptr) {
    const auto residuals = residual_tensors(*states_.encoded, states_.parameters, comm_.rank());
    tensors.insert(tensors.end(), residuals.begin(), residuals.end());
    tensors.insert(tensors.end(), of_others.begin(), of_others.end());
  }
  if (states_.served != nullptr) {
    const auto served = served_tensors(states_.served->share(), states_.optimizer);
    tensors.insert(tensors.end(), served.begin(), served.end());
  }
  if (states_.bindings.has_waiting_gradient()) {
    const auto waiting = saved_waiting_gradients(states_.parameters);
    tensors.insert(tensors.end(), waiting.begin(), waiting.end());
    notes[kFactorNote] = text_of(states_.bindings.waiting_factor());
  }
  std::map<std::string, std::string> shard_notes;
  if (states_.served != nullptr) {
    shard_notes = shard_notes_of_servers(done.step, states_.served->updates(savers_.comm));
    notes[kUpdatesNote] = shard_notes.at(kUpdatesNote);
  }
  if (states_.buffers != nullptr) {
    states_.buffers->synchronize();
    const std::vector<NamedTensor> buffers = states_.buffers->saved();
    tensors.insert(tensors.end(), buffers.begin(), buffers.end());
  }
  if (const auto& scale = states_.bindings.loss_scale()) note_loss_scale(*scale, notes);
  saving([&] {
    saver_.save({.step = done.step,
                 .samples = done.sample,
                 .config = spec::to_toml(run_),
                 .notes = notes,
                 .shard_notes = shard_notes,
                 .extra_files = companions_},
                tensors);
  });
  states_.parameters.forget_mapped();
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
         ": training stood still for " + format_us(1e3 * times.blocked_ms) + ", writing took " +
         format_us(1e3 * times.background_ms) + " beside it, from " +
         format_bytes(static_cast<double>(saver_.snapshot_bytes())) + " of host memory in rank 0";
}

void RunCheckpoints::say(const std::string& text) const {
  if (comm_.rank() == 0) log_info(text);
}

}  // namespace herd::train
