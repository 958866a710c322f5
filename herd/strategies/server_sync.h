// Parameter servers over one axis of n ranks: no rank sums gradients or updates weights. Each rank pushes its gradient
// of a group as soon as it is complete, the servers sum and update, and the rank pulls the weights before the next
// step. The first k ranks serve, or k ranks of their own that train nothing, each 1/k of all elements.
//   Synchronous, the servers update once all ranks have pushed. With a staleness s > 0, or without a bound, they update
// with each push, and a rank waits for others only where it is more than s steps ahead of the slowest.
//   Of M gradient bytes a worker sends M and receives M; a server receives and sends n * M/k. What a rank gives to its
//   own server moves nothing: a rank that serves sends (k-1)/k * M + (n-1)/k * M, one that does not sends M. With k = n
//   these are the 2(n-1)/n * M of an all-reduce.
//   Encoded gradients (compression.h) take fewer bytes on their way; the servers decode each, and sum in fp32.
//   On the host a server keeps 1/k of the weights and states, and 1/k of each rank's gradient.
//   Beside a device a gradient is copied to the host before its push, and weights from it after their pull: M bytes of
//   the host's memory for weights, and room for a few gradients.
// Source: Li et al. 2014, "Scaling Distributed Machine Learning with the Parameter Server", OSDI; staleness: Ho et al.
// 2013, "More Effective Distributed ML via a Stale Synchronous Parallel Parameter Server", NIPS.
#pragma once

#include "herd/strategies/technique.h"

namespace herd::strategies {

class ServerSync final : public Strategy {
 public:
  struct Servers {
    int on_axis = 0;    // ranks of the axis that serve, the first ones
    int dedicated = 0;  // ranks of their own, in place of those
  };
  // `staleness` is in steps, or program::kNoBound. `tier` is what ranks push from and pull into: the host's memory
  // beside a device.
  ServerSync(int axis, Servers servers, int staleness = 0, program::Tier tier = program::Tier::kDevice)
      : axis_(axis), servers_(servers), staleness_(staleness), tier_(tier) {}
  std::string name() const override;
  program::Program rewrite(program::Program step) const override;

 private:
  int axis_;
  Servers servers_;
  int staleness_;
  program::Tier tier_;
};

// Counts the ranks that serve, on the data axis or of their own. REQUIRES uses_servers(run, layout).
int num_servers(const spec::RunFile& run, const spec::Layout& layout);
// Tells whether the run's ranks push to parameter servers. One rank alone updates by itself,
// unless there are ranks that only serve.
bool uses_servers(const spec::RunFile& run, const spec::Layout& layout);
// Returns how many steps a rank may be ahead of the slowest, or program::kNoBound. 0 where ranks wait for each other.
int staleness(const spec::RunFile& run, const spec::Layout& layout);

Technique server_sync_row();  // returns its row in the table of techniques.h

}  // namespace herd::strategies
