// Compares the run file that a checkpoint holds with that of a start which goes on from it. Which keys may differ is a
// property of each key (Effect, run_keys.h). Threads: pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "herd/spec/run_keys.h"

namespace herd::spec {

struct ChangedKey {
  const Key* key;
  std::string before, now;  // values as TOML
};

// Returns the keys whose values differ. Where `now` leaves a value to herd (strategy.auto, "auto"), any value agrees.
std::vector<ChangedKey> changed_keys(const RunFile& before, const RunFile& now);

// Throws kBadConfig naming each key whose other value would compute another model or another run than the checkpoint's
// at `source`, with both values.
void check_goes_on(const std::vector<ChangedKey>& changed, const std::string& source);

// Returns "optimizer.lr 3e-4 -> 1e-4, train.batch 6 -> 12": the keys that what is computed depends on. Empty if none.
std::string text_of(const std::vector<ChangedKey>& changed);

// Returns what to say of a start that finds all of its steps done, where the start is that of the very same run. Throws
// kBadConfig where keys differ that would have had an effect, or where more steps are done than train.steps says.
std::string describe_finished_run(const std::vector<ChangedKey>& changed, int64_t steps_done, const RunFile& now);

}  // namespace herd::spec
