#include "herd/nn/deferred_gradients.h"

#include <ATen/core/grad_mode.h>

#include "herd/nn/parameter_group.h"

namespace herd::nn {
namespace {

thread_local DeferredGradients* current_pass = nullptr;

}  // namespace

DeferredGradients* DeferredGradients::current() { return current_pass; }

void DeferredGradients::run() {
  at::NoGradGuard no_grad;
  for (std::function<void()>& work : work_) {
    work();
    work = nullptr;
  }
  finish_gradients(groups_, nullptr);
  work_.clear();
  groups_.clear();
}

void finish_gradients(const std::vector<std::shared_ptr<ParameterGroup>>& groups, DeferredGradients* later) {
  if (later != nullptr) return later->set_groups(groups);
  for (const auto& group : groups) group->finish_gradient();
}

DeferScope::DeferScope(DeferredGradients* later) { current_pass = later; }

DeferScope::~DeferScope() { current_pass = nullptr; }

}  // namespace herd::nn
