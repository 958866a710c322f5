// Tuning files: whatever the bytes, measured choices that come back from their own text and that a request can be
// looked up in, or kCorruptFile.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "accepted.h"
#include "herd/base/error.h"
#include "herd/collectives/tuning.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace herd;
  try {
    const Tuning tuning = parse_tuning({reinterpret_cast<const char*>(data), size});
    if (!(parse_tuning(to_text(tuning)) == tuning)) std::abort();
    if (!tuning.sizes.empty()) ++num_accepted;
    for (const TunedSize& one : tuning.sizes) {
      CollectiveRequest request;
      request.collective = one.collective;
      request.num_ranks = one.placement.ranks;
      request.elements = 100;
      find_tuned(tuning, request);
    }
  } catch (const Error& error) {
    if (error.code() != Code::kCorruptFile) throw;
  }
  return 0;
}
