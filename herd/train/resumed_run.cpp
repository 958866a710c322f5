#include "herd/train/resumed_run.h"

#include "herd/base/error.h"
#include "herd/base/log.h"
#include "herd/convert/convert.h"
#include "herd/spec/changed_keys.h"
#include "herd/storage/manifest.h"
#include "herd/train/data_identity.h"
#include "herd/train/shared_error.h"

namespace herd::train {
namespace {

namespace fs = std::filesystem;

void refuse_weights_alone(const Manifest& manifest, const std::string& checkpoint) {
  const auto holds = manifest.notes.find(convert::kContentNote);
  if (holds == manifest.notes.end() || holds->second != convert::kWeightsOnly) return;
  throw Error(Code::kBadConfig, "the checkpoint " + checkpoint + " holds weights alone, so no run resumes " +
                                    "from it\n  fix: checkpoint.resume = \"none\" and model.weights = \"" + checkpoint +
                                    "\"");
}

[[noreturn]] void refuse_nothing_to_train(const spec::RunFile& run, int64_t done, const std::string& checkpoint) {
  throw Error(Code::kBadConfig, "a run that begins with the checkpoint " + checkpoint + " has done its " +
                                    std::to_string(done) +
                                    " steps, and train.steps = " + std::to_string(run.train.steps) +
                                    " leaves nothing to train\n  fix: train.steps = " + std::to_string(2 * done));
}

std::string number_changes(const Manifest& manifest, int num_ranks) {
  const auto ranks = manifest.notes.find("ranks");
  const std::string now = std::to_string(num_ranks);
  return ranks == manifest.notes.end() || ranks->second == now ? "" : "ranks " + ranks->second + " -> " + now;
}

std::string join(std::initializer_list<std::string> parts) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() || part.empty() ? "" : ", ") + part;
  return text;
}

// Returns "finished", or "goes on" and what differs.
std::string look_at(const spec::RunFile& run, const fs::path& folder, const RunStart& start, int num_ranks) {
  const std::string checkpoint = start.checkpoint->string();
  const Manifest manifest = read_manifest(checkpoint);
  refuse_weights_alone(manifest, checkpoint);
  std::vector<spec::ChangedKey> changed;
  if (!manifest.config.empty())
    changed = spec::changed_keys(spec::parse_run_text(manifest.config, checkpoint + "/" + kManifestName), run);
  if (start.begins_with_checkpoint()) {
    if (manifest.step >= run.train.steps) refuse_nothing_to_train(run, manifest.step, checkpoint);
  } else if (is_finished(folder, manifest.step, run.train.steps)) {
    log_info(spec::describe_finished_run(changed, manifest.step, run));
    return "finished";
  }
  spec::check_goes_on(changed, checkpoint);
  const std::string data = compare_data(manifest.notes, data_notes(run), checkpoint);
  return "goes on " + join({spec::text_of(changed), data, number_changes(manifest, num_ranks)});
}

}  // namespace

ResumedRun check_resumed_run(const spec::RunFile& run, const fs::path& folder, const RunStart& start, int num_ranks,
                             CheckpointPeers& peers) {
  if (!start.checkpoint) return {};
  const std::string found = on_root(peers, [&] { return look_at(run, folder, start, num_ranks); });
  constexpr std::string_view kGoesOn = "goes on ";
  if (!found.starts_with(kGoesOn)) return {.finished = true, .changes = ""};
  return {.finished = false, .changes = found.substr(kGoesOn.size())};
}

}  // namespace herd::train
