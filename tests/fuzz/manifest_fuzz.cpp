// Any bytes as a manifest: parsed or refused with kCorruptFile; what is parsed prints as itself.
#include <cstdlib>
#include <string_view>

#include "herd/base/error.h"
#include "herd/storage/manifest.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const auto manifest = herd::parse_manifest({reinterpret_cast<const char*>(data), size}, "input");
    const std::string text = herd::format_manifest(manifest);
    if (herd::format_manifest(herd::parse_manifest(text, "again")) != text) std::abort();
  } catch (const herd::Error& error) {
    if (error.code() != herd::Code::kCorruptFile) std::abort();
  }
  return 0;
}
