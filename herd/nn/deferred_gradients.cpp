#include "herd/nn/deferred_gradients.h"

#include <ATen/core/grad_mode.h>

#include "herd/nn/parameter_group.h"

namespace herd::nn {
namespace {

thread_local DeferredGradients* current_pass = nullptr;

}  // namespace

DeferredGradients* DeferredGradients::current() { return current_pass; }

void DeferredGradients::make() {
  at::NoGradGuard no_grad;
  for (std::function<void()>& work : work_) {
    work();
    work = nullptr;
  }
  for (const auto& group : groups_) group->finish_gradient();
  work_.clear();
  groups_.clear();
}

DeferScope::DeferScope(DeferredGradients* later, const std::vector<std::shared_ptr<ParameterGroup>>& groups) {
  current_pass = later;
  if (later != nullptr) later->complete(groups);
}

DeferScope::~DeferScope() { current_pass = nullptr; }

}  // namespace herd::nn
