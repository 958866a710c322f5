#include "herd/transport/tcp_frame.h"

#include <cstring>

namespace herd::transport {

std::optional<size_t> take_whole_frames(std::span<const std::byte> bytes, Rank from, const Wire::Handler& handler) {
  size_t at = 0;
  while (bytes.size() - at >= kFramePrefixBytes) {
    uint32_t payload = 0;
    std::memcpy(&payload, &bytes[at], sizeof payload);
    if (payload > Wire::kPieceBytes) return std::nullopt;
    if (bytes.size() - at < kFramePrefixBytes + padded_to_frame(payload)) break;
    FrameHeader header;
    std::memcpy(&header, &bytes[at + kFrameAlign], sizeof header);
    if (header.from != from) return std::nullopt;
    if (handler) handler(header, bytes.subspan(at + kFramePrefixBytes, payload));
    at += kFramePrefixBytes + padded_to_frame(payload);
  }
  return at;
}

}  // namespace herd::transport
