// Refuses what a run file may ask for and this version does not support, with one form of message. Threads: pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "herd/spec/run_file.h"
#include "herd/spec/run_keys.h"

namespace herd::spec {

struct SupportedValues {
  std::string_view key;          // "strategy.offload"
  std::vector<KeyValue> values;  // values that this version supports; none = any that the key allows
};

struct Unsupported {
  std::string setting;  // "mesh.cp = 2"
  std::string fix;      // "mesh.cp = 1"
  std::string message() const { return setting + " is not in this version\n  fix: " + fix; }
};

// Returns the run's value of a key unless `supported` lists it; the fix names the listed values.
std::optional<Unsupported> unsupported(const RunFile& run, const SupportedValues& supported);

// Checks models and transports. strategies/techniques.h checks meshes and strategies.
std::optional<Unsupported> unsupported_model_or_transport(const RunFile& run);

// Throws kBadConfig where comm.transport asks for shared memory and the ranks are on several hosts.
void refuse_transport(const RunFile& run, int num_hosts);

}  // namespace herd::spec
