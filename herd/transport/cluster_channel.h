// The channel of a group on several hosts uses shared memory to members on this host, and frames to the others.
// Signals, stage memory and operation headers exist among members of one host only. Boards of members elsewhere are
// copies, and a failure is posted on the board of every host.
// Threads: as any Channel, but for on_frame().
#pragma once

#include <memory>
#include <vector>

#include "herd/transport/channel.h"
#include "herd/transport/local_channel.h"
#include "herd/transport/remote_lanes.h"

namespace herd::transport {

class ClusterTransport;

class ClusterChannel final : public Channel {
 public:
  // `members` are ranks of the transport; `local` is the channel of those on this host, in the same order.
  ClusterChannel(ClusterTransport& transport, uint64_t id, const std::vector<Rank>& members,
                 std::unique_ptr<LocalChannel> local);
  ~ClusterChannel() override;

  Rank rank() const override { return self_; }
  int size() const override { return static_cast<int>(members_.size()); }
  void post_send(Message& message) override;
  void post_receive(Message& message) override;
  uint64_t bytes_sent() const override { return local_->bytes_sent() + lanes_.bytes_sent(); }
  bool has_unclaimed_message(Rank peer, uint64_t tag) override;
  bool progress() override;
  void drop_messages() override;
  bool maps(Rank peer) const override { return local_index(peer) >= 0; }
  void publish_header(Rank peer, uint64_t sequence, const OperationHeader& header) override;
  void signal(Rank peer, uint64_t sequence, uint32_t count) override;
  uint32_t signals(Rank peer, uint64_t sequence) const override;
  const OperationHeader& header(Rank peer, uint64_t sequence) const override;
  int64_t stage_bytes() const override { return local_->stage_bytes(); }
  std::byte* stage(Rank peer, int copy) const override;
  void commit_stage(int copy, int64_t bytes) override { local_->commit_stage(copy, bytes); }
  RankBoard& board(Rank peer) override;
  void refresh_boards(std::chrono::milliseconds timeout) override;
  FailureBoard& failure_board() override { return local_->failure_board(); }
  void send_note() override;
  void wake_peer(Rank peer) override;
  void wake_peers() override;

  // Handles a frame for this channel from a rank of the transport. REQUIRES the transport's mutex().
  void on_frame(Rank from, const FrameHeader& header, std::span<const std::byte> payload);

 private:
  int local_index(Rank peer) const { return local_index_[static_cast<size_t>(peer)]; }
  int member_of(Rank transport_rank) const;  // -1: none
  FrameHeader stamp(int member, FrameKind kind) const;
  void send_position(int member, FrameKind kind);
  void send_failure();
  void on_position(int member, std::span<const std::byte> payload);
  void on_note(int member, std::span<const std::byte> payload);
  void on_failure(std::span<const std::byte> payload);

  ClusterTransport& transport_;
  uint64_t id_;
  std::vector<Rank> members_;
  Rank self_ = 0;
  std::vector<int> local_index_;  // by member: its index in local_; -1 = it is on another host
  std::vector<int> remote_;       // members on other hosts
  std::unique_ptr<LocalChannel> local_;
  RemoteLanes lanes_;
  std::vector<std::unique_ptr<RankBoard>> copies_;  // by member: copy of the board of a member on another host
  std::vector<bool> answered_;                      // by member: it has answered the last kAskBoard
  bool sent_failure_ = false;
};

}  // namespace herd::transport
