// Trains a chain of own blocks in threads, and the same modules in a plain loop of torch on one rank.
#pragma once

#include <gtest/gtest.h>
#include <torch/optim/adamw.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "herd/chain/own_block.h"
#include "herd/spec/frozen.h"
#include "herd/train/chain_source.h"
#include "train_in_threads.h"

namespace herd::train {

// Returns the run file with the table that one rank traces.
inline spec::RunFile completed(const ModelSource& source, const spec::RunFile& run) {
  spec::RunFile out;
  run_inproc(1, [&](Communicator& comm) { out = source.complete(run, comm); });
  return out;
}

inline Trained train_chain_in_threads(const Chain& chain, const ChainData& data, const spec::RunFile& run, int ranks,
                                      int steps) {
  const auto source = chain_source(chain, data);
  return train_in_threads(completed(*source, run), ranks, steps, {}, source);
}

// Trains the modules of a chain with torch's own optimizer and autograd, without anything of herd's runtime. A delayed
// update is w(t+1) = update(w(t), g(w(t-1))), with w(-1) = w(0).
class PlainLoop {
 public:
  PlainLoop(const Chain& chain, ReadBatch read, const spec::RunFile& run)
      : chain_(chain), read_(std::move(read)), run_(run) {
    std::map<std::string, std::shared_ptr<torch::nn::Module>> made;
    std::vector<at::Tensor> matrices, vectors;
    for (const Chain::Block& block : chain.blocks()) {
      if (block.module == block.name) {
        made[block.name] = make_module(block, static_cast<uint64_t>(run.train.seed));
        for (auto& item : made[block.name]->named_parameters()) {
          at::Tensor& parameter = item.value();
          if (spec::is_frozen(run.model.frozen, block.name + "." + item.key())) parameter.requires_grad_(false);
          if (!parameter.requires_grad()) continue;
          (parameter.dim() > 1 ? matrices : vectors).push_back(parameter);
          trained_.push_back(parameter);
        }
      }
      modules_.push_back(block.module.empty() ? nullptr : made.at(block.module));
    }
    std::vector<torch::optim::OptimizerParamGroup> groups;
    const auto add = [&](const std::vector<at::Tensor>& parameters, double decay) {
      auto options = std::make_unique<torch::optim::AdamWOptions>(run.optimizer.lr);
      options->betas({run.optimizer.betas[0], run.optimizer.betas[1]}).eps(run.optimizer.eps).weight_decay(decay);
      groups.emplace_back(parameters, std::move(options));
    };
    add(matrices, run.optimizer.weight_decay);
    add(vectors, 0);
    optimizer_ = std::make_unique<torch::optim::AdamW>(groups);
  }

  double step(int64_t step) {
    std::vector<int64_t> samples;
    for (int64_t i = 0; i < run_.train.batch; ++i) samples.push_back(step * run_.train.batch + i);
    const std::vector<at::Tensor> newest = copies();
    if (run_.strategy.delayed_update && step > 0) set(older_);
    const Tensors out = forward(read_(samples));
    const at::Tensor loss = out[0] / out[1].clamp_min(1);
    optimizer_->zero_grad();
    loss.backward();
    for (const at::Tensor& parameter : trained_)  // one that no loss depends on decays alone
      if (!parameter.grad().defined()) parameter.mutable_grad() = at::zeros_like(parameter);
    clip();
    set(newest);
    older_ = newest;
    optimizer_->step();
    if (out[1].item<double>() == 0) return std::numeric_limits<double>::quiet_NaN();  // 0 / 0; its gradient is 0
    EXPECT_TRUE(std::isfinite(loss.item<double>())) << "step " << step;
    return loss.item<double>();
  }

  torch::nn::Module& module(size_t block) const { return *modules_.at(block); }

 private:
  std::vector<at::Tensor> copies() const {
    std::vector<at::Tensor> out;
    for (const at::Tensor& parameter : trained_) out.push_back(parameter.detach().clone());
    return out;
  }
  void set(const std::vector<at::Tensor>& weights) {
    const torch::NoGradGuard no_record;
    for (size_t i = 0; i < trained_.size(); ++i) trained_[i].copy_(weights[i]);
  }

  Tensors forward(const Batch& batch) {
    std::map<spec::TensorId, at::Tensor> tensors;
    const std::vector<std::string> names = chain_.batch_names();
    for (const auto& [name, tensor] : batch.tensors) {
      const auto place = std::ranges::find(names, name);
      if (place != names.end()) tensors[{0, static_cast<int>(place - names.begin())}] = tensor;
    }
    Tensors out;
    for (int b = 0; b < static_cast<int>(chain_.blocks().size()); ++b) {
      Tensors x;
      for (const spec::TensorId input : chain_.inputs_of(b)) x.push_back(tensors.at(input));
      out = chain_.blocks()[static_cast<size_t>(b)].run(modules_[static_cast<size_t>(b)].get(), x);
      for (size_t i = 0; i < out.size(); ++i) tensors[{b + 1, static_cast<int>(i)}] = out[i];
    }
    return out;
  }

  void clip() {
    if (run_.optimizer.clip <= 0) return;
    double squares = 0;
    for (const at::Tensor& parameter : trained_)
      squares += parameter.grad().to(torch::kDouble).square().sum().item<double>();
    if (std::sqrt(squares) <= run_.optimizer.clip) return;
    for (const at::Tensor& parameter : trained_) parameter.grad().mul_(run_.optimizer.clip / std::sqrt(squares));
  }

  const Chain& chain_;
  ReadBatch read_;
  const spec::RunFile& run_;
  std::vector<std::shared_ptr<torch::nn::Module>> modules_;  // by block
  std::vector<at::Tensor> trained_;
  std::vector<at::Tensor> older_;  // weights before the newest update
  std::unique_ptr<torch::optim::AdamW> optimizer_;
};

inline std::vector<double> plain_losses(const Chain& chain, const ReadBatch& read, const spec::RunFile& run,
                                        int steps) {
  PlainLoop loop(chain, read, run);
  std::vector<double> losses;
  for (int64_t s = 0; s < steps; ++s) losses.push_back(loop.step(s));
  return losses;
}

// Returns the largest relative difference of two lists of losses. Both are NaN in the steps whose batch counts nothing,
// and in no other.
inline double most_apart(const std::vector<double>& a, const std::vector<double>& b,
                         const std::set<size_t>& steps_without_count = {}) {
  EXPECT_EQ(a.size(), b.size());
  double worst = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    if (steps_without_count.contains(i)) {
      EXPECT_TRUE(std::isnan(a[i]) && std::isnan(b[i])) << a[i] << " and " << b[i] << " in step " << i;
      continue;
    }
    if (a[i] == b[i]) continue;
    const double apart = std::abs(a[i] - b[i]) / std::abs(b[i]);
    EXPECT_TRUE(std::isfinite(apart)) << a[i] << " and " << b[i];
    worst = std::max(worst, apart);
  }
  return worst;
}

}  // namespace herd::train
