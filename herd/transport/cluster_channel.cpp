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

// Holds what a rank says of itself: its board, in the order of the fields there.
struct Place {
  uint64_t started, finished, waits_in, step, total_steps;
  int64_t awaits;
  char activity[184];                 // as the transport's shown() returns it
  OperationRecord records[kRecords];  // the records that are valid
};

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
    const bool here = transport.shares_host(members_[member]);
    local_index_.push_back(here ? next++ : -1);
    copies_.push_back(here ? nullptr : std::make_unique<RankBoard>());
    if (!here) remote_.push_back(static_cast<int>(member));
  }
  transport_.add(id_, *this);
}

ClusterChannel::~ClusterChannel() {
  std::lock_guard lock(transport_.mutex());
  tell_failure();  // peers hear the failure before they hear that this rank has left
  for (int member : remote_) tell_place(member, FrameKind::kLeft);
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

bool ClusterChannel::seek(Rank peer, uint64_t tag) {
  if (const int local = local_index(peer); local >= 0) return local_->seek(local, tag);
  std::lock_guard lock(transport_.mutex());
  return lanes_.seek(peer, tag);
}

bool ClusterChannel::progress() {
  const bool moved = local_->progress();
  std::lock_guard lock(transport_.mutex());
  return (transport_.wire().progress() | lanes_.progress()) || moved;
}

void ClusterChannel::drop_messages() {
  local_->drop_messages();
  std::lock_guard lock(transport_.mutex());
  lanes_.drop();
}

void ClusterChannel::publish(Rank peer, uint64_t sequence, const OperationHeader& header) {
  if (const int local = local_index(peer); local >= 0) local_->publish(local, sequence, header);
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

void ClusterChannel::ring(Rank peer) {
  if (const int local = local_index(peer); local >= 0) local_->ring(local);
}

void ClusterChannel::ring_all() {
  local_->ring_all();
  std::lock_guard lock(transport_.mutex());
  tell_failure();
}

void ClusterChannel::refresh_boards(std::chrono::milliseconds timeout) {
  std::lock_guard lock(transport_.mutex());
  for (int member : remote_) {
    if (!answered_[static_cast<size_t>(member)] || board(member).left.load() != 0) continue;
    answered_[static_cast<size_t>(member)] = false;
    transport_.asked(members_[static_cast<size_t>(member)]);
    transport_.wire().send_copy(members_[static_cast<size_t>(member)], stamp(member, FrameKind::kAsk), {});
  }
  const auto until = steady_clock::now() + timeout;
  const auto silent = [this](int member) {
    return !answered_[static_cast<size_t>(member)] &&
           transport_.wire().lost(members_[static_cast<size_t>(member)]).empty();
  };
  while (transport_.wire().progress()) {
  }
  while (steady_clock::now() < until && std::any_of(remote_.begin(), remote_.end(), silent)) transport_.move_or_rest();
}

void ClusterChannel::arrive(Rank from, const FrameHeader& header, std::span<const std::byte> payload) {
  const int member = member_of(from);
  if (member < 0 || maps(member)) return;
  switch (header.kind) {
    case FrameKind::kData:
    case FrameKind::kCredit:
      return lanes_.arrive(member, header, payload);
    case FrameKind::kAsk:
      return tell_place(member, FrameKind::kPlace);
    case FrameKind::kPlace:
      return hear_place(member, payload);
    case FrameKind::kLeft:
      hear_place(member, payload);
      board(member).left.store(1, std::memory_order_release);
      return;
    case FrameKind::kFailure:
      return hear_failure(payload);
    case FrameKind::kNote:
      return hear_note(member, payload);
    case FrameKind::kHello:
    case FrameKind::kBye:
    case FrameKind::kHeard:
      return;  // the transport hears these
  }
}

void ClusterChannel::tell_place(int member, FrameKind kind) {
  const RankBoard& own = board(self_);
  Place place = {};
  place.started = own.started.load(std::memory_order_acquire);
  place.finished = own.finished.load(std::memory_order_acquire);
  place.waits_in = own.waits_in.load(std::memory_order_acquire);
  place.step = own.step.load(std::memory_order_relaxed);
  place.total_steps = own.total_steps.load(std::memory_order_relaxed);
  place.awaits = own.awaits.load(std::memory_order_relaxed);
  const std::string activity = transport_.shown(members_[static_cast<size_t>(self_)]);
  std::memcpy(place.activity, activity.data(), std::min(activity.size(), sizeof place.activity - 1));
  const uint64_t records = std::min(place.started, kRecords);
  for (uint64_t i = 0; i < records; ++i) {
    const uint64_t sequence = place.started - i;
    place.records[i] = own.records[sequence % kRecords].read(sequence).value_or(OperationRecord{});
  }
  transport_.wire().send_copy(members_[static_cast<size_t>(member)], stamp(member, kind),
                              bytes_of(place).first(offsetof(Place, records) + records * sizeof(OperationRecord)));
}

void ClusterChannel::hear_place(int member, std::span<const std::byte> payload) {
  if (payload.size() < offsetof(Place, records) || payload.size() > sizeof(Place)) return;
  Place place = {};
  std::memcpy(&place, payload.data(), payload.size());
  place.activity[sizeof place.activity - 1] = 0;
  transport_.hear_shown(members_[static_cast<size_t>(member)], place.activity);
  RankBoard& copy = board(member);
  for (const OperationRecord& record : place.records) {
    if (record.sequence != 0) copy.records[record.sequence % kRecords].write(record);
  }
  copy.finished.store(place.finished, std::memory_order_release);
  copy.started.store(place.started, std::memory_order_release);
  copy.step.store(place.step, std::memory_order_relaxed);
  copy.total_steps.store(place.total_steps, std::memory_order_relaxed);
  copy.awaits.store(place.awaits, std::memory_order_relaxed);
  copy.waits_in.store(place.waits_in, std::memory_order_release);
  answered_[static_cast<size_t>(member)] = true;
}

void ClusterChannel::tell_failure() {
  if (told_failure_ || !failure().ready()) return;
  told_failure_ = true;
  Failure said = {failure().rank, static_cast<uint32_t>(failure().code), {}};
  std::memcpy(said.text, failure().text, sizeof said.text);
  for (int member : remote_) {
    transport_.wire().send_copy(members_[static_cast<size_t>(member)], stamp(member, FrameKind::kFailure),
                                bytes_of(said));
  }
  for (int i = 0; i < 100; ++i) transport_.wire().progress();
}

void ClusterChannel::tell_note() {
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

void ClusterChannel::hear_note(int member, std::span<const std::byte> payload) {
  AgreementNote note;
  if (payload.size() != sizeof note) return;
  std::memcpy(&note, payload.data(), sizeof note);
  const auto before = board(member).note.newest();
  if (note.version > (before ? before->version : 0)) board(member).note.write(note);
}

void ClusterChannel::hear_failure(std::span<const std::byte> payload) {
  Failure said;
  if (payload.size() != sizeof said) return;
  std::memcpy(&said, payload.data(), sizeof said);
  said.text[sizeof said.text - 1] = 0;
  if (said.code > static_cast<uint32_t>(Code::kBug) || said.rank < 0 || said.rank >= transport_.size()) return;
  if (failure().post(self_, said.rank, static_cast<Code>(said.code), said.text)) local_->ring_all();
}

}  // namespace herd::transport
