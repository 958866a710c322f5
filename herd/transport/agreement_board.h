// Where the members of a group on one host agree after it has failed: the decisions of a few rounds, each made once by
// whoever sees first that every member has voted or is gone.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

namespace herd::transport {

struct alignas(64) AgreementRound {
  static constexpr int kMaxRanks = 1024;
  std::atomic<uint64_t> state{0};  // 0 open, (1 + rank) << 2 being decided by it, | 1 decided, | 2 unanimous
  std::array<std::atomic<uint64_t>, kMaxRanks / 64> voters = {};  // one bit for each rank
};

struct AgreementBoard {
  static constexpr uint64_t kRounds = 32;
  AgreementRound rounds[kRounds];
};

}  // namespace herd::transport
