#include "herd/spec/supported.h"

#include <string>
#include <string_view>
#include <vector>

#include "herd/base/error.h"
#include "herd/spec/run_keys.h"

namespace herd::spec {
namespace {

struct Built {
  std::string_view key;
  std::vector<std::string_view> values;  // as TOML; what this version can run
};

const std::vector<Built>& built() {
  static const std::vector<Built> list = {
      {"model.kind", {"\"gpt\"", "\"llama\""}},
      {"mesh.cp", {"1"}},
      {"mesh.ep", {"1"}},
      {"strategy.zero", {"0", "1", "2", "3"}},
      {"strategy.precision", {"\"fp32\"", "\"bf16\"", "\"fp16\""}},
      {"strategy.offload", {"\"none\"", "\"states\""}},
      {"strategy.compression", {"\"none\""}},
      {"comm.transport", {"\"auto\"", "\"shm\""}},
  };
  return list;
}

}  // namespace

void refuse_unbuilt(const RunFile& run) {
  for (const Built& entry : built()) {
    for (const Key& key : run_keys()) {
      if (key.full_name() != entry.key) continue;
      const std::string value = value_toml(key, run);
      std::string have;
      bool found = false;
      for (const auto v : entry.values) {
        found = found || v == value;
        have += (have.empty() ? "" : " or ") + std::string(v);
      }
      if (!found) {
        throw Error(Code::kBadConfig, key.full_name() + " = " + value +
                                          " is not in this version\n  fix: " + key.full_name() + " = " + have);
      }
    }
  }
}

void refuse_transport(const RunFile& run, int num_hosts) {
  if (run.comm.transport != "shm" || num_hosts <= 1) return;
  throw Error(Code::kBadConfig, "comm.transport = \"shm\" is the memory of one host, but the ranks are on " +
                                    std::to_string(num_hosts) + "\n  fix: comm.transport = \"auto\"");
}

}  // namespace herd::spec
