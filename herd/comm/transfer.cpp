#include "herd/comm/transfer.h"

#include <memory>
#include <span>
#include <string_view>

#include "herd/comm/collective_call.h"
#include "herd/comm/host_copies.h"

namespace herd::comm {

void fill_transfer(PendingOp& pending, GroupState& group, PendingOpKind kind, const Buffer& x, Rank peer, int tag,
                   const OpOptions& options) {
  const std::string_view what = kind == PendingOpKind::kSend ? "send" : "receive";
  if (on_device(x)) {
    check_in_order(x, what);
    const std::span<const Buffer> buffer(&x, 1), none;
    const bool reads = kind == PendingOpKind::kSend;
    const auto copies = std::make_shared<HostCopies>(group.engine().shared_transport(), group.transfer_lanes(),
                                                     reads ? buffer : none, reads ? none : buffer, what);
    fill_transfer(pending, group, kind, copies->of(x), peer, tag, options);
    pending.device = copies;
    return;
  }
  check_buffer(x, what);
  check_in_order(x, what);
  if (kind == PendingOpKind::kSend || peer != kAnySource)
    check_rank(peer, group.size(), kind == PendingOpKind::kSend ? "send: rank" : "receive: rank");
  pending.kind = kind;
  pending.group = &group;
  pending.where = options.where;
  pending.name = options.name;
  pending.dtype = x.dtype;
  pending.timeout = group.deadline_of(options.deadline);
  pending.message.peer = peer;
  pending.message.traffic = transport::Traffic::kPointToPoint;
  pending.message.data = static_cast<std::byte*>(x.ptr);
  pending.message.granule = size_of(x.dtype);
  pending.message.envelope = {static_cast<uint64_t>(static_cast<int64_t>(tag)), static_cast<uint64_t>(x.bytes()),
                              static_cast<uint64_t>(x.dtype) + 1};
}

void send_now(GroupState& group, const Buffer& x, Rank to, int tag, const OpOptions& options) {
  PendingOp pending;
  fill_transfer(pending, group, PendingOpKind::kSend, x, to, tag, options);
  group.engine().run(pending);
}

void receive_now(GroupState& group, const Buffer& x, Rank from, int tag, const OpOptions& options) {
  PendingOp pending;
  fill_transfer(pending, group, PendingOpKind::kReceive, x, from, tag, options);
  group.engine().run(pending);
}

}  // namespace herd::comm
