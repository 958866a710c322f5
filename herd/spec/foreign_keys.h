// Knows what other systems call the settings of a run, so that an error can name herd's key: PyTorch, transformers,
// Megatron-LM, DeepSpeed, torchtitan and nanoGPT.   Threads: pure.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace herd::spec {

struct ForeignKey {
  std::string_view name;  // in lower case, words joined by '_'
  std::string_view key;   // of the run file; empty where herd has an option for it, or derives it
  std::string_view note;  // how the value differs; empty where it does not
};

std::span<const ForeignKey> foreign_keys();

// Returns "herd has optimizer.lr", with the note behind it, or the note where herd has no key; empty for an unknown
// name. Case, '-' for '_' and leading dashes do not matter: "--Learning-Rate" is "learning_rate".
std::string key_for_foreign(std::string_view name);

}  // namespace herd::spec
