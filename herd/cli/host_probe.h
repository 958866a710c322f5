// What the ranks' host does at this moment: the rates and factors of topology.h's Host, measured in the memory that a
// message of so many bytes takes, for a prediction beside a measurement. The cores of a virtual machine move within
// seconds, so samples are taken by turns with what is predicted.
// Threads: one at a time; collective.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "herd/comm/communicator.h"
#include "herd/memory/shared_memory.h"
#include "herd/topology/topology.h"

namespace herd::cli {

class HostProbe {
 public:
  HostProbe(Communicator& comm, int64_t message_bytes);
  void sample();
  // The topology with its hosts as the medians of the samples say, and the latency between them; the same on all ranks.
  // `core_ns`: core_distance.h's round trip, 0 where it has none. REQUIRES a sample.
  Topology applied_to(Topology topology, double core_ns) const;

 private:
  enum Kind { kAlone, kAll, kReadPeer, kWritePeer, kWriteStage, kReadStage, kBarrier, kKinds };
  double measure(Kind kind);
  double once(Kind kind);
  void copy(Kind kind);

  Communicator& comm_;
  int here_ = 1;            // ranks of this host
  bool first_here_ = true;  // this rank is the first of them
  bool streams_;            // the message is written past the cache
  int64_t bytes_, stage_bytes_;
  SharedMemory sink_;  // private
  SymmetricMemory source_, stage_;
  std::byte* peer_source_ = nullptr;  // of the next rank of this host; null: there is none
  std::byte* peer_stage_ = nullptr;
  std::array<std::vector<double>, kKinds> us_;  // of the slowest rank
};

}  // namespace herd::cli
