#include "backend_work.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/jit_type.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>

#include "errors.h"
#include "future_executor.h"
#include "herd/bridge/device_stream.h"
#include "interrupt.h"

namespace herd::pytorch {

std::exception_ptr torch_error(const Error& error, const std::string& who) {
  std::string what;
  switch (error.code()) {
    case Code::kTimeout:
      what = "Timed out waiting";
      break;
    case Code::kPeerLost:
      what = "connection closed by a peer";
      break;
    case Code::kAborted:
      what = "aborted";
      break;
    default:
      what = "failed";
  }
  try {
    C10_THROW_ERROR(DistBackendError, "herd: " + who + ": " + what + " : " + error.message());
  } catch (...) {
    return std::current_exception();
  }
}

bool Operation::done() const {
  return std::all_of(works.begin(), works.end(), [](const Work& work) { return work.done(); });
}

void run_when_done(const std::shared_ptr<Operation>& operation, std::function<void()> job) {
  // herd calls the lambda under its lock, where the last reference to a tensor must not end: it moves all it holds to
  // the other thread.
  struct Shared {
    std::atomic<size_t> left;
    std::function<void()> job;
    std::shared_ptr<Operation> operation;
  };
  auto shared = std::make_shared<Shared>();
  shared->left = operation->works.size();
  shared->job = std::move(job);
  shared->operation = operation;
  if (operation->works.empty()) return run_later([shared] { shared->job(); });
  for (Work& work : operation->works) {
    work.on_done([shared]() mutable {
      if (--shared->left == 0) run_later([shared = std::move(shared)] { shared->job(); });
    });
  }
}

BackendWork::BackendWork(std::string who, int rank, c10d::OpType type, const char* title, uint64_t sequence,
                         Tensors outputs, const std::optional<Tensors>& inputs, std::optional<c10::Stream> stream)
    : c10d::Work(rank, type, title, inputs),
      who_(std::move(who)),
      sequence_(sequence),
      outputs_(std::move(outputs)),
      stream_(stream) {}

BackendWork::~BackendWork() {
  try {
    if (operation_ == nullptr || operation_->done()) return;
    run_when_done(operation_, [] {});  // its memory stays until herd no longer uses it
  } catch (const Error&) {             // a forked child, which has none of it in flight
  }
}

void BackendWork::begin(std::shared_ptr<Operation> operation) {
  operation_ = std::move(operation);
  if (operation_->done()) return complete();
  if (recordFunctionEndCallback_) call_later([this] { complete(); });  // the profiler's event ends with the operation
}

// The job holds this work, so that it lives until then.
void BackendWork::call_later(std::function<void()> job) {
  auto self = c10::intrusive_ptr<BackendWork>::unsafe_reclaim_from_nonowning(this);
  run_when_done(operation_, [self = std::move(self), job = std::move(job)] { job(); });
}

void BackendWork::complete() {
  const std::lock_guard lock(ending_);
  if (ended_) return;
  std::exception_ptr failure;
  try {
    for (herd::Work& work : operation_->works) {
      if (stream_)
        work.hold(handle_of(*stream_));
      else
        work.wait();
    }
    if (operation_->finish) run_finish();
  } catch (const Error& error) {
    failure = torch_error(error, who_);
  } catch (...) {
    failure = std::current_exception();
  }
  ended_ = true;
  finish(failure);
}

void BackendWork::run_finish() {
  const at::NoGradGuard no_grad;
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const c10::OptionalStreamGuard on(stream_);
  operation_->finish();
  if (!stream_) return;
  const c10::impl::VirtualGuardImpl guard(stream_->device_type());
  for (const at::Tensor& output : outputs_) {  // which may be of another stream's memory, and nobody may wait
    if (output.has_storage()) guard.recordDataPtrOnStream(output.storage().data_ptr(), *stream_);
  }
  finished_.emplace(stream_->device_type());
  finished_->record(*stream_);
}

void BackendWork::hold_current_stream() {
  if (!stream_) return;
  const c10::Stream current = c10::impl::VirtualGuardImpl(stream_->device_type()).getStream(stream_->device());
  if (current == *stream_) return;
  const std::lock_guard lock(ending_);
  for (herd::Work& work : operation_->works) work.hold(handle_of(current));
  if (finished_) finished_->block(current);
}

bool BackendWork::isCompleted() {
  if (!operation_->done()) return false;
  complete();
  return true;
}

bool BackendWork::isSuccess() const {
  const std::lock_guard lock(mutex_);
  return completed_ && !exception_;
}

std::exception_ptr BackendWork::exception() const {
  const std::lock_guard lock(mutex_);
  return exception_;
}

bool BackendWork::wait(std::chrono::milliseconds timeout) {
  const python::MainThreadWait waits;
  if (timeout != kNoTimeout && timeout.count() > 0) {
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    for (std::chrono::microseconds pause{20}; !operation_->done();
         pause = std::min(2 * pause, std::chrono::microseconds(1000))) {
      if (std::chrono::steady_clock::now() >= deadline) {
        const Error late(Code::kTimeout, "wait() of a work: the operation is still in flight after " +
                                             std::to_string(timeout.count()) + " ms; it goes on");
        std::rethrow_exception(torch_error(late, who_));
      }
      std::this_thread::sleep_for(pause);
    }
  }
  complete();
  if (auto failure = exception()) std::rethrow_exception(failure);
  hold_current_stream();
  return true;
}

int BackendWork::sourceRank() const {
  TORCH_CHECK(operation_->works.size() == 1 && operation_->done(), "sourceRank(): the receive is not done");
  return operation_->works.front().source();
}

c10::intrusive_ptr<c10::ivalue::Future> BackendWork::getFuture() {
  const std::lock_guard lock(future_mutex_);
  if (future_) return future_;
  const auto devices = stream_ ? std::vector<c10::Device>{stream_->device()} : std::vector<c10::Device>{};
  future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()), devices);
  const auto mark = [this, future = future_] {
    complete();
    if (auto failure = exception()) return future->setErrorIfNeeded(failure);
    // Callbacks come after what the current stream has so far: one from the pool has nothing but this operation.
    std::optional<c10::Stream> from_pool;
    if (stream_) {
      const c10::impl::VirtualGuardImpl guard(stream_->device_type());
      from_pool = guard.getStreamFromGlobalPool(stream_->device());
    }
    const c10::OptionalStreamGuard on(from_pool);
    hold_current_stream();
    future->markCompleted(c10::IValue(outputs_));
  };
  if (operation_->done())
    mark();
  else
    call_later(mark);
  return future_;
}

}  // namespace herd::pytorch
