// Cluster files: whatever the bytes, a cluster that comes back from its own text, or kBadConfig.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "accepted.h"
#include "herd/base/error.h"
#include "herd/planner/cluster.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace herd::planner;
  try {
    const Cluster cluster = parse_cluster({reinterpret_cast<const char*>(data), size}, "fuzz.toml");
    if (!(parse_cluster(to_toml(cluster), "again.toml") == cluster)) std::abort();
    ++num_accepted;
  } catch (const herd::Error& error) {
    if (error.code() != herd::Code::kBadConfig) throw;
  }
  return 0;
}
