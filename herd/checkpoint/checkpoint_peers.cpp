#include "herd/checkpoint/checkpoint_peers.h"

namespace herd {
namespace {

// Lets the ranks of a communicator save a checkpoint together.
class GroupPeers final : public CheckpointPeers {
 public:
  GroupPeers(Communicator group, std::chrono::milliseconds timeout) : group_(std::move(group)), timeout_(timeout) {}
  Rank rank() const override { return group_.rank(); }
  int size() const override { return group_.size(); }

  std::string broadcast_from_root(const std::string& text) override {
    std::vector<int64_t> length = {static_cast<int64_t>(text.size())};
    group_.broadcast(length, 0, {.name = "checkpoint: length", .deadline = timeout_});
    std::vector<uint8_t> bytes(text.begin(), text.end());
    bytes.resize(static_cast<size_t>(length[0]));
    if (length[0] > 0) group_.broadcast(bytes, 0, {.name = "checkpoint: text", .deadline = timeout_});
    return {bytes.begin(), bytes.end()};
  }

  std::vector<std::string> gather_to_root(const std::string& text) override {
    std::vector<int64_t> length = {static_cast<int64_t>(text.size())}, lengths(static_cast<size_t>(size()));
    group_.all_gather(length, lengths, {.name = "checkpoint: lengths", .deadline = timeout_});
    std::vector<uint8_t> bytes(text.begin(), text.end());
    if (rank() != 0) {
      if (!bytes.empty()) group_.send(bytes, 0, 0, {.name = "checkpoint: part", .deadline = timeout_});
      return {};
    }
    std::vector<std::string> texts = {text};
    for (Rank peer = 1; peer < size(); ++peer) {
      bytes.resize(static_cast<size_t>(lengths[static_cast<size_t>(peer)]));
      if (!bytes.empty()) group_.receive(bytes, peer, 0, {.name = "checkpoint: part", .deadline = timeout_});
      texts.emplace_back(bytes.begin(), bytes.end());
    }
    return texts;
  }

  void abandon(const std::string& reason) override { group_.abort(reason); }

 private:
  Communicator group_;
  std::chrono::milliseconds timeout_;
};

}  // namespace

std::unique_ptr<CheckpointPeers> checkpoint_peers(Communicator& comm, std::chrono::milliseconds timeout) {
  if (comm.size() == 1) return std::make_unique<OnePeer>();
  return std::make_unique<GroupPeers>(comm.split(0, comm.rank(), "checkpoint"), timeout);
}

}  // namespace herd
