#include "herd/comm/schedule_executor.h"

#include <algorithm>
#include <utility>

#include "herd/kernels/copy.h"
#include "herd/kernels/reduce_kernel.h"

namespace herd::comm {

void ScheduleExecutor::ReceiveReduce::take(std::byte* target, const std::byte* arrived, int64_t offset, int64_t bytes) {
  void* const targets[] = {target};
  const void* const sources[] = {local + offset, arrived};
  kernels::reduce(targets, sources, bytes / element_bytes, dtype, op, scale);
}

ScheduleExecutor::ScheduleExecutor(transport::Channel& channel, ResolveRegion resolve)
    : channel_(channel), resolve_region_(std::move(resolve)) {
  const auto n = static_cast<size_t>(channel.size());
  header_matched_.resize(n);
  last_known_finished_.resize(n);
  peer_buffers_.resize(2 * n);
}

void ScheduleExecutor::begin(const OperationCall& call) {
  call_ = call;
  const CompiledSchedule& compiled = *call.program;
  average_ = call.op == ReduceOp::kAverage ? 1.0 / compiled.schedule().num_ranks : 1.0;
  num_lanes_ = compiled.lanes().size();
  num_steps_ = compiled.steps().size();
  steps_done_ = 0;
  mismatched_peer_ = -1;
  if (lanes_.size() < num_lanes_) {
    lanes_.resize(num_lanes_);
    transfers_.resize(num_lanes_);
  }
  for (size_t i = 0; i < num_lanes_; ++i) {
    const CompiledLane& lane = compiled.lanes()[i];
    lanes_[i] = {
        .head = lane.begin, .end = lane.end, .dependency = 0, .begun = false, .posted = false, .elements_done = 0};
  }
  step_done_.assign(num_steps_, 0);
  if (scratch_.size() < static_cast<size_t>(compiled.scratch_bytes()))
    scratch_.resize(static_cast<size_t>(compiled.scratch_bytes()));
  const auto operands = static_cast<size_t>(compiled.max_operands());
  if (targets_.size() < operands) {
    targets_.resize(operands);
    sources_.resize(operands);
  }
  if (!compiled.meets_peers()) return;
  std::fill(header_matched_.begin(), header_matched_.end(), 0);
  std::fill(peer_buffers_.begin(), peer_buffers_.end(), nullptr);
  for (Rank peer = 0; peer < channel_.size(); ++peer) {
    if (peer != channel_.rank()) channel_.publish_header(peer, call.sequence, call.header);
  }
}

bool ScheduleExecutor::advance() {
  bool moved = false;
  for (size_t i = 0; i < num_lanes_; ++i) {
    if (lanes_[i].head < lanes_[i].end) moved |= advance_lane(i);
  }
  return moved;
}

bool ScheduleExecutor::advance_lane(size_t index) {
  const CompiledSchedule& compiled = *call_.program;
  LaneState& lane = lanes_[index];
  bool moved = false;
  while (lane.head < lane.end && mismatched_peer_ < 0) {
    if (fault_.skip_turn && fault_.skip_turn()) return moved;
    const uint32_t number = compiled.lane_steps()[lane.head];
    const CompiledStep& step = compiled.steps()[number];
    if (!lane.begun) {
      if (fault_.stop_before_step >= 0 && number >= fault_.stop_before_step) return moved;
      if (!ready(lane, step)) return moved;
      if (fault_.before_step) fault_.before_step(number);
      lane.begun = true;
    }
    const Turn turn = run(index, step);
    if (turn != Turn::kDone) return moved || turn == Turn::kMoved;
    step_done_[number] = 1;
    ++steps_done_;
    ++lane.head;
    lane.begun = lane.posted = false;
    lane.dependency = 0;
    lane.elements_done = 0;
    moved = true;
  }
  return moved;
}

bool ScheduleExecutor::ready(LaneState& lane, const CompiledStep& step) {
  const std::span<const uint32_t> all = call_.program->dependencies();
  uint32_t at = step.dependencies_begin + lane.dependency;
  while (at < step.dependencies_end && step_done_[all[at]] != 0) ++at;
  lane.dependency = at - step.dependencies_begin;
  return at == step.dependencies_end;
}

ScheduleExecutor::Turn ScheduleExecutor::run(size_t lane_index, const CompiledStep& step) {
  switch (step.kind) {
    case StepKind::kSignal:
      channel_.signal(step.peer, call_.sequence, step.ordinal);
      return Turn::kDone;
    case StepKind::kWait:
      return wait(step);
    case StepKind::kCopy:
    case StepKind::kReduce:
      return compute(lanes_[lane_index], step);
    case StepKind::kSend:
    case StepKind::kReceive:
    case StepKind::kReceiveReduce:
      return transfer(lane_index, step);
  }
  return Turn::kBlocked;
}

ScheduleExecutor::Turn ScheduleExecutor::wait(const CompiledStep& step) {
  if (channel_.signals(step.peer, call_.sequence) < step.ordinal) return Turn::kBlocked;
  return header_matches(step.peer) ? Turn::kDone : Turn::kBlocked;
}

// Compares the peer's operation with this one, once, before any of its data is touched.
bool ScheduleExecutor::header_matches(Rank peer) {
  uint8_t& matched = header_matched_[static_cast<size_t>(peer)];
  if (matched != 0) return true;
  const transport::OperationHeader& header = channel_.header(peer, call_.sequence);
  if (header.fingerprint != call_.header.fingerprint) {
    mismatched_peer_ = peer;
    return false;
  }
  last_known_finished_[static_cast<size_t>(peer)] = header.last_finished;
  matched = 1;
  return true;
}

double ScheduleExecutor::scale_of(const CompiledStep& step) const { return step.completes ? average_ : 1.0; }

ScheduleExecutor::Turn ScheduleExecutor::compute(LaneState& lane, const CompiledStep& step) {
  const Operand* operands = call_.program->operands(step);
  const int64_t element_bytes = call_.program->element_bytes();
  const int64_t count = std::min(step.elements - lane.elements_done, call_.program->turn_elements());
  const int64_t offset = lane.elements_done * element_bytes;
  int64_t in_peers = 0;  // operands that lie in peers' memory
  const auto place_of = [&](const Operand& operand) {
    in_peers += operand.rank != channel_.rank();
    return resolve(operand) + offset;
  };
  for (uint16_t i = 0; i < step.num_targets; ++i) targets_[i] = place_of(operands[i]);
  for (uint16_t i = 0; i < step.num_sources; ++i) sources_[i] = place_of(operands[step.num_targets + i]);
  const std::span<void* const> targets(targets_.data(), step.num_targets);
  const std::span<const void* const> sources(sources_.data(), step.num_sources);
  if (step.kind == StepKind::kCopy) {
    kernels::copy(targets, sources[0], count * element_bytes, step.store);
  } else {
    kernels::reduce(targets, sources, count, call_.program->schedule().dtype, call_.op, scale_of(step), step.store);
  }
  lane.elements_done += count;
  bytes_in_peers_memory_ += static_cast<uint64_t>(in_peers * count * element_bytes);
  return lane.elements_done == step.elements ? Turn::kDone : Turn::kMoved;
}

ScheduleExecutor::Turn ScheduleExecutor::transfer(size_t lane_index, const CompiledStep& step) {
  Transfer& transfer = transfers_[lane_index];
  transport::Message& message = transfer.message;
  LaneState& lane = lanes_[lane_index];
  if (!lane.posted) {
    const Operand* operands = call_.program->operands(step);
    message = {};
    message.peer = step.peer;
    message.data = resolve(operands[0]);
    message.granule = call_.program->element_bytes();
    message.envelope.tag = call_.header.fingerprint;
    message.envelope.bytes = static_cast<uint64_t>(step.elements * message.granule);
    if (step.kind == StepKind::kReceiveReduce) {
      transfer.reduce.local = resolve(operands[1]);
      transfer.reduce.element_bytes = message.granule;
      transfer.reduce.dtype = call_.program->schedule().dtype;
      transfer.reduce.op = call_.op;
      transfer.reduce.scale = scale_of(step);
      message.sink = &transfer.reduce;
    }
    lane.posted = true;
    step.kind == StepKind::kSend ? channel_.post_send(message) : channel_.post_receive(message);
    return Turn::kMoved;
  }
  if (message.mismatch) mismatched_peer_ = step.peer;
  return message.done ? Turn::kDone : Turn::kBlocked;
}

std::byte* ScheduleExecutor::resolve(const Operand& operand) {
  const bool own = operand.rank == channel_.rank();
  switch (operand.space) {
    case Space::kScratch:
      return scratch_.data() + operand.begin;
    case Space::kStage:
      return channel_.stage(operand.rank, call_.stage_copy) + operand.begin;
    case Space::kInput:
      return (own ? call_.input : peer_buffer(operand.rank, operand.space)) + operand.begin;
    case Space::kOutput:
      return (own ? call_.output : peer_buffer(operand.rank, operand.space)) + operand.begin;
  }
  return nullptr;
}

std::byte* ScheduleExecutor::peer_buffer(Rank peer, Space space) {
  std::byte*& found = peer_buffers_[static_cast<size_t>(peer) * 2 + (space == Space::kInput ? 0 : 1)];
  if (found == nullptr) {
    const transport::OperationHeader& header = channel_.header(peer, call_.sequence);
    found = space == Space::kInput ? resolve_region_(peer, header.input_region, header.input_offset)
                                   : resolve_region_(peer, header.output_region, header.output_offset);
  }
  return found;
}

std::vector<Rank> ScheduleExecutor::awaited() const {
  std::vector<Rank> ranks;
  for (size_t i = 0; i < num_lanes_; ++i) {
    const LaneState& lane = lanes_[i];
    if (lane.head == lane.end || !lane.begun) continue;
    const CompiledStep& step = call_.program->steps()[call_.program->lane_steps()[lane.head]];
    if (step.peer >= 0) ranks.push_back(step.peer);
  }
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

}  // namespace herd::comm
