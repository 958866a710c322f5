// What the ranks' host does at this moment: the rates and factors of topology.h's Host, measured in the memory that a
// message of so many bytes takes, for a prediction beside a measurement. The cores of a virtual machine move within
// seconds, so samples are taken by turns with what is predicted.
//   own memory     copied by one rank alone, and by all at once
//   peers' memory  read (and added to own, where the operation reduces) after its owner wrote it; written after its
//                  owner wrote it, or where outputs lie apart read it
//   shared         own memory written after a peer read it: as in an all-reduce in place, whose ranks each reduce a
//                  part, and then copy the others' over what these have read; other operations have none
//   stage          taken over after a peer read it, and read after a peer wrote it
//   messages       passed around a ring, or where one rank has all, along a tree: as long as those of the operation,
//                  and an eighth of that, of 4 KiB at most
//   signals        where each rank of one host has a core: a barrier, and core_distance.h's round trip
//   steps          of a schedule (step_probe.h)
//   turns          where ranks outnumber cores: what a barrier takes, and a ring of messages
//   links          between hosts link_probe.h's times, for messages as long as the operation's parts: a link that lets
//                  bursts pass is another one for short messages
// Threads: one at a time; collective.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "herd/cli/bench_pattern.h"
#include "herd/cli/probe_sizes.h"
#include "herd/cli/step_probe.h"
#include "herd/collectives/request.h"
#include "herd/comm/communicator.h"
#include "herd/kernels/store_kind.h"
#include "herd/memory/shared_memory.h"
#include "herd/topology/topology.h"

namespace herd::cli {

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
    kReducePart,
    kCopyPart,
    kWriteStage,
    kReadStage,
    kBarrier,
    kRing,
    kShorterMessages,
    kMessages,
    kKinds
  };
  bool measures(Kind kind) const;
  void fill(std::byte* memory, int64_t bytes) const;
  void take(std::byte* to, const std::byte* from, const std::byte* own, int64_t bytes) const;
  kernels::StoreKind store_kind() const { return streams_ ? kernels::StoreKind::kStream : kernels::StoreKind::kCached; }
  int pieces() const { return static_cast<int>(std::max<int64_t>(1, size_.read / size_.staged)); }
  // Of the stage: staged algorithms have two or three pieces under way, operations two copies of the stage.
  int slots() const { return 2 * std::min(2, pieces()); }
  // Of the part that a rank reduces, and of the one that it copies from the next rank (place(rank + 1)): nobody reads
  // what another one writes.
  int64_t place(Rank rank) const { return size_.place(operation_, comm_.size(), rank % 2 != 0); }
  void wake() const;
  void settle(Kind kind, int round);
  void run(Kind kind, int round);
  double once(Kind kind, int round);
  int64_t memory_bytes() const { return size_.memory(operation_, comm_.size()); }
  CollectiveRequest messages(int64_t bytes) const;
  std::string_view messages_by() const { return operation_.rooted ? "binomial" : "ring"; }
  void pass(int64_t bytes);
  void sample_link();
  void apply_turns(Topology& topology, double barrier_us, double ring_us) const;
  void apply_messages(Topology& topology, double us_short, double us_long) const;

  Communicator& comm_;
  int here_ = 1;               // ranks of this host
  Rank next_ = -1;             // of them, after this one; -1: none
  bool first_here_ = true;     // this rank is the first of them
  bool one_clock_;             // all ranks, also of several hosts, run on one machine
  bool crowded_;               // they outnumber its cores
  bool each_alone_ = false;    // they copy one after the other: these, or those of a rooted operation
  int64_t at_once_bytes_ = 0;  // that each copies where all do
  ProbedOperation operation_;
  bool streams_;     // the message is written past the cache
  double clock_us_;  // what looking at the clock takes
  ProbeSizes size_;
  int64_t host_bytes_ = 0;  // of one host's part of the message; 0: there is one host
  std::string barrier_;     // its algorithm
  StepProbe step_;
  BenchPattern pattern_;  // what memory holds, as the operation's does
  SharedMemory sink_;     // private
  SymmetricMemory source_, stage_;
  bool have_peers_ = false;           // some host has several ranks
  std::byte* peer_source_ = nullptr;  // of the next rank of this host; null: there is none
  std::byte* peer_stage_ = nullptr;
  std::array<std::vector<double>, kKinds> us_;
  std::vector<double> step_us_;
  // latency, us a byte, message_us, us a byte of a core, burst_bytes, us a byte of a burst
  std::array<std::vector<double>, 6> link_;
};

}  // namespace herd::cli
