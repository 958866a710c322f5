// What launchers say by environment variables, one NAME=value a line: an environment whose numbers fit each other, or
// kBadConfig. The status of a rank, which is text of another process too, is parsed from the same bytes.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "accepted.h"
#include "herd/base/error.h"
#include "herd/base/units.h"
#include "herd/launch/environment.h"
#include "herd/launch/status.h"
#include "herd/launch/store_server.h"

namespace {

template <typename Parse>
void allow_refusal(const Parse& parse) {
  try {
    parse();
  } catch (const herd::Error& error) {
    if (error.code() != herd::Code::kBadConfig) throw;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace herd::launch;
  const std::string text(reinterpret_cast<const char*>(data), size);
  parse_status(0, text);
  allow_refusal([&] { parse_address(text); });
  allow_refusal([&] {
    if (herd::parse_bytes(text) < 0) std::abort();
  });
  Variables variables;
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    if (const size_t sign = line.find('='); sign != line.npos)
      variables[std::string(line.substr(0, sign))] = line.substr(sign + 1);
  }
  variables.erase("HERD_TOKEN_FILE");  // names a file
  allow_refusal([&] {
    const Environment env = parse_environment(variables);
    if (env.rank < 0 || env.rank >= env.size || env.local_rank < 0 || env.local_rank >= env.local_size ||
        env.node_rank < 0 || env.node_rank >= env.num_nodes || env.threads < 0 || env.num_restarts < 0) {
      std::abort();
    }
    if (env.size > 1) ++num_accepted;
  });
  return 0;
}
