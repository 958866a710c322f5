#include "herd/train/same_model.h"

#include "herd/base/error.h"
#include "herd/spec/run_keys.h"

namespace herd::train {

void check_same_model(const Manifest& manifest, const spec::RunFile& wanted, const std::string& checkpoint) {
  if (manifest.config.empty()) return;
  const spec::RunFile saved = spec::parse_run_text(manifest.config, checkpoint);
  std::string differ;
  for (const spec::Key& key : spec::run_keys()) {
    if (key.section != "model" || key.name == "dropout" || key.name == "weights" || key.name == "frozen") continue;
    const std::string of_weights = value_toml(key, saved), of_run = value_toml(key, wanted);
    if (of_weights == of_run) continue;
    differ += "\n  " + key.full_name() + ": " + of_weights + " in the weights, " + of_run + " in this run";
  }
  if (differ.empty()) return;
  throw Error(Code::kBadConfig, "model.weights = \"" + checkpoint + "\" is of another model:" + differ +
                                    "\n  fix: the [model] it was saved with");
}

}  // namespace herd::train
