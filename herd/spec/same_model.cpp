#include "herd/spec/same_model.h"

#include "herd/base/error.h"
#include "herd/spec/run_keys.h"

namespace herd::spec {

void check_same_model(const RunFile::Model& of_weights, const RunFile::Model& of_run, const std::string& source) {
  RunFile weights, run;
  weights.model = of_weights;
  run.model = of_run;
  std::string differences;
  for (const Key& key : run_keys()) {
    if (key.effect != Effect::kModel || key.name == "context") continue;  // the context has a rule of its own
    const std::string in_weights = value_toml(key, weights), in_run = value_toml(key, run);
    if (in_weights != in_run)
      differences += "\n  " + key.full_name() + ": " + in_weights + " in the weights, " + in_run + " in this run";
  }
  if (!differences.empty()) {
    throw Error(Code::kBadConfig, "the weights of " + source + " are of another model than this run's:" + differences +
                                      "\n  fix: leave these keys out of [model], which takes them from the weights");
  }
  if (of_run.context <= of_weights.context) return;
  throw Error(Code::kBadConfig,
              "model.context = " + std::to_string(of_run.context) + " is longer than the " +
                  std::to_string(of_weights.context) + " positions that the weights of " + source +
                  " have been trained on\n  fix: model.context = " + std::to_string(of_weights.context) + " or less");
}

}  // namespace herd::spec
