// Defines the bytes of a frame on a connection of tcp_wire.h. A frame is a prefix of 16 bytes, a FrameHeader, and the
// payload, padded to a multiple of 16 bytes. The prefix begins with the payload's length (4 bytes, little endian).
// Threads: pure.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "herd/transport/wire.h"

namespace herd::transport {

inline constexpr size_t kFrameAlign = 16;  // bytes; frames and payloads lie at multiples of this in the receive buffer
inline constexpr size_t kFramePrefixBytes = kFrameAlign + sizeof(FrameHeader);

constexpr size_t padded_to_frame(size_t bytes) { return (bytes + kFrameAlign - 1) / kFrameAlign * kFrameAlign; }

// Passes each whole frame in `bytes`, which come from rank `from`, to `handler`, and returns how many bytes they take.
// Returns nothing where a frame breaks the rules; it passes those before it. `handler` may be empty.
std::optional<size_t> take_whole_frames(std::span<const std::byte> bytes, Rank from, const Wire::Handler& handler);

}  // namespace herd::transport
