// What the ranks' host does at this moment: the rates and factors of topology.h's Host, measured in the memory that a
// message of so many bytes takes, for a prediction beside a measurement. The cores of a virtual machine move within
// seconds, so samples are taken by turns with what is predicted.
//   own memory     copied by one rank alone, and by all at once
//   peers' memory  read (and added to own, where the operation reduces) after its owner wrote it; written after its
//                  owner wrote it, or where outputs lie apart read it
//   shared         own memory written after a peer read it
//   stage          taken over after a peer read it, and read after a peer wrote it
//   messages       exchanged among all ranks: as long as those of the operation, and an eighth of that
//   signals        barriers, and core_distance.h's round trip
//   turns          where ranks outnumber cores: what a barrier takes, and a ring of messages
//   links          between hosts link_probe.h's times, for messages as long as the operation's parts: a link that lets
//                  bursts pass is another one for short messages
// Threads: one at a time; collective.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "herd/base/dtype.h"
#include "herd/base/reduce_op.h"
#include "herd/cli/bench_pattern.h"
#include "herd/comm/communicator.h"
#include "herd/memory/shared_memory.h"
#include "herd/topology/topology.h"

namespace herd::cli {

struct ProbedOperation {
  int64_t bytes = 0;  // of the whole message, as schedule.h defines it
  DType dtype = DType::kF32;
  std::optional<ReduceOp> reduce = {};  // none: it moves bytes
  bool in_place = false;                // inputs are outputs, too
  bool rooted = false;                  // while one rank writes, others read
};

class HostProbe {
 public:
  HostProbe(Communicator& comm, const ProbedOperation& operation);
  void sample();
  // The topology with its hosts and uplinks as the medians of the samples say; the same on all ranks.
  // `core_ns`: core_distance.h's round trip, 0 where it has none. REQUIRES a sample.
  Topology applied_to(Topology topology, double core_ns) const;

 private:
  enum Kind {
    kAlone,
    kAll,
    kReadPeer,
    kReadOwn,
    kWritePeer,
    kReadShared,
    kWriteShared,
    kWriteStage,
    kReadStage,
    kBarrier,
    kRing,
    kShorterMessages,
    kMessages,
    kKinds
  };
  bool measures(Kind kind) const;
  void fill(std::byte* memory) const;
  void settle(Kind kind, int64_t offset);
  void run(Kind kind, int64_t offset);
  double once(Kind kind, int64_t offset);
  void exchange(int64_t elements);
  void sample_link();
  void apply_turns(Topology& topology, double barrier_us, double ring_us) const;
  void apply_messages(Topology& topology, double at_once, double us_short, double us_long) const;

  Communicator& comm_;
  int here_ = 1;               // ranks of this host
  bool first_here_ = true;     // this rank is the first of them
  bool crowded_;               // they outnumber its cores
  int barriers_;               // in a sample
  bool each_alone_ = false;    // they copy one after the other: these, or those of a rooted operation
  int64_t at_once_bytes_ = 0;  // that each copies where all do
  ProbedOperation operation_;
  bool streams_;             // the message is written past the cache
  double clock_us_;          // what looking at the clock takes
  int64_t bytes_;            // of a buffer
  int64_t part_bytes_;       // of one rank's part of the message
  int64_t stage_bytes_;      // of a piece that staged algorithms cut it into
  int64_t block_, shorter_;  // elements of fp32 that each rank gives each other one as a message
  int64_t host_bytes_ = 0;   // of one host's part of the message; 0: there is one host
  std::string barrier_;      // its algorithm
  BenchPattern pattern_;     // what memory holds, as the operation's does
  SharedMemory sink_;        // private
  SymmetricMemory source_, stage_;
  bool have_peers_ = false;           // some host has several ranks
  std::byte* peer_source_ = nullptr;  // of the next rank of this host; null: there is none
  std::byte* peer_stage_ = nullptr;
  std::array<std::vector<double>, kKinds> us_;
  // latency, us a byte, message_us, us a byte of a core, burst_bytes, us a byte of a burst
  std::array<std::vector<double>, 6> link_;
};

}  // namespace herd::cli
