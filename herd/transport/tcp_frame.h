// Frames as tcp_wire.h puts them into a connection: 16 bytes that begin with the length of the payload (4 bytes, little
// endian), a FrameHeader, and the payload, filled up to a multiple of 16 bytes. Threads: pure.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "herd/transport/wire.h"

namespace herd::transport {

inline constexpr size_t kFrameAlign = 16;  // of frames and payloads, where they arrive
inline constexpr size_t kFramePrefixBytes = kFrameAlign + sizeof(FrameHeader);

constexpr size_t padded_to_frame(size_t bytes) { return (bytes + kFrameAlign - 1) / kFrameAlign * kFrameAlign; }

// Hands over the frames of `bytes`, which come from rank `from`, that are whole; returns how many bytes they take.
// Nothing where a frame is one that no herd sends: those before it are handed over. `handler` may be empty.
std::optional<size_t> take_whole_frames(std::span<const std::byte> bytes, Rank from, const Wire::Handler& handler);

}  // namespace herd::transport
