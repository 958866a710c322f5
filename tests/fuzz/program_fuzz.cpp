// Program text: whatever the bytes, a program that prints as itself, or kCorruptFile; and the passes and the verifier
// take it.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "accepted.h"
#include "herd/base/error.h"
#include "herd/program/lifetimes.h"
#include "herd/program/memory_bound.h"
#include "herd/program/program_text.h"
#include "herd/program/slots.h"
#include "herd/program/verify_program.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace herd::program;
  try {
    const Program step = parse_program({reinterpret_cast<const char*>(data), size});
    if (!(parse_program(to_text(step)) == step)) std::abort();
    if (!step.ops.empty()) ++num_accepted;
    const Expectation expected{.block_groups = step.block_groups, .micro_batches = step.micro_batches, .mesh = {}};
    if (step.ops.size() < 200 && step.micro_batches < 100) verify({step}, expected);
    if (step.ops.size() < 200) in_order_peak(assign_slots(add_releases(step)), Tier::kDevice);
  } catch (const herd::Error& error) {
    if (error.code() != herd::Code::kCorruptFile) throw;
  }
  return 0;
}
