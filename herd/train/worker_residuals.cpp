#include "herd/train/worker_residuals.h"

#include <ATen/ops/empty_like.h>

#include <string>

#include "herd/base/error.h"
#include "herd/base/log.h"
#include "herd/bridge/tensor_buffer.h"
#include "herd/storage/residual_name.h"

namespace herd::train {
namespace {

constexpr int kResidualTag = 1;
constexpr const char* kName = "residuals";

}  // namespace

WorkerResiduals::WorkerResiduals(const Communicator& comm, int num_savers, const runtime::EncodedGradients& encoded,
                                 const runtime::FlatParameters& parameters, std::chrono::milliseconds deadline)
    : encoded_(encoded), parameters_(parameters), deadline_(deadline) {
  if (comm.rank() >= num_savers) {
    peers_.emplace_back(comm, comm.rank() % num_savers, kName);
    return;
  }
  for (Rank rank = num_savers + comm.rank(); rank < comm.size(); ++rank) {
    if (rank % num_savers == comm.rank()) peers_.emplace_back(comm, rank, kName);
  }
}

void WorkerResiduals::send() {
  for (const int group : encoded_.groups())
    peers_.front().send(to_buffer(encoded_.residual(group), BufferTag{}), kResidualTag, deadline_);
}

std::vector<NamedTensor> WorkerResiduals::receive() {
  std::vector<NamedTensor> all;
  for (comm::Connection& peer : peers_) {
    std::vector<NamedTensor> of_rank;
    try {
      for (const int group : encoded_.groups()) {
        of_rank.push_back(whole_tensor(residual_name(peer.peer(), parameters_.group(group).name()),
                                       at::empty_like(encoded_.residual(group))));
        peer.receive(to_buffer(of_rank.back().value, BufferTag{}), kResidualTag, deadline_);
      }
    } catch (const Error& error) {
      if (error.code() != Code::kPeerLost && error.code() != Code::kAborted) throw;
      log_warning("what encoding gradients has lost on rank " + std::to_string(peer.peer()) +
                  " is not saved: " + error.message());
      continue;
    }
    all.insert(all.end(), of_rank.begin(), of_rank.end());
  }
  return all;
}

}  // namespace herd::train
