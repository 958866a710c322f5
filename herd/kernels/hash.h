// Hashes memory into 64 bits at memory speed, to notice replicas that drift apart. It does not resist hostile input.
//   state[word index mod 32] = odd2 * rotate(state + odd1 * word, 15), with 32 states of 32 bits. Each step is a
//   bijection in the word and in the state, each with the other fixed. So a difference in one word is never lost before
//   the final mix to 64 bits.
// The hash is the same on every instruction set and alignment; the length is part of it.   Threads: any.
#pragma once

#include <cstdint>

namespace herd::kernels {

uint64_t hash(const void* memory, int64_t bytes, uint64_t seed = 0);

}  // namespace herd::kernels
