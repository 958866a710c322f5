#include "herd/transport/message.h"

#include <cstring>

namespace herd::transport {

bool Message::accept(const Envelope& arrived) {
  received_envelope = arrived;
  mismatch =
      arrived.tag != envelope.tag || arrived.bytes != envelope.bytes || arrived.description != envelope.description;
  return !mismatch;
}

void Message::take(std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  if (sink != nullptr) {
    sink->take(data + moved, bytes.data(), moved, static_cast<int64_t>(bytes.size()));
  } else {
    std::memcpy(data + moved, bytes.data(), bytes.size());
  }
  moved += static_cast<int64_t>(bytes.size());
}

}  // namespace herd::transport
