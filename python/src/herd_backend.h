// HerdBackend is the process group backend "herd" of PyTorch: c10d's operations over a herd::Communicator.
// The groups of a process share one world, its connections and its progress thread, but each fails by itself.
// An operation that is not asynchronous runs on the calling thread; others run on the progress thread.
// Tensors may lie on the CPU, or on a device that herd has a driver for: what the current stream has so far comes
// before the operation. A group's first collective on a device chooses how it moves bytes there
// (Communicator::use_device()), so it waits for the other ranks, also where it is asynchronous. Threads: any;
// operations of several threads run in the order in which they were issued.
#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "backend_work.h"
#include "herd/comm/communicator.h"

namespace herd::pytorch {

class HerdBackend final : public c10d::Backend {
 public:
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  struct Options : c10d::Backend::Options {
    explicit Options(std::chrono::milliseconds timeout_in = kBackendDefaultTimeout)
        : c10d::Backend::Options("herd", timeout_in) {}
  };

  // Collective over the group's ranks. `global_ranks` are the ranks of PyTorch's world, empty for the world itself.
  HerdBackend(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, std::string group_id,
              const std::vector<int64_t>& global_ranks, c10::intrusive_ptr<Options> options);
  ~HerdBackend() override;

  const std::string getBackendName() const override { return "herd"; }
  c10::intrusive_ptr<c10d::Backend::Options> getBackendOptions() override { return options_; }

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPtr allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override;
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override;
  WorkPtr allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                              const c10d::AllgatherOptions& options) override;
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& options) override;
  WorkPtr gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& options) override;
  WorkPtr scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& options) override;
  WorkPtr reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                         const c10d::ReduceScatterOptions& options) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& options) override;
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& options) override;
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                        std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& options) override;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override;
  WorkPtr send(Tensors& tensors, int to, int tag) override;
  WorkPtr recv(Tensors& tensors, int from, int tag) override;
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;
  WorkPtr barrier(const c10d::BarrierOptions& options) override;
  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) override;

  void setTimeout(std::chrono::milliseconds timeout) override;
  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override { return sequence_; }
  c10d::ErrorType getError() override { return c10d::ErrorType::SUCCESS; }
  void abort() override;
  std::shared_ptr<Communicator> open_communicator();  // null once closed
  // Returns how collectives on a device move their bytes, and why: "staged: no nccl: ...; copies pass the host".
  std::string device_engine();
  // Waits for what this rank still sends, then leaves the group. Later operations fail.
  void shutdown() override;

 private:
  struct Call;  // one operation as PyTorch issues it
  struct World;
  template <typename Start>
  WorkPtr begin(const Call& call, const Start& start);
  template <typename Start>
  WorkPtr issue(const Call& call, const Start& start);
  template <typename Start>
  WorkPtr issue_many(const Call& call, const Start& start);
  std::shared_ptr<Communicator> communicator();
  void choose_engine(Communicator& comm, const Call& call, c10::Device device);
  void close();
  OpOptions op_options(std::chrono::milliseconds timeout, std::string_view name = {}) const;
  WorkPtr receive(Tensors& tensors, Rank from, int tag);
  WorkPtr all_to_all(const Call& call, const Tensors& outputs, const Tensors& inputs,
                     std::chrono::milliseconds timeout);
  at::Tensor sum_sparse(Communicator& comm, const at::Tensor& tensor, std::chrono::milliseconds timeout);

  c10::intrusive_ptr<c10d::Store> store_;
  c10::intrusive_ptr<Options> options_;
  std::string who_;  // "rank 1 of group \"world\""
  std::atomic<uint64_t> sequence_{0};
  uint64_t monitored_barriers_ = 0;
  std::mutex mutex_;  // guards the next three
  std::shared_ptr<World> world_;
  std::shared_ptr<Communicator> communicator_;  // null once closed
  std::deque<std::weak_ptr<Operation>> pending_;
  // An operation of several of herd's holds it alone while it issues them, so that other threads' do not come between.
  std::shared_mutex issuing_;
  std::atomic<bool> has_engine_{false};
};

// Fails the operations of every group of this process, on all ranks.
void abort_all_groups(const std::string& reason);
// Closes every group of this process, for the interpreter's exit.
void close_all_groups();

}  // namespace herd::pytorch
