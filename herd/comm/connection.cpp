#include "herd/comm/connection.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "herd/base/error.h"
#include "herd/comm/context.h"
#include "herd/comm/failure_domain.h"
#include "herd/comm/fingerprint.h"
#include "herd/comm/group_state.h"
#include "herd/comm/transfer.h"

namespace herd::comm {

struct Connection::State {
  std::shared_ptr<Context> context;
  std::unique_ptr<GroupState> group;
  Rank other = 0;  // the peer's rank in the group
};

bool Transfer::done() const { return pending_ == nullptr || pending_->done.load(std::memory_order_acquire); }

void Transfer::wait() { pending_->group->engine().wait(*pending_); }

TransferWait::TransferWait(const Communicator& world) : engine_(world.context()->engine) {}

size_t TransferWait::wait_any(std::span<const Transfer> transfers, SteadyTime deadline) {
  std::vector<PendingOp*> ops;
  ops.reserve(transfers.size());
  for (const Transfer& transfer : transfers) ops.push_back(transfer.pending_.get());
  const size_t found = engine_->wait_any(ops, deadline, interrupted_);
  interrupted_.store(false, std::memory_order_seq_cst);
  return found;
}

void TransferWait::interrupt() {
  interrupted_.store(true, std::memory_order_seq_cst);
  engine_->wake_waiters();
}

Connection::Connection(const Communicator& world, Rank peer, std::string_view name)
    : state_(std::make_unique<State>()) {
  const GroupSettings& outer = world.settings();
  if (peer < 0 || peer >= world.size() || peer == world.rank()) {
    throw Error(Code::kBadConfig, "a connection joins rank " + std::to_string(world.rank()) + " of " +
                                      std::to_string(world.size()) + " to another one, but the peer is rank " +
                                      std::to_string(peer));
  }
  const Rank self = outer.members[static_cast<size_t>(world.rank())];
  peer_ = outer.members[static_cast<size_t>(peer)];
  state_->context = world.context();
  GroupSettings settings;
  settings.name = name;
  settings.members = {std::min(self, peer_), std::max(self, peer_)};
  settings.id = mix(mix(outer.id, hash_text(name)),
                    static_cast<uint64_t>(settings.members[0]) << 32 | static_cast<uint64_t>(settings.members[1]));
  settings.deadline = kNoDeadline;
  settings.domain = std::make_shared<FailureDomain>();
  settings.schedules = state_->context->schedules(settings.members);
  state_->other = self < peer_ ? 1 : 0;
  state_->group = std::make_unique<GroupState>(state_->context->engine, state_->context->regions, std::move(settings));
}

Connection::Connection(Connection&&) noexcept = default;
Connection& Connection::operator=(Connection&&) noexcept = default;
Connection::~Connection() = default;

void Connection::send(const Buffer& x, int tag, std::chrono::milliseconds deadline) {
  send_now(*state_->group, x, state_->other, tag, {.deadline = deadline});
}

void Connection::receive(const Buffer& x, int tag, std::chrono::milliseconds deadline) {
  receive_now(*state_->group, x, state_->other, tag, {.deadline = deadline});
}

Transfer Connection::post_send(const Buffer& x, int tag) {
  Transfer transfer;
  transfer.pending_ = std::make_shared<PendingOp>();
  fill_transfer(*transfer.pending_, *state_->group, PendingOpKind::kSend, x, state_->other, tag, {});
  transfer.pending_->keep_alive = {x};
  state_->group->engine().post(transfer.pending_);
  return transfer;
}

Transfer Connection::post_receive(const Buffer& x, int tag) {
  Transfer transfer;
  transfer.pending_ = std::make_shared<PendingOp>();
  fill_transfer(*transfer.pending_, *state_->group, PendingOpKind::kReceive, x, state_->other, tag, {});
  transfer.pending_->keep_alive = {x};
  state_->group->engine().post(transfer.pending_);
  return transfer;
}

void Connection::abort(const std::string& reason) {
  GroupState& group = *state_->group;
  group.engine().locked([&] {
    group.fail(Code::kAborted, "rank " + std::to_string(group.job_rank(group.rank())) + " aborted: " + reason);
  });
}

}  // namespace herd::comm
