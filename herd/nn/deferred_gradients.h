// Makes the gradients of weights after those of inputs, where a backward pass leaves them over. Linear layers leave
// their input and output gradient, small parameters the gradient that autograd returned.
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
  // Returns the one of the pass that runs on this thread; null where gradients are made at once.
  static DeferredGradients* current();

  // Adds a job that holds what it needs, and adds to a gradient that is attached when it runs.
  void add(std::function<void()> work) { work_.push_back(std::move(work)); }
  // Sets the groups whose gradients are complete once all jobs have run.
  void set_groups(const std::vector<std::shared_ptr<ParameterGroup>>& groups) { groups_ = groups; }
  // Runs the jobs in the order of the pass, frees what they needed, and completes the groups' gradients.
  void make();

 private:
  std::vector<std::function<void()>> work_;
  std::vector<std::shared_ptr<ParameterGroup>> groups_;
};

// Ends a pass over a block of these groups: their gradients are complete now, or, with `later`, once it has made them.
void finish_gradients(const std::vector<std::shared_ptr<ParameterGroup>>& groups, DeferredGradients* later);

// While it lives, passes on this thread leave gradients to `later`; it does nothing where that is null.
struct DeferScope {
  explicit DeferScope(DeferredGradients* later);
  ~DeferScope();
  DeferScope(const DeferScope&) = delete;
  DeferScope& operator=(const DeferScope&) = delete;
};

}  // namespace herd::nn
