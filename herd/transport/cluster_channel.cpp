#include "herd/transport/cluster_channel.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <utility>

#include "herd/base/check.h"
#include "herd/transport/cluster_transport.h"

namespace herd::transport {
namespace {

using std::chrono::steady_clock;

// Holds what a rank says of itself to other hosts: the fields of its board, in the same order.
struct Position {
  uint64_t started, finished, waits_in, step, total_steps;
  int64_t awaits;
  uint64_t transfer;
  char activity[184];                 // as the transport's activity_of() returns it
  OperationRecord records[kRecords];  // the records that are valid
};

// Holds what the failure board says, as it is sent to other hosts.
struct Failure {
  int32_t rank;
  uint32_t code;
  char text[sizeof FailureBoard::text];
};

std::vector<Rank> remote_ranks(const ClusterTransport& transport, const std::vector<Rank>& members) {
  std::vector<Rank> ranks;
  for (Rank member : members) ranks.push_back(transport.shares_host(member) ? -1 : member);
  return ranks;
}

template <typename T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

}  // namespace

ClusterChannel::ClusterChannel(ClusterTransport& transport, uint64_t id, const std::vector<Rank>& members,
                               std::unique_ptr<LocalChannel> local)
    : transport_(transport),
      id_(id),
      members_(members),
      local_(std::move(local)),
      lanes_(transport.wire(), remote_ranks(transport, members),
             [this](int member, FrameKind kind) { return stamp(member, kind); }),
      answered_(members.size(), true) {
  int next = 0;
  for (size_t member = 0; member < members_.size(); ++member) {
    if (members_[member] == transport.rank()) self_ = static_cast<Rank>(member);
    const bool on_this_host = transport.shares_host(members_[member]);
    local_index_.push_back(on_this_host ? next++ : -1);
    copies_.push_back(on_this_host ? nullptr : std::make_unique<RankBoard>());
    if (!on_this_host) remote_.push_back(static_cast<int>(member));
  }
  transport_.add(id_, *this);
}

ClusterChannel::~ClusterChannel() {
  std::lock_guard lock(transport_.mutex());
  send_failure();  // peers hear the failure before they hear that this rank has left
  for (int member : remote_) send_position(member, FrameKind::kLeft);
  transport_.remove(id_, board(self_).finished.load(std::memory_order_acquire));
}

int ClusterChannel::member_of(Rank transport_rank) const {
  const auto found = std::find(members_.begin(), members_.end(), transport_rank);
  return found == members_.end() ? -1 : static_cast<int>(found - members_.begin());
}

FrameHeader ClusterChannel::stamp(int member, FrameKind kind) const {
  return transport_.stamp(members_[static_cast<size_t>(member)], id_, kind);
}

void ClusterChannel::post_send(Message& message) {
  if (const int local = local_index(message.peer); local >= 0) return local_->post_send(message, local);
  std::lock_guard lock(transport_.mutex());
  lanes_.post_send(message);
}

void ClusterChannel::post_receive(Message& message) {
  if (const int local = local_index(message.peer); local >= 0) return local_->post_receive(message, local);
  std::lock_guard lock(transport_.mutex());
  lanes_.post_receive(message);
}

bool ClusterChannel::has_unclaimed_message(Rank peer, uint64_t tag) {
  if (const int local = local_index(peer); local >= 0) return local_->has_unclaimed_message(local, tag);
  std::lock_guard lock(transport_.mutex());
  return lanes_.has_unclaimed_message(peer, tag);
}

bool ClusterChannel::progress() {
  const bool moved = local_->progress();
  std::lock_guard lock(transport_.mutex());
  return (transport_.wire().progress() | lanes_.progress()) || moved;
}

void ClusterChannel::drop_messages() {
  local_->drop_messages();
  std::lock_guard lock(transport_.mutex());
  lanes_.drop_messages();
}

void ClusterChannel::publish_header(Rank peer, uint64_t sequence, const OperationHeader& header) {
  if (const int local = local_index(peer); local >= 0) local_->publish_header(local, sequence, header);
}

void ClusterChannel::signal(Rank peer, uint64_t sequence, uint32_t count) {
  HERD_CHECK(maps(peer), "a signal to a rank on another host");
  local_->signal(local_index(peer), sequence, count);
}

uint32_t ClusterChannel::signals(Rank peer, uint64_t sequence) const {
  HERD_CHECK(maps(peer), "a signal of a rank on another host");
  return local_->signals(local_index(peer), sequence);
}

const OperationHeader& ClusterChannel::header(Rank peer, uint64_t sequence) const {
  return local_->header(local_index(peer), sequence);
}

std::byte* ClusterChannel::stage(Rank peer, int copy) const {
  return maps(peer) ? local_->stage(local_index(peer), copy) : nullptr;
}

RankBoard& ClusterChannel::board(Rank peer) {
  const int local = local_index(peer);
  return local >= 0 ? local_->board(local) : *copies_[static_cast<size_t>(peer)];
}

void ClusterChannel::wake_peer(Rank peer) {
  if (const int local = local_index(peer); local >= 0) local_->wake_peer(local);
}

void ClusterChannel::wake_peers() {
  local_->wake_peers();
  std::lock_guard lock(transport_.mutex());
  send_failure();
}

void ClusterChannel::refresh_boards(std::chrono::milliseconds timeout) {
  std::lock_guard lock(transport_.mutex());
  for (int member : remote_) {
    if (!answered_[static_cast<size_t>(member)] || board(member).left.load() != 0) continue;
    answered_[static_cast<size_t>(member)] = false;
    transport_.mark_asked(members_[static_cast<size_t>(member)]);
    transport_.wire().send_copy(members_[static_cast<size_t>(member)], stamp(member, FrameKind::kAskBoard), {});
  }
  const auto until = steady_clock::now() + timeout;
  const auto silent = [this](int member) {
    return !answered_[static_cast<size_t>(member)] &&
           transport_.wire().lost(members_[static_cast<size_t>(member)]).empty();
  };
  while (transport_.wire().progress()) {
  }
  while (steady_clock::now() < until && std::any_of(remote_.begin(), remote_.end(), silent))
    transport_.progress_or_wait();
}

void ClusterChannel::on_frame(Rank from, const FrameHeader& header, std::span<const std::byte> payload) {
  const int member = member_of(from);
  if (member < 0 || maps(member)) return;
  switch (header.kind) {
    case FrameKind::kData:
    case FrameKind::kCredit:
      return lanes_.arrive(member, header, payload);
    case FrameKind::kAskBoard:
      return send_position(member, FrameKind::kBoard);
    case FrameKind::kBoard:
      return on_position(member, payload);
    case FrameKind::kLeft:
      on_position(member, payload);
      board(member).left.store(1, std::memory_order_release);
      return;
    case FrameKind::kFailure:
      return on_failure(payload);
    case FrameKind::kNote:
      return on_note(member, payload);
    case FrameKind::kHello:
    case FrameKind::kBye:
    case FrameKind::kAcknowledge:
      return;  // the transport hears these
  }
}

void ClusterChannel::send_position(int member, FrameKind kind) {
  const RankBoard& own_board = board(self_);
  Position position = {};
  position.started = own_board.started.load(std::memory_order_acquire);
  position.finished = own_board.finished.load(std::memory_order_acquire);
  position.waits_in = own_board.waits_in.load(std::memory_order_acquire);
  position.step = own_board.step.load(std::memory_order_relaxed);
  position.total_steps = own_board.total_steps.load(std::memory_order_relaxed);
  position.awaits = own_board.awaits.load(std::memory_order_relaxed);
  position.transfer = own_board.transfer.load(std::memory_order_relaxed);
  const std::string activity = transport_.activity_of(members_[static_cast<size_t>(self_)]);
  std::memcpy(position.activity, activity.data(), std::min(activity.size(), sizeof position.activity - 1));
  const uint64_t records = std::min(position.started, kRecords);
  for (uint64_t i = 0; i < records; ++i) {
    const uint64_t sequence = position.started - i;
    position.records[i] = own_board.records[sequence % kRecords].read(sequence).value_or(OperationRecord{});
  }
  transport_.wire().send_copy(
      members_[static_cast<size_t>(member)], stamp(member, kind),
      bytes_of(position).first(offsetof(Position, records) + records * sizeof(OperationRecord)));
}

void ClusterChannel::on_position(int member, std::span<const std::byte> payload) {
  if (payload.size() < offsetof(Position, records) || payload.size() > sizeof(Position)) return;
  Position position = {};
  std::memcpy(&position, payload.data(), payload.size());
  position.activity[sizeof position.activity - 1] = 0;
  transport_.on_activity(members_[static_cast<size_t>(member)], position.activity);
  RankBoard& copy = board(member);
  for (const OperationRecord& record : position.records) {
    if (record.sequence != 0) copy.records[record.sequence % kRecords].write(record);
  }
  copy.finished.store(position.finished, std::memory_order_release);
  copy.started.store(position.started, std::memory_order_release);
  copy.step.store(position.step, std::memory_order_relaxed);
  copy.total_steps.store(position.total_steps, std::memory_order_relaxed);
  copy.awaits.store(position.awaits, std::memory_order_relaxed);
  copy.transfer.store(position.transfer, std::memory_order_relaxed);
  copy.waits_in.store(position.waits_in, std::memory_order_release);
  answered_[static_cast<size_t>(member)] = true;
}

void ClusterChannel::send_failure() {
  if (sent_failure_ || !failure_board().ready()) return;
  sent_failure_ = true;
  Failure failure = {failure_board().rank, static_cast<uint32_t>(failure_board().code), {}};
  std::memcpy(failure.text, failure_board().text, sizeof failure.text);
  for (int member : remote_) {
    transport_.wire().send_copy(members_[static_cast<size_t>(member)], stamp(member, FrameKind::kFailure),
                                bytes_of(failure));
  }
  for (int i = 0; i < 100; ++i) transport_.wire().progress();  // pushes out as much as the network takes now
}

void ClusterChannel::send_note() {
  const auto note = board(self_).note.newest();
  if (!note) return;
  std::lock_guard lock(transport_.mutex());
  for (int member : remote_) {
    transport_.wire().send_copy(members_[static_cast<size_t>(member)], stamp(member, FrameKind::kNote),
                                bytes_of(*note));
  }
  while (transport_.wire().progress()) {
  }
}

void ClusterChannel::on_note(int member, std::span<const std::byte> payload) {
  AgreementNote note;
  if (payload.size() != sizeof note) return;
  std::memcpy(&note, payload.data(), sizeof note);
  const auto known = board(member).note.newest();
  if (note.version > (known ? known->version : 0)) board(member).note.write(note);
}

void ClusterChannel::on_failure(std::span<const std::byte> payload) {
  Failure failure;
  if (payload.size() != sizeof failure) return;
  std::memcpy(&failure, payload.data(), sizeof failure);
  failure.text[sizeof failure.text - 1] = 0;
  if (failure.code > static_cast<uint32_t>(Code::kBug) || failure.rank < 0 || failure.rank >= transport_.size()) return;
  if (failure_board().post(self_, failure.rank, static_cast<Code>(failure.code), failure.text)) local_->wake_peers();
}

}  // namespace herd::transport
