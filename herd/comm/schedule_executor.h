// ScheduleExecutor runs one collective: it is a state machine over a compiled schedule. It never blocks; advance() does
// what can be done. Operations reuse it, so that a repeated one allocates nothing.
// Threads: one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "herd/base/reduce_op.h"
#include "herd/comm/compiled_schedule.h"
#include "herd/transport/channel.h"

namespace herd::comm {

// Finds a peer's symmetric memory in this process. Throws kBadConfig for a region that this rank does not hold.
using ResolveRegion = std::function<std::byte*(Rank peer, uint64_t region, int64_t offset)>;

struct OperationCall {
  const CompiledSchedule* program = nullptr;
  ReduceOp op = ReduceOp::kSum;
  std::byte* input = nullptr;  // nullptr in place
  std::byte* output = nullptr;
  uint64_t sequence = 0;
  int stage_copy = 0;
  transport::OperationHeader header;  // this rank's header
};

// Lets tests stop or delay a rank in the middle of an operation.
struct OperationFault {
  int64_t stop_before_step = -1;                   // this step and all later ones never begin
  std::function<void(uint32_t step)> before_step;  // called before a step begins
  std::function<bool()> skip_turn;                 // true: the lane stops here this time (shuffles the interleaving)
};

class ScheduleExecutor {
 public:
  ScheduleExecutor(transport::Channel& channel, ResolveRegion resolve);

  // REQUIRES that peers have finished the operation that used the same header slots and stage copy before.
  void begin(const OperationCall& call);
  bool advance();  // returns true if anything moved
  bool done() const { return steps_done_ == num_steps_; }

  // Returns the peer whose operation is not this one, or -1. Nothing moves any more then.
  Rank mismatched_peer() const { return mismatched_peer_; }
  uint64_t steps_done() const { return steps_done_; }
  uint64_t num_steps() const { return num_steps_; }
  // Counts the bytes read from and written to peers' memory by all operations so far, turn by turn.
  uint64_t bytes_in_peers_memory() const { return bytes_in_peers_memory_; }
  // Returns the last operation that the peer had finished when it wrote the newest header that this rank has read.
  uint64_t last_known_finished(Rank peer) const { return last_known_finished_[static_cast<size_t>(peer)]; }
  // Returns the peers that a step at the head of its lane waits for, ascending.
  std::vector<Rank> awaited() const;
  OperationFault& fault() { return fault_; }

 private:
  enum class Turn { kBlocked, kMoved, kDone };
  struct LaneState {
    uint32_t head = 0, end = 0;  // in program.lane_steps()
    uint32_t dependency = 0;     // the first dependency of the head that is not yet seen done
    bool begun = false;          // the head's dependencies are done
    bool posted = false;
    int64_t elements_done = 0;
  };
  struct ReceiveReduce final : transport::ArrivalSink {
    void take(std::byte* target, const std::byte* arrived, int64_t offset, int64_t bytes) override;
    const std::byte* local = nullptr;
    int64_t element_bytes = 1;
    DType dtype = DType::kF32;
    ReduceOp op = ReduceOp::kSum;
    double scale = 1;
  };
  struct Transfer {
    transport::Message message;
    ReceiveReduce reduce;
  };

  bool advance_lane(size_t index);
  bool ready(LaneState& lane, const CompiledStep& step);
  Turn run(size_t lane_index, const CompiledStep& step);
  Turn wait(const CompiledStep& step);
  Turn transfer(size_t lane_index, const CompiledStep& step);
  Turn compute(LaneState& lane, const CompiledStep& step);
  std::byte* resolve(const Operand& operand);
  std::byte* peer_buffer(Rank peer, Space space);
  bool header_matches(Rank peer);
  double scale_of(const CompiledStep& step) const;

  transport::Channel& channel_;
  ResolveRegion resolve_region_;
  OperationCall call_;
  OperationFault fault_;
  double average_ = 1;
  size_t num_lanes_ = 0;
  uint64_t steps_done_ = 0, num_steps_ = 0;
  uint64_t bytes_in_peers_memory_ = 0;
  Rank mismatched_peer_ = -1;
  std::vector<LaneState> lanes_;
  std::vector<Transfer> transfers_;  // by lane
  std::vector<uint8_t> step_done_;
  std::vector<uint8_t> header_matched_;        // by peer: its header has been compared with this rank's
  std::vector<uint64_t> last_known_finished_;  // by peer
  std::vector<std::byte*> peer_buffers_;       // by peer: input, output; nullptr = not looked up yet
  std::vector<std::byte> scratch_;
  std::vector<void*> targets_;
  std::vector<const void*> sources_;
};

}  // namespace herd::comm
