// Defines what a member of a failed group tells all others while they agree who is left (comm/agreement.h). It travels
// in shared memory on one host, and in a frame between hosts. Threads: plain data.
#pragma once

#include <array>
#include <cstdint>

namespace herd::transport {

struct AgreementValue {
  static constexpr int kMaxRanks = 1024;
  std::array<uint64_t, kMaxRanks / 64> voters = {};  // one bit for each rank of the group that voted
  uint64_t unanimous = 0;                            // 1: all members of the round voted, and voted yes; else 0
};

struct AgreementNote {
  struct Decision {
    uint64_t round = 0;  // 0: no decision yet
    AgreementValue value;
  };
  uint64_t version = 0;        // counts from 1; the newest note replaces older ones
  uint64_t round = 0;          // round that this rank votes in, counted from 1
  uint64_t yes = 0;            // this rank's vote, 0 or 1
  uint64_t accepted_from = 0;  // 1 + the rank whose proposal this rank holds, its own if it proposes; 0: none
  AgreementValue accepted;     // the proposal that this rank holds
  std::array<Decision, 2> decisions = {};  // decisions of this round and the one before, by round modulo 2
};

}  // namespace herd::transport
