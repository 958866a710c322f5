#include "herd/cli/finished_run.h"

#include <filesystem>

#include "herd/spec/changed_keys.h"
#include "herd/storage/checkpoint_folder.h"
#include "herd/storage/manifest.h"
#include "herd/storage/run_folder.h"

namespace herd::cli {

std::optional<std::string> find_finished_run(const spec::RunFile& run) {
  const auto folder = std::filesystem::path(run.log.dir) / run.log.name;
  const auto found = list_checkpoints(folder / "checkpoints");
  if (found.empty() || found.front().step < run.train.steps || run.checkpoint.resume == "none") return {};
  const bool sets_aside = run.checkpoint.used_folder == "set_aside";
  const RunStart start = plan_start(
      folder, {.resume = run.checkpoint.resume, .used = sets_aside ? UsedFolder::kSetAside : UsedFolder::kRefuse});
  if (!start.checkpoint || start.begins_with_checkpoint()) return {};
  const Manifest manifest = read_manifest(*start.checkpoint);
  if (!is_finished(folder, manifest.step, run.train.steps) || manifest.config.empty()) return {};
  const spec::RunFile before = spec::parse_run_text(manifest.config, *start.checkpoint / kManifestName);
  return spec::describe_finished_run(spec::changed_keys(before, run), manifest.step, run);
}

}  // namespace herd::cli
