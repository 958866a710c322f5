#include "herd/planner/differences_internal.h"
#include "herd/spec/run_keys.h"
#include "herd/strategies/techniques.h"

namespace herd::planner {

std::vector<std::string> differences(const spec::RunFile& from, const spec::RunFile& to) {
  std::vector<std::string> out;
  for (const spec::Key& key : spec::run_keys()) {
    const std::string value = value_toml(key, to);
    if (value == value_toml(key, from) || key.full_name() == "mesh.dp") continue;
    const bool quoted = value.size() > 1 && value.front() == '"';
    out.push_back(key.full_name() + "=" + (quoted ? value.substr(1, value.size() - 2) : value));
  }
  return out;
}

std::string not_built(const spec::RunFile& run) {
  const std::string refused = strategies::not_supported(run);
  return refused.substr(0, refused.find('\n'));
}

}  // namespace herd::planner
