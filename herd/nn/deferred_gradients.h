// Gradients of weights that are made after those of inputs: what a backward pass leaves over, to be done when there is
// time.
//   Linear layers leave their input and output gradient, small parameters the gradient that autograd gave.
// Source: Qi et al. 2023, arXiv:2401.10241, section 2.   Threads: one at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <vector>

namespace herd::nn {

class ParameterGroup;

class DeferredGradients {
 public:
  // Of the pass that runs on this thread; null where gradients are made at once.
  static DeferredGradients* current();

  // `work` holds what it needs, and adds to a gradient that is attached when it runs.
  void add(std::function<void()> work) { work_.push_back(std::move(work)); }
  // Groups whose gradients are complete once these have been made.
  void set_groups(const std::vector<std::shared_ptr<ParameterGroup>>& groups) { groups_ = groups; }
  // Makes them, in the order of the pass, lets go what they needed, and completes the groups' gradients.
  void make();

 private:
  std::vector<std::function<void()>> work_;
  std::vector<std::shared_ptr<ParameterGroup>> groups_;
};

// Ends a pass over a block of these groups: their gradients are complete now, or where `later` is not null once it has
// made them.
void finish_gradients(const std::vector<std::shared_ptr<ParameterGroup>>& groups, DeferredGradients* later);

// While it lives, passes on this thread leave gradients to `later`; nothing where that is null.
struct DeferScope {
  explicit DeferScope(DeferredGradients* later);
  ~DeferScope();
  DeferScope(const DeferScope&) = delete;
  DeferScope& operator=(const DeferScope&) = delete;
};

}  // namespace herd::nn
