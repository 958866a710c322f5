#include "herd/transport/tcp_frame.h"

#include <cstring>

namespace herd::transport::tcp_frame {

std::optional<size_t> take_whole(std::span<const std::byte> bytes, Rank from, const Wire::Handler& handler) {
  size_t at = 0;
  while (bytes.size() - at >= kPrefixBytes) {
    uint32_t payload = 0;
    std::memcpy(&payload, &bytes[at], sizeof payload);
    if (payload > Wire::kPieceBytes) return std::nullopt;
    if (bytes.size() - at < kPrefixBytes + padded(payload)) break;
    FrameHeader header;
    std::memcpy(&header, &bytes[at + kAlign], sizeof header);
    if (header.from != from) return std::nullopt;
    if (handler) handler(header, bytes.subspan(at + kPrefixBytes, payload));
    at += kPrefixBytes + padded(payload);
  }
  return at;
}

}  // namespace herd::transport::tcp_frame
