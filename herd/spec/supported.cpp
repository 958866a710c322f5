#include "herd/spec/supported.h"

#include <algorithm>

#include "herd/base/error.h"
#include "herd/spec/chain_table.h"
#include "herd/spec/layout.h"

namespace herd::spec {

std::optional<Unsupported> unsupported(const RunFile& run, const SupportedValues& supported) {
  const Key& key = run_key(supported.key);
  const auto& values = supported.values;
  if (values.empty() || std::ranges::count(values, value_of(key, run)) > 0) return std::nullopt;
  std::string have;
  RunFile example = run;
  for (const KeyValue& value : values) {
    set_value(key, example, value);
    have += (have.empty() ? "" : " or ") + value_toml(key, example);
  }
  return Unsupported{key.full_name() + " = " + value_toml(key, run), key.full_name() + " = " + have};
}

std::optional<Unsupported> unsupported_model_or_transport(const RunFile& run) {
  static const std::vector<SupportedValues> rules = {{"model.kind", {"gpt", "llama", "moe"}},
                                                     {"comm.transport", {"auto", "shm"}}};
  for (const SupportedValues& rule : rules) {
    if (rule.key == "model.kind" && run.chain) continue;
    if (auto refused = unsupported(run, rule)) return refused;
  }
  return std::nullopt;
}

void refuse_on_device(const RunFile& run) {
  static const std::vector<SupportedValues> rules = {{"strategy.compression", {"none", "bf16", "int8", "int4"}}};
  const auto refuse = [](const Unsupported& refused) {
    throw Error(Code::kBadConfig,
                refused.setting + " works on CPUs alone so far\n  fix: " + refused.fix + ", or device.kind = \"cpu\"");
  };
  for (const SupportedValues& rule : rules) {
    if (const auto refused = unsupported(run, rule)) refuse(*refused);
  }
  if (stated_zero_stage(run) >= 2) return;
  if (auto refused = unsupported(run, {"strategy.compression", {"none", "bf16"}}))  // what encoding loses is kept
    refuse({refused->setting + " with strategy.zero = " + std::to_string(run.strategy.zero),
            refused->fix + ", or strategy.zero = 2"});
}

void refuse_transport(const RunFile& run, int num_hosts) {
  if (run.comm.transport != "shm" || num_hosts <= 1) return;
  throw Error(Code::kBadConfig, "comm.transport = \"shm\" is the memory of one host, but the ranks are on " +
                                    std::to_string(num_hosts) + "\n  fix: comm.transport = \"auto\"");
}

}  // namespace herd::spec
