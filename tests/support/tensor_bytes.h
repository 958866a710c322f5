// Reads all bytes of a tensor of a safetensors file.
#pragma once

#include <string>

#include "herd/storage/safetensors.h"

namespace herd {

inline std::string bytes_of(const SafetensorsFile& file, const TensorEntry& tensor) {
  std::string bytes(static_cast<size_t>(tensor.size()), '\0');
  file.read(tensor, 0, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

}  // namespace herd
