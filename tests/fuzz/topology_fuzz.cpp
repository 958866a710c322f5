// Topology text: whatever the bytes, a topology that prints as itself, or kCorruptFile.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "accepted.h"
#include "herd/base/error.h"
#include "herd/topology/topology_text.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const herd::Topology topology = herd::parse_topology({reinterpret_cast<const char*>(data), size});
    if (!(herd::parse_topology(herd::to_text(topology)) == topology)) std::abort();
    ++num_accepted;
  } catch (const herd::Error& error) {
    if (error.code() != herd::Code::kCorruptFile) throw;
  }
  return 0;
}
