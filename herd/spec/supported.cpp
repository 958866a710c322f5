#include "herd/spec/supported.h"

#include <algorithm>

#include "herd/base/error.h"
#include "herd/spec/chain_table.h"

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
  static const std::vector<SupportedValues> rules = {{"model.kind", {"gpt", "llama", "bert", "moe"}},
                                                     {"comm.transport", {"auto", "shm"}}};
  for (const SupportedValues& rule : rules) {
    if (rule.key == "model.kind" && run.chain) continue;
    if (auto refused = unsupported(run, rule)) return refused;
  }
  for (const std::string_view axis : {"mesh.tp", "mesh.cp"}) {
    auto refused = run.model.is_bert() ? unsupported(run, {axis, {int64_t{1}}}) : std::nullopt;
    if (refused) refused->setting += " with model.kind = \"bert\"";
    if (refused) return refused;
  }
  return std::nullopt;
}

void refuse_transport(const RunFile& run, int num_hosts) {
  if (run.comm.transport != "shm" || num_hosts <= 1) return;
  throw Error(Code::kBadConfig, "comm.transport = \"shm\" is the memory of one host, but the ranks are on " +
                                    std::to_string(num_hosts) + "\n  fix: comm.transport = \"auto\"");
}

}  // namespace herd::spec
