// Schedule text: whatever the bytes, a schedule that prints as itself, or kCorruptFile; and the verifier takes it.
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "accepted.h"
#include "herd/base/error.h"
#include "herd/schedule/schedule_text.h"
#include "herd/schedule/verify_schedule.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const herd::Schedule schedule = herd::parse_schedule({reinterpret_cast<const char*>(data), size});
    if (!(herd::parse_schedule(herd::to_text(schedule)) == schedule)) std::abort();
    if (!schedule.steps.empty()) ++num_accepted;
    if (schedule.num_ranks <= 4) {
      std::vector<herd::Schedule> all(schedule.num_ranks, schedule);
      for (int rank = 0; rank < schedule.num_ranks; ++rank) all[rank].self = rank;
      herd::verify(all);
    }
  } catch (const herd::Error& error) {
    if (error.code() != herd::Code::kCorruptFile) throw;
  }
  return 0;
}
