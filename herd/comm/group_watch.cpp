// Defines how a group notices that its operations can't end, and ends them then: deadlines pass, ranks are lost or run
// another program, or peers report a failure of any group of the domain.
#include <algorithm>
#include <chrono>
#include <exception>
#include <new>
#include <thread>
#include <utility>

#include "herd/base/log.h"
#include "herd/comm/failure_report.h"
#include "herd/comm/group_state.h"

namespace herd::comm {
namespace {

using std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr auto kCheckEvery = 50ms;    // time between two checks of the peers
constexpr auto kBoardTimeout = 70ms;  // time that peers on other hosts have to send their boards, before a report
constexpr auto kWarnAfter = 5s;       // an operation that waits longer says so in the log, once
constexpr auto kStatusEvery = 200ms;  // time between two statuses of an operation that waits

}  // namespace

SteadyTime GroupState::check_health() {
  const auto now = steady_clock::now();
  auto wake_at = now + kCheckEvery;
  const SteadyTime since = current_ != nullptr  ? current_->issued
                           : transfers_.empty() ? SteadyTime{}
                                                : transfers_.first()->issued;
  if (since != SteadyTime{} && now - since >= kCheckEvery && now - checked_at_ >= kCheckEvery) {
    checked_at_ = now;
    channel_->refresh_boards(0ms);
  }
  try {
    settings_.domain->check_peers();  // first, since a failure of the domain makes other ranks leave
    if (!failure_ && current_ != nullptr) {
      if (current_->begun) publish_position();
      if (current_->begun && now - status_shown_ > kStatusEvery) show_status(now);
      check_peers(*current_, now);
      for (PendingOp* pending = current_; pending != nullptr && !failure_; pending = pending->next) {
        if (pending->issued == SteadyTime{}) pending->issued = now;
        if (now >= pending->issued + pending->timeout) {
          refresh_positions();
          const bool loads = pending == current_ && pending->device != nullptr && !pending->device->load();
          fail(Code::kTimeout,
               loads ? device_timeout_report(*this, *pending) : timeout_report(*this, *pending, awaited()));
          return wake_at;  // fail() has ended every operation, and freed those that nobody holds
        }
        wake_at = std::min(wake_at, pending->issued + pending->timeout);
      }
    }
    if (!failure_) check_transfers(now, wake_at);
    check_devices(now, wake_at);
  } catch (const std::exception& error) {
    fail_with(error);
  }
  return wake_at;
}

std::optional<Failure> GroupState::peer_failure() {
  const transport::FailureBoard& board = channel_->failure_board();
  const auto posted = [&] { return Failure{board.rank, board.code, board.text}; };
  if (board.ready()) return posted();
  // If a rank died while it wrote why the group failed, nobody can read its reason, but all have to fail.
  const Rank writer = board.writer();
  if (writer < 0 || !engine_->transport().is_gone(job_rank(writer))) return std::nullopt;
  if (board.ready()) return posted();  // the rank had finished writing before it died
  return Failure{job_rank(rank()), Code::kPeerLost,
                 "rank " + std::to_string(job_rank(writer)) + " is lost, while it told its group \"" + settings_.name +
                     "\" why it fails: " + engine_->transport().describe(job_rank(writer))};
}

void GroupState::check_peers(PendingOp& pending, SteadyTime now) {
  const uint64_t sequence = pending.call.sequence;
  for (Rank peer = 0; peer < size() && !failure_; ++peer) {
    if (peer == rank()) continue;
    transport::RankBoard& board = channel_->board(peer);
    // Also a peer that has finished more, or less, may have called something else than this rank: a broadcast waits for
    // nobody at its root, and so meets no all_gather.
    const uint64_t begun_by_both = std::min(sequence, board.started.load(std::memory_order_acquire));
    if (begun_by_both > 0 && first_difference(*this, peer, begun_by_both) != 0) {
      return fail(Code::kBadConfig, mismatch_report(*this, pending, peer));
    }
    if (board.finished.load(std::memory_order_acquire) >= sequence) continue;
    const bool left = board.left.load(std::memory_order_acquire) != 0;
    if (left || engine_->transport().is_gone(job_rank(peer))) {
      // A peer finishes only after it has sent everything, so the operation can complete if the peer finished it.
      if (board.finished.load(std::memory_order_acquire) >= sequence) continue;
      return fail(Code::kPeerLost, lost_report(*this, pending, peer));
    }
  }
  if (!warned_ && !failure_ && pending.issued != SteadyTime{} && now - pending.issued > kWarnAfter) {
    warned_ = true;
    log_warning("still waiting: " + timeout_report(*this, pending, awaited()));
  }
}

bool GroupState::is_gone_or_left(Rank peer) {
  return engine_->transport().is_gone(job_rank(peer)) ||
         channel_->board(peer).left.load(std::memory_order_acquire) != 0;
}

// Returns the rank whose end keeps a receive from any source from ending: a rank that is lost, since it may have been
// the sender, or the last of all peers where all have left in good order. Returns this rank where there is none.
Rank GroupState::missing_source() {
  Rank last = rank();
  bool all_gone = true;
  for (Rank peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    if (!is_gone_or_left(peer))
      all_gone = false;
    else if (channel_->board(peer).left.load(std::memory_order_acquire) == 0)
      return peer;
    else
      last = peer;
  }
  return all_gone ? last : rank();
}

void GroupState::check_transfers(SteadyTime now, SteadyTime& wake_at) {
  uint64_t waits_in = 0;
  for (PendingOp* pending : transfers_.all()) {
    if (failure_) return;
    if (pending->issued == SteadyTime{}) pending->issued = now;
    const Rank peer = pending->source_unknown ? missing_source() : pending->message.peer;
    if (waits_in == 0 && now - pending->issued >= kCheckEvery) {
      const bool is_send = pending->kind == PendingOpKind::kSend;
      waits_in = transport::TransferNote{is_send, pending->source_unknown ? -1 : peer}.word();
      show_transfer(waits_in);
    }
    if (now >= pending->issued + pending->timeout) {
      const auto awaited = pending->source_unknown ? std::vector<Rank>{} : std::vector<Rank>{peer};
      refresh_positions();
      return fail(Code::kTimeout, timeout_report(*this, *pending, awaited));
    }
    wake_at = std::min(wake_at, pending->issued + pending->timeout);
    if (peer == rank() || !is_gone_or_left(peer)) continue;
    // Messages that the peer sent before it went are taken first, so there are checks until none has come between two.
    if (pending->completed_when_gone == completed_transfers_)
      return fail(Code::kPeerLost, lost_report(*this, *pending, peer));
    pending->completed_when_gone = completed_transfers_;
    wake_at = now;
  }
  show_transfer(waits_in);
}

// Lets deadlines pass of operations that wait for their device alone. What has come to this rank before the group
// failed still goes to the device.
void GroupState::check_devices(SteadyTime now, SteadyTime& wake_at) {
  std::vector<PendingOp*> waiting(loading_.begin(), loading_.end());
  waiting.insert(waiting.end(), storing_.begin(), storing_.end());
  for (PendingOp* pending : waiting) {
    if (!failure_ && pending->device != nullptr && pending->device->needs_peers()) {
      for (Rank peer = 0; peer < size(); ++peer) {
        if (peer == rank() || !engine_->transport().is_gone(job_rank(peer)) ||
            channel_->board(peer).left.load(std::memory_order_acquire) != 0)
          continue;
        return fail(Code::kPeerLost, lost_report(*this, *pending, peer));
      }
    }
    if (pending->issued == SteadyTime{}) pending->issued = now;
    wake_at = std::min(wake_at, pending->issued + pending->timeout);
    if (now < pending->issued + pending->timeout) continue;
    if (!failure_) fail(Code::kTimeout, device_timeout_report(*this, *pending));
    return end_storing();
  }
}

// What peers' devices owe will not come any more.
void GroupState::end_storing_with_peers() {
  std::vector<PendingOp*> ended;
  std::erase_if(storing_, [&](PendingOp* pending) {
    if (pending->device == nullptr || !pending->device->needs_peers()) return false;
    ended.push_back(pending);
    return true;
  });
  for (PendingOp* pending : ended) {
    pending->error = failure_;
    engine_->completed(*pending);
  }
}

void GroupState::end_storing() {
  for (PendingOp* pending : std::exchange(storing_, {})) {
    pending->error = failure_;
    engine_->completed(*pending);
  }
}

void GroupState::show_transfer(uint64_t note) {
  if (note != transfer_shown_) channel_->board(rank()).transfer.store(note, std::memory_order_relaxed);
  transfer_shown_ = note;
}

void GroupState::refresh_positions() { channel_->refresh_boards(kBoardTimeout); }

std::vector<Rank> GroupState::awaited() const {
  if (current_ == nullptr) return {};
  return current_->begun ? executor_.awaited() : std::vector<Rank>{};
}

void GroupState::show_status(SteadyTime now) {
  if (!settings_.show_status) return;
  status_shown_ = now;
  settings_.show_status(current_->call.sequence, describe(current_->record) + " in group \"" + settings_.name + "\"");
}

void GroupState::publish_position() {
  transport::RankBoard& board = channel_->board(rank());
  const std::vector<Rank> ranks = awaited();
  board.total_steps.store(executor_.num_steps(), std::memory_order_relaxed);
  board.step.store(executor_.steps_done(), std::memory_order_relaxed);
  board.awaits.store(ranks.empty() ? -1 : ranks.front(), std::memory_order_relaxed);
  board.waits_in.store(current_->call.sequence, std::memory_order_release);
}

void GroupState::fail(Code code, const std::string& text) { settings_.domain->fail({job_rank(rank()), code, text}); }

Failure GroupState::publish_failure(const Failure& cause) {
  transport::FailureBoard& board = channel_->failure_board();
  board.post(rank(), cause.finder, cause.code, cause.text);
  channel_->wake_peers();
  // Another rank may be writing its reason. The wait ends after 1000 sleeps, since that rank may have died.
  for (int i = 0; i < 1000 && !board.ready(); ++i) std::this_thread::sleep_for(10us);
  return board.ready() ? Failure{board.rank, board.code, board.text} : cause;
}

void GroupState::fail_with(const std::exception& error) {
  if (const auto* known = dynamic_cast<const Error*>(&error)) return fail(known->code(), known->message());
  fail(dynamic_cast<const std::bad_alloc*>(&error) != nullptr ? Code::kStorage : Code::kBug,
       "rank " + std::to_string(job_rank(rank())) + ": " + error.what());
}

void GroupState::fail_pending(const Failure& cause) {
  std::string text = cause.text;
  if (cause.finder != job_rank(rank())) text += "\n  found by rank " + std::to_string(cause.finder);
  failure_.emplace(cause.code, text);
  if (device_collectives_ != nullptr) device_collectives_->leave_open();
  end_storing_with_peers();
  end_pending();
}

void GroupState::end_pending() {
  channel_->drop_messages();
  count_moved();
  std::vector<PendingOp*> pending_ops = transfers_.take_all();
  pending_ops.insert(pending_ops.end(), loading_.begin(), loading_.end());
  loading_.clear();
  for (PendingOp* pending = current_; pending != nullptr; pending = pending->next) pending_ops.push_back(pending);
  current_ = last_ = nullptr;
  for (PendingOp* pending : pending_ops) {
    pending->error = failure_;
    engine_->completed(*pending);
  }
}

// Compares operations that no collective has compared, since none after them made the ranks wait for each other. Of two
// ranks that differ, the one that closes later finds the difference. It has nobody to throw to, so it logs the report;
// peers that still use the group throw it.
void GroupState::compare_at_close() {
  if (failure_ || issued_ == 0) return;
  try {
    for (Rank peer = 0; peer < size(); ++peer) {
      const uint64_t first = peer == rank() ? 0 : first_difference(*this, peer, issued_);
      if (first == 0) continue;
      const std::string text = closing_report(*this, peer, first);
      log_error(text);
      channel_->failure_board().post(rank(), job_rank(rank()), Code::kBadConfig, text);
      return channel_->wake_peers();
    }
  } catch (const std::exception& error) {
    log_error(std::string("closing the group: ") + error.what());
  }
}

}  // namespace herd::comm
