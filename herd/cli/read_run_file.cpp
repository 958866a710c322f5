#include "herd/cli/read_run_file.h"

#include <filesystem>
#include <optional>

#include "herd/base/error.h"
#include "herd/base/regular_file.h"
#include "herd/convert/weight_source.h"
#include "herd/spec/chain_table.h"
#include "herd/spec/run_keys.h"
#include "herd/storage/checkpoint_folder.h"

namespace herd::cli {
namespace {

namespace fs = std::filesystem;

std::optional<spec::GivenModel> model_of_checkpoint(const fs::path& checkpoint) {
  const Manifest manifest = read_manifest(checkpoint);
  if (manifest.config.empty()) return {};
  const std::string name = "the run file in " + (checkpoint / kManifestName).string();
  return spec::GivenModel{spec::parse_run_text(manifest.config, name).model, checkpoint};
}

// Returns the model of the checkpoint that the run resumes from, if there is one: its weights count, not those that the
// run began with.
std::optional<spec::GivenModel> model_of_resumed_checkpoint(const spec::RunFile& run) {
  if (run.checkpoint.resume == "none") return {};
  if (run.checkpoint.resume != "auto") return model_of_checkpoint(resolve_checkpoint(run.checkpoint.resume));
  for (const FoundCheckpoint& one : list_checkpoints(fs::path(run.log.dir) / run.log.name / "checkpoints")) {
    try {
      return model_of_checkpoint(one.folder);
    } catch (const Error&) {  // a damaged manifest, which the start passes over as well
    }
  }
  return {};
}

// Says whether weights that a run was found to begin with are in what a run file states, or are just that.
bool is_within(const std::string& found, const std::string& stated) {
  return found == stated || found.starts_with(stated + "/");
}

}  // namespace

spec::RunFile read_run_file(const std::string& path, std::span<const std::string> overrides) {
  std::string weights;
  spec::RunFile run =
      spec::parse_run_file(path, overrides, [&](const spec::RunFile& stated) -> std::optional<spec::GivenModel> {
        if (stated.model.weights == "none") return {};
        if (auto own = model_of_resumed_checkpoint(stated)) {
          if (is_within(own->model.weights, stated.model.weights)) weights = own->model.weights;
          return own;
        }
        const auto source = convert::open_weights(stated.model.weights);
        weights = source->path();
        return spec::GivenModel{source->run().model, weights};
      });
  if (!weights.empty()) run.model.weights = weights;
  const fs::path table = fs::path(path).parent_path() / spec::kChainFile;
  if (run.model.kind == "chain") {
    if (const std::optional<std::string> text = read_regular_file(table))
      run.chain = std::make_shared<spec::ChainTable>(spec::ChainTable::parse(*text, table.string()));
  }
  return run;
}

std::vector<std::string> model_overrides(const spec::RunFile& run) {
  std::vector<std::string> overrides;
  for (const spec::Key& key : spec::run_keys()) {
    if (key.section == "model") overrides.push_back(key.full_name() + "=" + value_toml(key, run));
  }
  return overrides;
}

}  // namespace herd::cli
