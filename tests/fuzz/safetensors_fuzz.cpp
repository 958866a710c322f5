// Any bytes as a safetensors file: parsed or refused with kCorruptFile; what is parsed lies within the file.
#include <cstdlib>
#include <span>

#include "accepted.h"
#include "herd/base/error.h"
#include "herd/storage/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::vector<herd::TensorEntry> tensors;
  std::map<std::string, std::string> metadata;
  const auto bytes = std::as_bytes(std::span(data, size));
  try {
    const int64_t begin = herd::parse_safetensors(bytes, "input", tensors, metadata);
    for (const auto& tensor : tensors) {
      if (tensor.begin < 0 || tensor.begin > tensor.end || begin + tensor.end > static_cast<int64_t>(size))
        std::abort();
    }
    if (!tensors.empty()) ++num_accepted;
  } catch (const herd::Error& error) {
    if (error.code() != herd::Code::kCorruptFile) std::abort();
  }
  return 0;
}
