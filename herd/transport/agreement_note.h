// Defines what a member of a failed group says to all others while they agree who is left (comm/agreement.h): on this
// host in shared memory, to other hosts in a frame.
#pragma once

#include <array>
#include <cstdint>

namespace herd::transport {

struct AgreementValue {
  static constexpr int kMaxRanks = 1024;
  std::array<uint64_t, kMaxRanks / 64> voters = {};  // one bit for each rank of the group
  uint64_t unanimous = 0;                            // 1: all members of the round voted, and voted yes
};

struct AgreementNote {
  struct Decision {
    uint64_t round = 0;  // 0: none yet
    AgreementValue value;
  };
  uint64_t version = 0;                    // from 1; the newest counts
  uint64_t round = 0;                      // that this rank votes in, from 1
  uint64_t yes = 0;                        // its vote
  uint64_t accepted_from = 0;              // 1 + the rank whose proposal it holds; 0: none. Its own: it proposes
  AgreementValue accepted;                 // that proposal
  std::array<Decision, 2> decisions = {};  // of this round and the one before, by round modulo 2
};

}  // namespace herd::transport
