#include "herd/spec/changed_keys.h"

#include <algorithm>

#include "herd/base/error.h"

namespace herd::spec {
namespace {

bool is_left_to_herd(const Key& key, const RunFile& run) {
  if (run.strategy.automatic && key.effect == Effect::kLayout) return true;
  if (key.full_name() == "device.kind") return run.device.kind == "auto";
  return std::holds_alternative<AutoField>(key.field) && value_of(key, run) == KeyValue(kAuto);
}

bool is_refused(const ChangedKey& changed) {
  return changed.key->effect == Effect::kModel || changed.key->effect == Effect::kRun;
}

bool is_computed_with(const ChangedKey& changed) {
  return changed.key->effect != Effect::kNone && changed.key->effect != Effect::kBeginning;
}

// Returns "\n  key: value in the run, value in this start" for each key.
std::string list_of(const std::vector<ChangedKey>& changed, const std::string& before) {
  std::string text;
  for (const ChangedKey& one : changed) {
    text += "\n  " + one.key->full_name() + ": " + one.before + " in the " + before + ", " + one.now + " in this start";
  }
  return text;
}

template <class Condition>
std::vector<ChangedKey> those_that(const std::vector<ChangedKey>& changed, const Condition& holds) {
  std::vector<ChangedKey> found;
  std::copy_if(changed.begin(), changed.end(), std::back_inserter(found), holds);
  return found;
}

}  // namespace

std::vector<ChangedKey> changed_keys(const RunFile& before, const RunFile& now) {
  std::vector<ChangedKey> changed;
  for (const Key& key : run_keys()) {
    const std::string old_value = value_toml(key, before), new_value = value_toml(key, now);
    if (old_value != new_value && !is_left_to_herd(key, now)) changed.push_back({&key, old_value, new_value});
  }
  return changed;
}

void check_goes_on(const std::vector<ChangedKey>& changed, const std::string& source) {
  const std::vector<ChangedKey> refused = those_that(changed, is_refused);
  if (refused.empty()) return;
  const bool same_model = std::all_of(refused.begin(), refused.end(),
                                      [](const ChangedKey& one) { return one.key->effect == Effect::kRun; });
  std::string fix;
  for (const ChangedKey& one : refused) fix += (fix.empty() ? "" : ", ") + one.key->full_name() + " = " + one.before;
  throw Error(Code::kBadConfig,
              "the checkpoint " + source + " was saved with other values of keys that a run keeps for its whole life:" +
                  list_of(refused, "checkpoint") + "\n  fix: " + fix + "; or a new run, with another log.name" +
                  (same_model ? ", that begins with these weights: model.weights = \"" + source + "\"" : ""));
}

std::string text_of(const std::vector<ChangedKey>& changed) {
  std::string text;
  for (const ChangedKey& one : those_that(changed, is_computed_with))
    text += (text.empty() ? "" : ", ") + one.key->full_name() + " " + one.before + " -> " + one.now;
  return text;
}

std::string describe_finished_run(const std::vector<ChangedKey>& changed, int64_t steps_done, const RunFile& now) {
  const std::string folder = now.log.dir + "/" + now.log.name;
  const std::vector<ChangedKey> effective =
      those_that(changed, [](const ChangedKey& one) { return one.key->effect != Effect::kNone; });
  const bool goes_on = std::none_of(effective.begin(), effective.end(), is_refused);
  const std::string fix =
      (goes_on ? "train.steps = " + std::to_string(2 * steps_done) + " to go on with that run, or " : std::string()) +
      "log.name = \"" + now.log.name + "-2\" for a run of its own";
  const std::string what =
      "the run in " + folder + " has done " + std::to_string(steps_done) + (steps_done == 1 ? " step, " : " steps, ") +
      (steps_done == now.train.steps ? "which are all that train.steps asks for"
                                     : "more than train.steps = " + std::to_string(now.train.steps));
  if (effective.empty() && steps_done == now.train.steps)
    return what + ": nothing is left to train, and nothing was written\n  " + fix;
  throw Error(Code::kBadConfig, what + (effective.empty() ? "" : ", and it trained with other keys than these:") +
                                    list_of(effective, "run") + "\n  fix: " + fix);
}

}  // namespace herd::spec
