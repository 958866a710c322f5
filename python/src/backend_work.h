// BackendWork is PyTorch's handle of one operation, made of herd's operations. Whoever first sees the end of it copies
// the results to tensors that are not contiguous; then waiters return and futures complete.
// Tensors on a device: such copies are enqueued on the stream on which the operation was issued. What a thread enqueues
// on its current stream after wait(), or in a callback of the future, comes after the operation and its copies.
// Threads: any.
#pragma once

#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "herd/comm/communicator.h"
#include "tensor_parts.h"

namespace herd::pytorch {

// Holds what an operation in flight needs. herd's progress thread never destroys it.
struct Operation {
  std::vector<Work> works;
  Tensors held;                       // memory that herd reads or writes
  std::shared_ptr<void> other = {};   // any other such memory
  std::function<void()> finish = {};  // runs once all works are done, without an error
  bool is_receive = false;            // it may never end
  bool done() const;
};

class BackendWork final : public c10d::Work {
 public:
  // `stream`: on which it is issued, of the device of its tensors; none on the CPU
  BackendWork(std::string who, int rank, c10d::OpType type, const char* title, uint64_t sequence, Tensors outputs,
              const std::optional<Tensors>& inputs, std::optional<c10::Stream> stream);
  ~BackendWork() override;

  // Takes the operation, which may be done.
  void begin(std::shared_ptr<Operation> operation);

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void synchronize() override { wait(); }
  std::vector<at::Tensor> result() override { return outputs_; }
  int sourceRank() const override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  uint64_t getSequencenumber() const override { return sequence_; }

 private:
  void complete();  // waits for the operation and ends this work; REQUIRES begin()
  void run_finish();
  void hold_current_stream();  // REQUIRES complete()
  void call_later(std::function<void()> job);

  const std::string who_;
  const uint64_t sequence_;
  const Tensors outputs_;
  const std::optional<c10::Stream> stream_;
  std::shared_ptr<Operation> operation_;
  std::mutex ending_;
  bool ended_ = false;                  // guarded by ending_
  std::optional<c10::Event> finished_;  // on stream_, after Operation::finish; guarded by ending_
  std::mutex future_mutex_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

// Runs `job` on another thread once every work of the operation is done.
void run_when_done(const std::shared_ptr<Operation>& operation, std::function<void()> job);

}  // namespace herd::pytorch
