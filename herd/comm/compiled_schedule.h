// Makes a schedule ready to run many times: bytes instead of elements, lanes and dependencies as flat arrays.
// Threads: constant after construction.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "herd/kernels/write_kind.h"
#include "herd/schedule/schedule.h"

namespace herd::comm {

struct Operand {
  Rank rank;
  Space space;
  int64_t begin;  // bytes
};

struct CompiledStep {
  StepKind kind;
  bool completes;
  kernels::WriteKind store;
  uint16_t num_targets, num_sources;
  Rank peer;
  uint32_t ordinal;        // kSignal, kWait: number of the signal to or from this peer, from 1
  uint32_t first_operand;  // index of the step's operands: targets, then sources
  uint32_t dependencies_begin, dependencies_end;
  int64_t elements;
};

struct CompiledLane {
  uint32_t begin, end;  // in lane_steps
};

class CompiledSchedule {
 public:
  // Messages of so many bytes leave the cache before anyone reads their results again, so results are written past it.
  static constexpr int64_t kStreamBytes = 16 << 20;
  // Steps of so many bytes that write to the stage, or copy to a peer, take over the lines, which lie in the caches of
  // the peers that read them last. Ordinary stores would read them first, at 1.7 GB/s from another cache.
  static constexpr int64_t kTakeOverBytes = 2 << 10;

  explicit CompiledSchedule(Schedule schedule);  // throws kBug where a step makes no sense

  const Schedule& schedule() const { return schedule_; }
  std::span<const CompiledStep> steps() const { return steps_; }
  std::span<const CompiledLane> lanes() const { return lanes_; }
  std::span<const uint32_t> lane_steps() const { return lane_steps_; }
  std::span<const uint32_t> dependencies() const { return dependencies_; }
  const Operand* operands(const CompiledStep& step) const { return operands_.data() + step.first_operand; }
  int64_t element_bytes() const { return size_of(schedule_.dtype); }
  // Returns the elements that a local step moves before others have their turn.
  int64_t turn_elements() const { return turn_elements_; }
  int64_t scratch_bytes() const { return schedule_.scratch_elements * element_bytes(); }
  int64_t stage_bytes() const { return schedule_.stage_elements * element_bytes(); }
  // Tells whether some step signals, waits, or touches a peer's memory.
  bool meets_peers() const { return meets_peers_; }
  int max_operands() const { return max_operands_; }

 private:
  // Counts, by peer, the signals so far in `signals_sent` and `signals_awaited`.
  void add_step(const Step& step, std::vector<uint32_t>& signals_sent, std::vector<uint32_t>& signals_awaited);

  Schedule schedule_;
  std::vector<CompiledStep> steps_;
  std::vector<Operand> operands_;
  std::vector<CompiledLane> lanes_;
  std::vector<uint32_t> lane_steps_, dependencies_;
  int64_t turn_elements_ = 1;
  bool meets_peers_ = false;
  int max_operands_ = 0;
};

}  // namespace herd::comm
