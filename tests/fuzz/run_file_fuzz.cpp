// Run files: whatever the bytes, a run that comes back from its own text, or kBadConfig.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "accepted.h"
#include "herd/base/error.h"
#include "herd/spec/layout.h"
#include "herd/spec/run_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const herd::spec::RunFile run =
        herd::spec::parse_run_text({reinterpret_cast<const char*>(data), size}, "fuzz.toml");
    if (!(herd::spec::parse_run_text(to_toml(run), "again.toml") == run)) std::abort();
    if (!(run == herd::spec::RunFile{})) ++num_accepted;
    herd::spec::resolve_mesh(run, 6);
  } catch (const herd::Error& error) {
    if (error.code() != herd::Code::kBadConfig) throw;
  }
  return 0;
}
