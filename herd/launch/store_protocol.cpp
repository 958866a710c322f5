#include "herd/launch/store_protocol.h"

namespace herd::launch {
namespace {

constexpr std::string_view kMagic = "HRD1";

// Appends the lower `bytes` bytes of a value, the lowest first.
void put(std::string& out, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out.push_back(static_cast<char>(value >> (8 * i)));
}

uint64_t take(std::string_view frame, size_t offset, int bytes) {
  uint64_t value = 0;
  for (int i = 0; i < bytes; ++i)
    value |= uint64_t{static_cast<uint8_t>(frame[offset + static_cast<size_t>(i)])} << (8 * i);
  return value;
}

bool is_known_verb(uint64_t verb) {
  return (verb >= static_cast<uint64_t>(Verb::kHello) && verb <= static_cast<uint64_t>(Verb::kFail)) ||
         (verb >= static_cast<uint64_t>(Verb::kOk) && verb <= static_cast<uint64_t>(Verb::kFailed));
}

}  // namespace

Code parse_code(std::string_view name) {
  for (const Code code : {Code::kBadConfig, Code::kOverBudget, Code::kTimeout, Code::kPeerLost, Code::kAborted,
                          Code::kCorruptFile, Code::kStorage, Code::kBug}) {
    if (code_name(code) == name) return code;
  }
  return Code::kAborted;
}

std::string encode(const Message& message) {
  if (message.key.size() > kMaxKeyBytes || message.value.size() > kMaxValueBytes) {
    throw Error(Code::kBadConfig, "store: key of " + std::to_string(message.key.size()) + " bytes (at most " +
                                      std::to_string(kMaxKeyBytes) + "), value of " +
                                      std::to_string(message.value.size()) + " bytes (at most " +
                                      std::to_string(kMaxValueBytes) + ")");
  }
  std::string frame(kMagic);
  frame.reserve(kHeaderBytes + message.key.size() + message.value.size());
  put(frame, static_cast<uint64_t>(message.verb), 4);
  put(frame, message.id, 8);
  put(frame, message.scope, 4);
  put(frame, message.key.size(), 4);
  put(frame, message.value.size(), 8);
  return frame + message.key + message.value;
}

std::optional<size_t> frame_bytes(std::string_view head) {
  const uint64_t key_bytes = take(head, 20, 4), value_bytes = take(head, 24, 8);
  if (head.substr(0, 4) != kMagic || key_bytes > kMaxKeyBytes || value_bytes > kMaxValueBytes) return std::nullopt;
  return kHeaderBytes + key_bytes + value_bytes;
}

std::optional<Message> decode(std::string_view frame) {
  if (frame.size() < kHeaderBytes || !is_known_verb(take(frame, 4, 4)) || frame_bytes(frame) != frame.size()) {
    return std::nullopt;
  }
  const uint64_t key_bytes = take(frame, 20, 4);
  return Message{static_cast<Verb>(take(frame, 4, 4)), take(frame, 8, 8), static_cast<uint32_t>(take(frame, 16, 4)),
                 std::string(frame.substr(kHeaderBytes, key_bytes)),
                 std::string(frame.substr(kHeaderBytes + key_bytes))};
}

}  // namespace herd::launch
