// Splits a backward pass (zero bubble): it computes the gradients of inputs first, and those of weights later. Until
// then a linear layer's input and output gradient are kept, and the gradients of small parameters as autograd returned
// them.
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
  // Returns what collects for the pass that runs on this thread; null where weights get their gradients at once.
  static DeferredGradients* current();

  // `work` owns its operands, and adds into a gradient that must be attached when it runs.
  void add(std::function<void()> work) { work_.push_back(std::move(work)); }
  // Sets the groups whose gradients are complete once all jobs have run.
  void set_groups(const std::vector<std::shared_ptr<ParameterGroup>>& groups) { groups_ = groups; }
  // Runs the jobs in the order of the pass, frees what they needed, and completes the groups' gradients.
  void run();

 private:
  std::vector<std::function<void()>> work_;
  std::vector<std::shared_ptr<ParameterGroup>> groups_;
};

// Ends a pass over a block of these groups: their gradients are complete now, or, with `later`, after later->run().
void finish_gradients(const std::vector<std::shared_ptr<ParameterGroup>>& groups, DeferredGradients* later);

// While it lives, passes on this thread leave gradients to `later`; it does nothing where that is null.
struct DeferScope {
  explicit DeferScope(DeferredGradients* later);
  ~DeferScope();
  DeferScope(const DeferScope&) = delete;
  DeferScope& operator=(const DeferScope&) = delete;
};

}  // namespace herd::nn
