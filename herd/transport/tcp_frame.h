// Frames as tcp_wire.h puts them into a connection: 16 bytes that begin with the length of the payload (4 bytes, little
// endian), a FrameHeader, and the payload, filled up to a multiple of 16 bytes. Threads: pure.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "herd/transport/wire.h"

namespace herd::transport::tcp_frame {

inline constexpr size_t kAlign = 16;  // of frames and payloads, where they arrive
inline constexpr size_t kPrefixBytes = kAlign + sizeof(FrameHeader);

constexpr size_t padded(size_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

// Hands over the frames of `bytes`, which come from rank `from`, that are whole; returns how many bytes they take.
// Nothing where a frame is one that no herd sends: those before it are handed over. `handler` may be empty.
std::optional<size_t> take_whole(std::span<const std::byte> bytes, Rank from, const Wire::Handler& handler);

}  // namespace herd::transport::tcp_frame
