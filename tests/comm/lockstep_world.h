// All ranks of a world in one thread, over the channels, groups and executor that threads and processes use: nothing
// moves unless the test says who. So an interleaving is a seed, and a hang is seen at once: nobody can move.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "herd/comm/group_state.h"
#include "herd/schedule/schedule.h"
#include "tests/schedule/interpreter.h"

namespace herd::testing_support {

// What the ranks share. Memory is zero, and real only where it is touched.
class LockstepHost;

class LockstepWorld {
 public:
  // Rank r runs all_ranks[r], whatever operation it is asked for.
  explicit LockstepWorld(std::span<const Schedule> all_ranks);
  ~LockstepWorld();

  int size() const { return static_cast<int>(groups_.size()); }
  comm::GroupState& group(Rank rank) { return *groups_[static_cast<size_t>(rank)]; }
  std::byte* memory(Rank rank) const;  // symmetric; kMemoryBytes of it
  int doorbell(Rank rank) const;       // readable once somebody has rung it
  void sleep(Rank rank);               // its doorbell has to be rung from now on
  static constexpr int64_t kMemoryBytes = 8 << 20;

 private:
  std::shared_ptr<LockstepHost> host_;
  std::shared_ptr<transport::SharedRegion> memory_;
  std::vector<std::unique_ptr<comm::GroupState>> groups_;
};

// Can these schedules be run at all? Slices within their memory, peers that exist, steps that do not overlap
// themselves. "" or why not.
std::string unrunnable(std::span<const Schedule> all_ranks);

// The schedules of all ranks by herd's own executor, several operations back to back, each rank rewriting its memory as
// soon as its operation is done. Random order of ranks and steps by seed; exact integers (fp64, averaged).
RunResult execute(std::span<const Schedule> all_ranks, const RunOptions& options);

// What a rank is given before operation `operation`, and what it must hold after it; at `in` and `out`.
class ExactData {
 public:
  explicit ExactData(const Schedule& schedule) : schedule_(schedule) {}
  void give(int operation, std::span<double> in, std::span<double> out) const;
  // "" or which element is wrong.
  std::string compare(int operation, std::span<const double> out) const;

 private:
  double contribution(Rank rank, int operation, int64_t element) const;
  double sum(int operation, int64_t element) const;
  const Schedule& schedule_;
};

comm::CollectiveCall call_of(const Schedule& schedule, std::byte* in, std::byte* out);

}  // namespace herd::testing_support
