// Any bytes as a manifest: parsed or refused with kCorruptFile; what is parsed prints as itself. JSON is tried again
// with a checksum that fits, so that mutations get past that rule.
#include <cstdlib>
#include <string>
#include <string_view>

#include "accepted.h"
#include "herd/base/error.h"
#include "herd/storage/manifest.h"
#include "herd/storage/manifest_parser_internal.h"

namespace {

void parse(std::string_view text) {
  try {
    const herd::Manifest manifest = herd::parse_manifest(text, "input");
    const std::string printed = herd::format_manifest(manifest);
    if (herd::format_manifest(herd::parse_manifest(printed, "again")) != printed) std::abort();
    if (!manifest.tensors.empty()) ++num_accepted;
  } catch (const herd::Error& error) {
    if (error.code() != herd::Code::kCorruptFile) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  parse(text);
  auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object()) return 0;
  json["crc32c"] = herd::manifest_checksum(json);
  parse(json.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace));
  return 0;
}
