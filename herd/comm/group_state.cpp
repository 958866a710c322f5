#include "herd/comm/group_state.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <map>
#include <new>
#include <thread>
#include <utility>

#include "herd/base/check.h"
#include "herd/base/log.h"
#include "herd/comm/report.h"

namespace herd::comm {
namespace {

using std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr auto kGlance = 50ms;           // between two looks at what peers do
constexpr auto kAnswers = 70ms;          // that peers on other hosts have to say where they are, before a report
constexpr auto kWarnAfter = 5s;          // an operation that waits longer says so in the log, once
constexpr auto kStatusEvery = 200ms;     // while an operation waits ..
constexpr uint64_t kStatusStride = 256;  // .. and every so many operations
constexpr size_t kMaxPlans = 1024;

std::string group_key(const GroupSettings& settings) { return "group" + std::to_string(settings.id); }

template <size_t N>
void copy_text(char (&to)[N], std::string_view from) {
  const size_t count = std::min(from.size(), N - 1);
  std::copy_n(from.data(), count, to);  // from may be empty, and hold no pointer
  std::memset(to + count, 0, N - count);
}

SteadyTime open_deadline() { return steady_clock::now() + 60s; }

}  // namespace

GroupState::GroupState(std::shared_ptr<Engine> engine, std::shared_ptr<const RegionTable> regions,
                       GroupSettings settings)
    : engine_(std::move(engine)),
      settings_(std::move(settings)),
      channel_(engine_->transport().open_channel(group_key(settings_), settings_.members, open_deadline())),
      plans_(settings_.schedules, channel_->stage_bytes()),
      regions_(std::move(regions), settings_.members),
      operation_(*channel_,
                 [this](Rank peer, uint64_t region, int64_t offset) { return resolve(peer, region, offset); }),
      finished_(static_cast<size_t>(channel_->size()), 0) {
  for (Rank peer = 0; peer < size(); ++peer) same_host_ &= channel_->maps(peer);
  if (same_host_) return;
  std::map<int, int> numbers;
  for (Rank member : settings_.members) {
    const int host = engine_->transport().host_of(member);
    hosts_.push_back(numbers.emplace(host, static_cast<int>(numbers.size())).first->second);
  }
}

GroupState::~GroupState() {
  engine_->locked([&] {
    if (!idle()) {
      failure_.emplace(Code::kAborted,
                       "the communicator \"" + settings_.name + "\" was closed with operations in flight");
      fail_everything();
    }
    engine_->forget(*this);
    compare_at_close();
  });
}

// What no operation compared, because none of the last ones made the ranks meet: of two ranks that differ, the one that
// closes later sees it. Nobody is left to throw to here; peers that still use the group hear it there.
void GroupState::compare_at_close() {
  if (failure_ || issued_ == 0) return;
  try {
    for (Rank peer = 0; peer < size(); ++peer) {
      const uint64_t first = peer == rank() ? 0 : first_difference(*this, peer, issued_);
      if (first == 0) continue;
      const std::string text = closing_report(*this, peer, first);
      log::error(text);
      channel_->failure().post(rank(), Code::kBadConfig, text);
      return channel_->ring_all();
    }
  } catch (const std::exception& error) {
    log::error(std::string("closing the group: ") + error.what());
  }
}

void GroupState::prepare(Task& task, CollectiveCall& call) {
  const auto& regions = regions_.newest();
  std::optional<MappedRegions::Place> in, out;
  if (call.output_bytes > 0) out = regions->find(call.output, call.output_bytes);
  if (call.input_bytes > 0) in = regions->find(call.input, call.input_bytes);
  if (in || out) task.regions = regions;
  call.request.self = rank();
  call.request.num_ranks = size();
  call.request.same_host = same_host_;
  call.request.hosts = hosts_;
  call.request.direct =
      same_host_ && !call.ordinary && (out || call.output_bytes == 0) && (in || call.input_bytes == 0);
  if (plans_.size() > kMaxPlans) {
    engine_->locked([&] {
      if (idle()) plans_.clear();
    });
  }
  Plan& plan = plans_.get(call.algorithm, call.request);
  ++plan.uses;
  task.group = this;
  task.patience = call.deadline.count() > 0 ? call.deadline : settings_.deadline;
  task.where = call.where;
  task.packing = std::move(call.packing);
  task.call.program = &plan.compiled;
  task.call.op = call.op;
  task.call.input = call.input;
  task.call.output = call.output;
  if (in) task.call.header.input_region = in->region, task.call.header.input_offset = in->offset;
  if (out) task.call.header.output_region = out->region, task.call.header.output_offset = out->offset;
  transport::OperationRecord& record = task.record;
  record.fingerprint = mix(plan.hash, static_cast<uint64_t>(call.op));
  if (call.shape != 0) record.fingerprint = mix(record.fingerprint, call.shape);
  if (!call.name.empty()) record.fingerprint = mix(record.fingerprint, hash_text(call.name));
  record.count = call.request.elements;
  record.collective = static_cast<uint8_t>(call.request.collective);
  record.dtype = static_cast<uint8_t>(call.request.dtype);
  record.op = static_cast<uint8_t>(call.op);
  record.has_op = call.reduces;
  record.root = call.request.root;
  record.line = call.where.line();
  copy_text(record.algorithm, plan.compiled.schedule().algorithm);
  copy_text(record.name, call.name);
  const std::string_view file(call.where.file_name());
  copy_text(record.file, file.substr(file.size() - std::min(file.size(), sizeof record.file - 1)));
}

void GroupState::submit(Task& task) {
  if (failure_) {
    task.error = failure_;
    return engine_->completed(task);
  }
  if (task.kind != TaskKind::kCollective) return submit_transfer(task);
  const uint64_t sequence = ++issued_;
  task.call.sequence = task.record.sequence = sequence;
  task.record.fingerprint = mix(task.record.fingerprint, sequence);
  chain_ = mix(chain_, task.record.fingerprint);
  task.call.header.fingerprint = chain_;
  (current_ == nullptr ? current_ : last_->next) = &task;
  last_ = &task;
}

void GroupState::submit_transfer(Task& task) {
  transfers_.push_back(&task);
  task.seeks = task.message.peer == kAnySource;
  if (task.seeks) return;
  try {
    task.kind == TaskKind::kSend ? channel_->post_send(task.message) : channel_->post_receive(task.message);
  } catch (const std::exception& error) {
    fail_of(error);
  }
}

bool GroupState::poll() {
  if (failure_) return false;
  if (channel_->failure().ready()) {
    adopt_failure();
    return true;
  }
  try {
    bool moved = current_ != nullptr && advance_current();
    if (failure_) return true;
    moved |= channel_->progress();
    if (!transfers_.empty()) moved |= seek_sources() | sweep_transfers();
    return moved;
  } catch (const std::exception& error) {
    fail_of(error);
    return true;
  }
}

bool GroupState::advance_current() {
  if (!current_->begun && !try_begin(*current_)) return false;
  if (current_->packing != nullptr && current_->packing->load_some()) return true;
  const bool moved = operation_.advance();
  if (operation_.mismatched_peer() >= 0) {
    channel_->refresh_boards(kAnswers);
    fail(Code::kBadConfig, mismatch_report(*this, *current_, operation_.mismatched_peer()));
    return true;
  }
  if (operation_.done()) {
    if (current_->packing != nullptr && current_->packing->store_some()) return true;
    finish_current();
    return true;
  }
  return moved;
}

uint64_t GroupState::finished_by(Rank peer, uint64_t at_least) {
  uint64_t& known = finished_[static_cast<size_t>(peer)];
  if (known < at_least) known = std::max(known, operation_.heard_finished(peer));
  if (known < at_least) known = channel_->board(peer).finished.load(std::memory_order_seq_cst);
  return known;
}

// Peers must have finished what used the same header slots and the same stage copy before.
bool GroupState::try_begin(Task& task) {
  const CompiledSchedule& program = *task.call.program;
  const uint64_t sequence = task.call.sequence;
  const bool stages = program.stage_bytes() > 0;
  const int copy = static_cast<int>(stage_uses_ & 1);
  uint64_t before = 0;
  if (program.signals() && sequence > transport::Channel::kHeaders) before = sequence - transport::Channel::kHeaders;
  if (stages) before = std::max(before, last_stage_use_[copy]);
  if (before > 0) {
    for (Rank peer = 0; peer < size(); ++peer) {
      if (peer == rank() || !channel_->maps(peer) || finished_by(peer, before) >= before) continue;
      if (awaits_finish_) return false;
      awaits_finish_ = true;
      channel_->board(rank()).awaits_finish.store(1, std::memory_order_seq_cst);
      if (finished_by(peer, before) < before) return false;
    }
    if (awaits_finish_) channel_->board(rank()).awaits_finish.store(0, std::memory_order_relaxed);
    awaits_finish_ = false;
  }
  if (stages) {
    ++stage_uses_;
    last_stage_use_[copy] = sequence;
  }
  transport::RankBoard& board = channel_->board(rank());
  board.records[sequence % transport::kRecords].write(task.record);
  board.started.store(sequence, std::memory_order_release);
  task.call.stage_copy = copy;
  task.call.header.finished = sequence - 1;
  task.begun = true;
  operation_.begin(task.call);
  if (settings_.show_status && sequence % kStatusStride == 1) show_status(SteadyTime{});
  return true;
}

void GroupState::finish_current() {
  Task& task = *current_;
  current_ = task.next;
  if (current_ == nullptr) last_ = nullptr;
  warned_ = false;
  task.regions.reset();
  channel_->board(rank()).finished.store(task.call.sequence, std::memory_order_seq_cst);
  for (Rank peer = 0; peer < size(); ++peer) {
    if (peer != rank() && channel_->board(peer).awaits_finish.load(std::memory_order_seq_cst) != 0)
      channel_->ring(peer);
  }
  engine_->count_sent(task.call.program->sent_bytes());
  engine_->completed(task);
}

// Each receive from any source takes the first rank that has something for it.
bool GroupState::seek_sources() {
  bool found = false;
  for (Task* task : transfers_) {
    for (Rank peer = 0; peer < size() && task->seeks; ++peer) {
      if (!channel_->seek(peer, task->message.envelope.tag)) continue;
      task->seeks = false;
      task->message.peer = peer;
      channel_->post_receive(task->message);
      found = true;
    }
  }
  return found;
}

bool GroupState::sweep_transfers() {
  bool moved = false;
  for (size_t i = 0; i < transfers_.size();) {
    Task& task = *transfers_[i];
    if (task.message.mismatch) {
      fail(Code::kBadConfig, transfer_mismatch_report(*this, task));
      return true;
    }
    if (!task.message.done) {
      ++i;
      continue;
    }
    transfers_.erase(transfers_.begin() + static_cast<std::ptrdiff_t>(i));
    if (task.kind == TaskKind::kSend) engine_->count_sent(task.message.envelope.bytes);
    engine_->completed(task);
    moved = true;
  }
  return moved;
}

void GroupState::fail(Code code, const std::string& text) {
  channel_->failure().post(rank(), code, text);
  channel_->ring_all();
  // Another rank may be writing its reason, and may have died over it.
  for (int i = 0; i < 1000 && !channel_->failure().ready(); ++i) std::this_thread::sleep_for(10us);
  if (channel_->failure().ready()) return adopt_failure();
  failure_.emplace(code, text);
  fail_everything();
}

void GroupState::fail_of(const std::exception& error) {
  if (const auto* own = dynamic_cast<const Error*>(&error)) return fail(own->code(), own->message());
  fail(dynamic_cast<const std::bad_alloc*>(&error) != nullptr ? Code::kStorage : Code::kBug,
       "rank " + std::to_string(rank()) + ": " + error.what());
}

std::byte* GroupState::resolve(Rank peer, uint64_t region, int64_t offset) {
  std::byte* found = current_->regions == nullptr ? nullptr : current_->regions->resolve(peer, region, offset);
  if (found != nullptr) return found;
  current_->regions = regions_.look_again();
  found = current_->regions->resolve(peer, region, offset);
  if (found != nullptr) return found;
  throw Error(Code::kBadConfig, "the buffer of rank " + std::to_string(peer) + " in " + describe(current_->record) +
                                    " lies in symmetric memory that rank " + std::to_string(rank()) +
                                    " does not hold\n  fix: every rank keeps its handle until all have finished");
}

void GroupState::adopt_failure() {
  const transport::FailureBoard& board = channel_->failure();
  std::string text = board.text;
  if (board.rank != rank()) text += "\n  found by rank " + std::to_string(board.rank);
  failure_.emplace(board.code, text);
  fail_everything();
}

void GroupState::fail_everything() {
  channel_->drop_messages();
  std::vector<Task*> tasks = std::move(transfers_);
  transfers_.clear();
  for (Task* task = current_; task != nullptr; task = task->next) tasks.push_back(task);
  current_ = last_ = nullptr;
  for (Task* task : tasks) {
    task->error = failure_;
    engine_->completed(*task);
  }
}

std::vector<Rank> GroupState::awaited() const {
  if (current_ == nullptr) return {};
  return current_->begun ? operation_.awaited() : std::vector<Rank>{};
}

SteadyTime GroupState::look_around() {
  const auto now = steady_clock::now();
  auto wake_at = now + kGlance;
  const SteadyTime since = current_ != nullptr  ? current_->issued
                           : transfers_.empty() ? SteadyTime{}
                                                : transfers_.front()->issued;
  if (since != SteadyTime{} && now - since >= kGlance && now - glanced_ >= kGlance) {
    glanced_ = now;
    channel_->refresh_boards(0ms);
  }
  try {
    if (!failure_) check_writer();  // first: others leave because of it
    if (!failure_ && current_ != nullptr) {
      if (current_->begun) show_place();
      if (current_->begun && now - status_shown_ > kStatusEvery) show_status(now);
      check_peers(*current_, now);
      for (Task* task = current_; task != nullptr && !failure_; task = task->next) {
        if (task->issued == SteadyTime{}) task->issued = now;
        if (now >= task->issued + task->patience) {
          channel_->refresh_boards(kAnswers);
          fail(Code::kTimeout, timeout_report(*this, *task, awaited()));
          return wake_at;  // every task has ended, and those that nobody holds are gone
        }
        wake_at = std::min(wake_at, task->issued + task->patience);
      }
    }
    if (!failure_) check_transfers(now, wake_at);
  } catch (const std::exception& error) {
    fail_of(error);
  }
  return wake_at;
}

// A rank that died while it wrote why the group failed: nobody will ever read its reason, but all have to fail.
void GroupState::check_writer() {
  const Rank writer = channel_->failure().writer();
  if (writer < 0 || !engine_->transport().gone(settings_.members[static_cast<size_t>(writer)])) return;
  if (channel_->failure().ready()) return;  // it was the last thing that it did
  failure_.emplace(Code::kPeerLost, "rank " + std::to_string(writer) + " is lost, while it told its group \"" +
                                        settings_.name + "\" why it fails: " +
                                        engine_->transport().describe(settings_.members[static_cast<size_t>(writer)]));
  fail_everything();
}

void GroupState::show_status(SteadyTime now) {
  if (!settings_.show_status) return;
  status_shown_ = now;
  settings_.show_status(current_->call.sequence, describe(current_->record) + " in group \"" + settings_.name + "\"");
}

void GroupState::show_place() {
  transport::RankBoard& board = channel_->board(rank());
  const std::vector<Rank> ranks = awaited();
  board.total_steps.store(operation_.num_steps(), std::memory_order_relaxed);
  board.step.store(operation_.steps_done(), std::memory_order_relaxed);
  board.awaits.store(ranks.empty() ? -1 : ranks.front(), std::memory_order_relaxed);
  board.waits_in.store(current_->call.sequence, std::memory_order_release);
}

void GroupState::check_peers(Task& task, SteadyTime now) {
  const uint64_t sequence = task.call.sequence;
  for (Rank peer = 0; peer < size() && !failure_; ++peer) {
    if (peer == rank()) continue;
    transport::RankBoard& board = channel_->board(peer);
    if (board.finished.load(std::memory_order_acquire) >= sequence) continue;
    const bool left = board.left.load(std::memory_order_acquire) != 0;
    if (left || engine_->transport().gone(settings_.members[static_cast<size_t>(peer)])) {
      // What it sent before it went may complete the operation: it has finished only after sending everything.
      if (board.finished.load(std::memory_order_acquire) >= sequence) continue;
      return fail(Code::kPeerLost, lost_report(*this, task, peer));
    }
    if (!task.begun || board.started.load(std::memory_order_acquire) < sequence) continue;
    if (first_difference(*this, peer, sequence) != 0) {
      return fail(Code::kBadConfig, mismatch_report(*this, task, peer));
    }
  }
  if (!warned_ && !failure_ && task.issued != SteadyTime{} && now - task.issued > kWarnAfter) {
    warned_ = true;
    log::warning("still waiting: " + timeout_report(*this, task, awaited()));
  }
}

bool GroupState::has_gone(Rank peer) {
  return engine_->transport().gone(settings_.members[static_cast<size_t>(peer)]) ||
         channel_->board(peer).left.load(std::memory_order_acquire) != 0;
}

// Who makes a receive from any source hopeless: a rank that is lost, since it may have been the sender; or the last of
// all peers to have left in good order. This rank itself where there is none.
Rank GroupState::missing_source() {
  Rank last = rank();
  bool all_gone = true;
  for (Rank peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    if (!has_gone(peer))
      all_gone = false;
    else if (channel_->board(peer).left.load(std::memory_order_acquire) == 0)
      return peer;
    else
      last = peer;
  }
  return all_gone ? last : rank();
}

void GroupState::check_transfers(SteadyTime now, SteadyTime& wake_at) {
  const auto transfers = transfers_;
  for (Task* task : transfers) {
    if (failure_) return;
    if (task->issued == SteadyTime{}) task->issued = now;
    const Rank peer = task->seeks ? missing_source() : task->message.peer;
    if (now >= task->issued + task->patience) {
      const auto awaited = task->seeks ? std::vector<Rank>{} : std::vector<Rank>{peer};
      channel_->refresh_boards(kAnswers);
      return fail(Code::kTimeout, timeout_report(*this, *task, awaited));
    }
    wake_at = std::min(wake_at, task->issued + task->patience);
    if (peer == rank() || !has_gone(peer)) continue;
    // What the peer sent before it went is taken first: the ring is looked at once more after it was seen gone.
    if (task->peer_seen_gone) return fail(Code::kPeerLost, lost_report(*this, *task, peer));
    task->peer_seen_gone = true;
    wake_at = now;
  }
}

}  // namespace herd::comm
