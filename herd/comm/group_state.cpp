#include "herd/comm/group_state.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <map>
#include <thread>
#include <utility>

#include "herd/comm/collective_call.h"
#include "herd/comm/failure_report.h"
#include "herd/comm/fingerprint.h"
#include "herd/comm/short_list.h"

namespace herd::comm {
namespace {

using std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr uint64_t kStatusStride = 256;  // one in this many operations publishes this rank's status
constexpr std::chrono::hours kLongestDeadline{24 * 365};
constexpr size_t kMaxSchedules = 1024;  // cached schedules; more are dropped when the group is idle

std::string group_key(const GroupSettings& settings) { return "group" + std::to_string(settings.id); }

template <size_t N>
void copy_text(char (&to)[N], std::string_view from) {
  const size_t count = std::min(from.size(), N - 1);
  std::copy_n(from.data(), count, to);  // unlike memcpy, it takes the null pointer of an empty text
  std::memset(to + count, 0, N - count);
}

// Returns what few operations state beside count and dtype: "list of 3 5, segments of 4096 bytes".
std::string details_of(const CollectiveRequest& request, const std::string& shape) {
  std::string text = shape;
  const auto add = [&](const std::string& detail) { text += (text.empty() ? "" : ", ") + detail; };
  if (!request.counts.empty()) add("counts " + short_list(request.counts, kShownList));
  if (request.segment_bytes > 0) add("segments of " + std::to_string(request.segment_bytes) + " bytes");
  return text;
}

SteadyTime open_deadline() { return steady_clock::now() + 60s; }

}  // namespace

GroupState::GroupState(std::shared_ptr<ProgressEngine> engine, std::shared_ptr<const RegionTable> regions,
                       GroupSettings settings)
    : engine_(std::move(engine)),
      settings_(std::move(settings)),
      channel_(engine_->transport().open_channel(group_key(settings_), settings_.members, open_deadline())),
      schedules_(settings_.schedules, channel_->stage_bytes()),
      regions_(std::move(regions), settings_.members),
      executor_(*channel_,
                [this](Rank peer, uint64_t region, int64_t offset) { return resolve(peer, region, offset); }),
      finished_(static_cast<size_t>(channel_->size()), 0) {
  for (Rank peer = 0; peer < size(); ++peer) same_host_ &= channel_->maps(peer);
  std::map<int, int> host_numbers;
  for (Rank member : settings_.members) {
    if (same_host_) break;
    const int host = engine_->transport().host_of(member);
    hosts_.push_back(host_numbers.emplace(host, static_cast<int>(host_numbers.size())).first->second);
  }
  engine_->locked([&] { settings_.domain->add(*this); });
}

GroupState::~GroupState() {
  leave_devices();
  engine_->locked([&] {
    if (!idle()) {
      failure_.emplace(Code::kAborted,
                       "the communicator \"" + settings_.name + "\" was closed with operations in flight");
      end_pending();
      end_storing();
    }
    engine_->forget(*this);
    settings_.domain->remove(*this);
    compare_at_close();
  });
}

// Lets no peer read memory that is gone: returns when all have finished what this rank took part in on its device.
void GroupState::leave_devices() {
  if (device_collectives_ == nullptr) return;
  const auto until = steady_clock::now() + std::min<std::chrono::milliseconds>(settings_.deadline, 10s);
  const bool all_done = wait_for_peers(last_on_device_, until);
  const bool failed_now = engine_->locked([&] { return failure_.has_value() || !idle(); });
  if (all_done && !failed_now && !channel_->failure_board().ready())
    device_collectives_->drain();
  else
    device_collectives_->leave_open();
}

bool GroupState::wait_for_peers(uint64_t sequence, SteadyTime until) {
  const auto is_done = [&](Rank peer) {
    return peer == rank() || channel_->board(peer).finished.load(std::memory_order_acquire) >= sequence ||
           channel_->board(peer).left.load(std::memory_order_acquire) != 0;
  };
  while (!channel_->failure_board().ready()) {
    bool all_done = true;
    for (Rank peer = 0; peer < size(); ++peer) all_done &= is_done(peer);
    if (all_done || steady_clock::now() >= until) return all_done;
    if (!same_host_) engine_->locked([&] { channel_->refresh_boards(0ms); });
    std::this_thread::sleep_for(100us);
  }
  return false;
}

void GroupState::let_peers_finish() {
  const uint64_t finished = channel_->board(rank()).finished.load(std::memory_order_acquire);
  wait_for_peers(finished, steady_clock::now() + 200ms);
}

void GroupState::set_deadline(std::chrono::milliseconds deadline) {
  settings_.deadline = std::min<std::chrono::milliseconds>(deadline, kLongestDeadline);
}

std::chrono::milliseconds GroupState::deadline_of(std::chrono::milliseconds asked) const {
  if (asked.count() < 0) {
    throw Error(Code::kBadConfig, "deadline of an operation in group \"" + settings_.name +
                                      "\": 0 ms (that of the group) or more, but it is " +
                                      std::to_string(asked.count()) + " ms");
  }
  return asked.count() == 0 ? settings_.deadline : std::min<std::chrono::milliseconds>(asked, kLongestDeadline);
}

void GroupState::prepare(PendingOp& pending, CollectiveCall& call) {
  const auto& regions = regions_.newest();
  std::optional<MappedRegions::Place> in, out;
  if (call.output_bytes > 0) out = regions->find(call.output, call.output_bytes);
  if (call.input_bytes > 0) in = regions->find(call.input, call.input_bytes);
  if (in || out) pending.regions = regions;
  call.request.self = rank();
  call.request.num_ranks = size();
  call.request.same_host = same_host_;
  call.request.hosts = hosts_;
  call.request.direct =
      same_host_ && !call.ordinary && (out || call.output_bytes == 0) && (in || call.input_bytes == 0);
  if (schedules_.size() > kMaxSchedules) {
    engine_->locked([&] {
      if (idle()) schedules_.clear();
    });
  }
  CachedSchedule& cached = schedules_.get(call.algorithm, call.request);
  ++cached.uses;
  pending.group = this;
  pending.timeout = deadline_of(call.deadline);
  pending.where = call.where;
  pending.packing = std::move(call.packing);
  pending.device = std::move(call.device);
  pending.call.program = &cached.compiled;
  pending.call.op = call.op;
  pending.call.input = call.input;
  pending.call.output = call.output;
  if (in) pending.call.header.input_region = in->region, pending.call.header.input_offset = in->offset;
  if (out) pending.call.header.output_region = out->region, pending.call.header.output_offset = out->offset;
  transport::OperationRecord& record = pending.record;
  record.fingerprint = mix(cached.hash, static_cast<uint64_t>(call.op));
  if (call.shape != 0) record.fingerprint = mix(record.fingerprint, call.shape);
  if (!call.name.empty()) record.fingerprint = mix(record.fingerprint, hash_text(call.name));
  const CollectiveRequest& shown = call.shown == nullptr ? call.request : *call.shown;
  record.count = shown.elements;
  record.collective = static_cast<uint8_t>(shown.collective);
  record.dtype = static_cast<uint8_t>(shown.dtype);
  record.reduce_op = static_cast<uint8_t>(call.op);
  record.has_reduce_op = call.reduces;
  record.root = shown.root < 0 ? -1 : job_rank(shown.root);
  record.line = call.where.line();
  copy_text(record.algorithm,
            call.shown == nullptr ? std::string_view(cached.compiled.schedule().algorithm) : call.shown_algorithm);
  copy_text(record.name, call.name);
  copy_text(record.details, details_of(shown, call.shape_text));
  record.in_place = shown.in_place;
  const std::string_view file(call.where.file_name());
  copy_text(record.file, file.substr(file.size() - std::min(file.size(), sizeof record.file - 1)));
}

void GroupState::submit(PendingOp& pending) {
  if (failure_) {
    pending.error = failure_;
    return engine_->completed(pending);
  }
  if (pending.kind != PendingOpKind::kCollective) return submit_transfer(pending);
  const uint64_t sequence = ++issued_;
  pending.call.sequence = pending.record.sequence = sequence;
  pending.record.fingerprint = mix(pending.record.fingerprint, sequence);
  fingerprint_chain_ = mix(fingerprint_chain_, pending.record.fingerprint);
  pending.call.header.fingerprint = fingerprint_chain_;
  (current_ == nullptr ? current_ : last_->next) = &pending;
  last_ = &pending;
}

void GroupState::submit_transfer(PendingOp& pending) {
  pending.source_unknown = pending.message.peer == kAnySource;
  // Sends to one rank keep their order, so those behind one that waits for its message wait, too.
  if (pending.kind == PendingOpKind::kSend &&
      (!loading_.empty() || (pending.device != nullptr && !pending.device->load())))
    return loading_.push_back(&pending);
  post_transfer(pending);
}

void GroupState::post_transfer(PendingOp& pending) {
  transfers_.add(pending);
  if (pending.source_unknown) return;
  try {
    pending.kind == PendingOpKind::kSend ? channel_->post_send(pending.message)
                                         : channel_->post_receive(pending.message);
  } catch (const std::exception& error) {
    fail_with(error);
  }
}

bool GroupState::poll() {
  if (failure_) return complete_stored();  // what had come already
  if (channel_->failure_board().ready()) {
    settings_.domain->check_peers();
    return true;
  }
  try {
    bool moved = !storing_.empty() && complete_stored();
    moved |= !loading_.empty() && post_loaded();
    moved |= current_ != nullptr && advance_current();
    if (failure_) return true;
    moved |= channel_->progress();
    if (!transfers_.empty()) moved |= match_any_source() | complete_transfers();
    return moved;
  } catch (const std::exception& error) {
    fail_with(error);
    return true;
  }
}

bool GroupState::advance_current() {
  if (!current_->begun && !try_begin(*current_)) return false;
  if (current_->device != nullptr && !current_->device->load()) return false;
  if (current_->packing != nullptr && current_->packing->load_some()) return true;
  const bool moved = executor_.advance();
  if (executor_.mismatched_peer() >= 0) {
    refresh_positions();
    fail(Code::kBadConfig, mismatch_report(*this, *current_, executor_.mismatched_peer()));
    return true;
  }
  if (executor_.done()) {
    if (current_->packing != nullptr && current_->packing->store_some()) return true;
    finish_current();
    return true;
  }
  return moved;
}

uint64_t GroupState::finished_by(Rank peer, uint64_t at_least) {
  uint64_t& known = finished_[static_cast<size_t>(peer)];
  if (known < at_least) known = std::max(known, executor_.last_known_finished(peer));
  if (known < at_least) known = channel_->board(peer).finished.load(std::memory_order_seq_cst);
  return known;
}

// Begins an operation once all peers have finished `previous_use`, the last one with the same header slots or the same
// stage copy. Otherwise it sets the flag awaits_finish, and peers that finish an operation wake this rank.
bool GroupState::try_begin(PendingOp& pending) {
  const CompiledSchedule& compiled = *pending.call.program;
  const uint64_t sequence = pending.call.sequence;
  const bool uses_stage = compiled.stage_bytes() > 0;
  const int stage_copy = static_cast<int>(stage_uses_ & 1);
  uint64_t previous_use = 0;
  if (compiled.meets_peers() && sequence > transport::Channel::kHeaders) {
    previous_use = sequence - transport::Channel::kHeaders;
  }
  if (uses_stage) previous_use = std::max(previous_use, last_stage_use_[stage_copy]);
  if (previous_use > 0) {
    for (Rank peer = 0; peer < size(); ++peer) {
      if (peer == rank() || !channel_->maps(peer) || finished_by(peer, previous_use) >= previous_use) continue;
      if (awaits_finish_) return false;
      awaits_finish_ = true;
      channel_->board(rank()).awaits_finish.store(1, std::memory_order_seq_cst);
      // The peer stores what it finished before it reads the flag. So it sees the flag, or this rank sees the operation
      // here: no wake-up is lost.
      if (finished_by(peer, previous_use) < previous_use) return false;
    }
    if (awaits_finish_) channel_->board(rank()).awaits_finish.store(0, std::memory_order_relaxed);
    awaits_finish_ = false;
  }
  if (uses_stage) {
    channel_->commit_stage(stage_copy, compiled.stage_bytes());
    ++stage_uses_;
    last_stage_use_[stage_copy] = sequence;
  }
  transport::RankBoard& board = channel_->board(rank());
  board.records[sequence % transport::kRecords].write(pending.record);
  board.started.store(sequence, std::memory_order_release);
  pending.call.stage_copy = stage_copy;
  pending.call.header.last_finished = sequence - 1;
  pending.begun = true;
  executor_.begin(pending.call);
  if (settings_.show_status && sequence % kStatusStride == 1) show_status(SteadyTime{});
  return true;
}

void GroupState::finish_current() {
  PendingOp& pending = *current_;
  if (pending.device != nullptr) {
    pending.device->store();  // before peers see that the operation has ended: see leave_devices()
    last_on_device_ = pending.call.sequence;
  }
  current_ = pending.next;
  if (current_ == nullptr) last_ = nullptr;
  warned_ = false;
  pending.regions.reset();
  channel_->board(rank()).finished.store(pending.call.sequence, std::memory_order_seq_cst);
  for (Rank peer = 0; peer < size(); ++peer) {
    if (peer != rank() && channel_->board(peer).awaits_finish.load(std::memory_order_seq_cst) != 0)
      channel_->wake_peer(peer);
  }
  count_moved();
  if (pending.device == nullptr && storing_.empty()) return engine_->completed(pending);
  storing_.push_back(&pending);
  complete_stored();
}

// Collectives end in their order, so one ends behind those whose results are on their way.
bool GroupState::complete_stored() {
  bool moved = false, collective_waits = false;
  std::optional<Error> refused;
  for (size_t i = 0; i < storing_.size();) {
    PendingOp& pending = *storing_[i];
    const bool is_collective = pending.kind == PendingOpKind::kCollective;
    try {
      if ((is_collective && collective_waits) || (pending.device != nullptr && !pending.device->stored())) {
        collective_waits |= is_collective;
        ++i;
        continue;
      }
    } catch (const Error& error) {
      refused = pending.error = error;
    }
    storing_.erase(storing_.begin() + static_cast<std::ptrdiff_t>(i));
    engine_->completed(pending);
    moved = true;
  }
  if (refused && !failure_) fail_with(*refused);
  return moved;
}

bool GroupState::post_loaded() {
  bool moved = false;
  while (!loading_.empty() && (loading_.front()->device == nullptr || loading_.front()->device->load())) {
    PendingOp& pending = *loading_.front();
    loading_.pop_front();
    post_transfer(pending);
    moved = true;
  }
  return moved;
}

// Counts the bytes moved since the last call, also those of operations still in flight.
void GroupState::count_moved() {
  const uint64_t moved = channel_->bytes_sent() + executor_.bytes_in_peers_memory();
  engine_->count_moved(moved - counted_bytes_);
  counted_bytes_ = moved;
}

bool GroupState::match_any_source() {
  return transfers_.find_sources([this](PendingOp& pending) {
    for (Rank peer = 0; peer < size(); ++peer) {
      if (!channel_->has_unclaimed_message(peer, pending.message.envelope.tag)) continue;
      pending.source_unknown = false;
      pending.message.peer = peer;
      channel_->post_receive(pending.message);
      return true;
    }
    return false;
  });
}

bool GroupState::complete_transfers() {
  bool moved = false;
  const PendingOp* mismatched = transfers_.take_done([&](PendingOp& pending) {
    count_moved();
    moved = true;
    ++completed_transfers_;
    if (pending.device == nullptr) return engine_->completed(pending);
    pending.device->store();
    storing_.push_back(&pending);
  });
  if (!storing_.empty()) complete_stored();
  if (transfers_.empty()) show_transfer(0);
  if (mismatched == nullptr) return moved;
  fail(Code::kBadConfig, transfer_mismatch_report(*this, *mismatched));
  return true;
}

std::byte* GroupState::resolve(Rank peer, uint64_t region, int64_t offset) {
  std::byte* found = current_->regions == nullptr ? nullptr : current_->regions->resolve(peer, region, offset);
  if (found != nullptr) return found;
  current_->regions = regions_.rebuilt();
  found = current_->regions->resolve(peer, region, offset);
  if (found != nullptr) return found;
  throw Error(Code::kBadConfig, "the buffer of rank " + std::to_string(job_rank(peer)) + " in " +
                                    describe(current_->record) + " lies in symmetric memory that rank " +
                                    std::to_string(job_rank(rank())) +
                                    " does not hold\n  fix: every rank keeps its handle until all have finished");
}

}  // namespace herd::comm
