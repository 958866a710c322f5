// Hashes memory into 64 bits at memory speed, to notice replicas that drift apart. It does not resist hostile input.
//   32 lanes of 32 bits, lane = (word index) mod 32: lane = odd2 * rotate(lane + odd1 * word, 15). Each step is a
//   bijection of both arguments, so a difference in one word of a lane is never lost before the final mix to 64 bits.
// The hash is the same on every instruction set and alignment; the length is part of it.   Threads: any.
#pragma once

#include <cstdint>

namespace herd::kernels {

uint64_t hash(const void* memory, int64_t bytes, uint64_t seed = 0);

}  // namespace herd::kernels
