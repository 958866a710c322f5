// A program's own module and torch's optimizers: saved by some ranks, loaded by others, and trained on as if nothing
// had been.
#include "herd/checkpoint/module_checkpoint.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <functional>
#include <memory>

#include "herd/base/check.h"
#include "herd/base/error.h"
#include "herd/comm/inproc_world.h"
#include "tests/support/temporary_folder.h"

namespace herd {
namespace {

using testing::HasSubstr;

// Has a parameter that gets no gradient, a transposed one, one smaller than most worlds, and buffers.
struct Net : torch::nn::Module {
  Net() {
    fill(linear->weight, 1);
    fill(linear->bias, 2);
    turned.set_data(turned.t());
    fill(turned, 3);
  }
  static void fill(at::Tensor x, double seed) {
    at::NoGradGuard no_grad;
    x.copy_(at::sin(at::arange(x.numel(), at::kFloat) * 1.3 + seed).view(x.sizes()) / 2);
  }
  at::Tensor forward(const at::Tensor& x) { return norm(at::tanh(linear(x))).matmul(turned) * scale; }
  torch::nn::Linear linear = register_module("linear", torch::nn::Linear(5, 3));
  torch::nn::BatchNorm1d norm = register_module("norm", torch::nn::BatchNorm1d(3));
  at::Tensor turned = register_parameter("turned", at::zeros({2, 3}));
  at::Tensor scale = register_parameter("scale", at::ones({}));
  at::Tensor unused = register_parameter("unused", at::ones({4}));
};

using MakeOptimizer = std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<at::Tensor>)>;

void train(Net& net, torch::optim::Optimizer& optimizer, int from, int to) {
  for (int step = from; step < to; ++step) {
    optimizer.zero_grad();
    const at::Tensor x = at::cos(at::arange(20, at::kFloat) + step).view({4, 5});
    net.forward(x).square().sum().backward();
    optimizer.step();
  }
}

std::vector<at::Tensor> tensors_of(const Net& net) {
  std::vector<at::Tensor> all;
  for (const auto& list : {net.parameters(), net.buffers()})
    for (const at::Tensor& tensor : list) all.push_back(tensor.detach().clone());
  return all;
}

bool equal(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  for (size_t i = 0; i < a.size(); ++i)
    if (!at::equal(a[i], b[i])) return false;
  return a.size() == b.size();
}

TEST(ModuleCheckpoint, LetsTrainingGoOnWithTheSameBits_OnAnyNumberOfRanks) {
  using namespace torch::optim;
  const std::vector<MakeOptimizer> optimizers = {
      [](auto p) { return std::make_unique<SGD>(p, SGDOptions(0.01).momentum(0.9)); },
      [](auto p) { return std::make_unique<SGD>(p, SGDOptions(0.01)); },
      [](auto p) { return std::make_unique<Adam>(p, AdamOptions(0.01).amsgrad(true)); },
      [](auto p) { return std::make_unique<AdamW>(p, AdamWOptions(0.01)); },
      [](auto p) { return std::make_unique<Adagrad>(p, AdagradOptions(0.01)); },
      [](auto p) { return std::make_unique<RMSprop>(p, RMSpropOptions(0.01).momentum(0.5).centered(true)); },
  };
  int ranks = 1;
  for (const MakeOptimizer& make : optimizers) {
    Net whole;
    const auto whole_optimizer = make(whole.parameters());
    train(whole, *whole_optimizer, 0, 5);
    const TemporaryFolder folder;
    run_inproc(ranks, [&](Communicator& comm) {
      Net net;
      const auto optimizer = make(net.parameters());
      train(net, *optimizer, 0, 3);
      const auto saved =
          save_module(folder.path(), net, optimizer.get(), comm, {.step = 3, .notes = {{"why", "a test"}}});
      HERD_CHECK(std::filesystem::exists(saved / "manifest.json"), "the checkpoint is whole once save_module returns");
    });
    ranks = ranks % 4 + 1;
    run_inproc(ranks, [&](Communicator& comm) {
      Net net;
      const auto optimizer = make(net.parameters());
      if (comm.rank() == 0) train(net, *optimizer, 0, 1);  // what it has had so far counts for nothing
      const auto last = load_module(folder.path(), net, optimizer.get(), comm);
      HERD_CHECK(last && last->step == 3 && last->notes.at("why") == "a test", "the newest checkpoint");
      train(net, *optimizer, 3, 5);
      HERD_CHECK(equal(tensors_of(net), tensors_of(whole)), "other bits than without a pause");
    });
  }
}

TEST(ModuleCheckpoint, LoadsTheModuleAlone_AndFindsNothingInAnEmptyFolder) {
  const TemporaryFolder folder;
  run_inproc(2, [&](Communicator& comm) {
    Net net;
    torch::optim::AdamW optimizer(net.parameters());
    HERD_CHECK(!load_module(folder.path(), net, &optimizer, comm), "there is nothing yet");
    train(net, optimizer, 0, 2);
    save_module(folder.path(), net, &optimizer, comm, {.step = 2});
    Net other;
    HERD_CHECK(load_module(folder.path(), other, nullptr, comm)->step == 2, "without its optimizer");
    HERD_CHECK(equal(tensors_of(other), tensors_of(net)), "the module is whole");
  });
}

TEST(ModuleCheckpoint, ForgetsStatesThatTheCheckpointDoesNotHave) {
  const TemporaryFolder folder;
  run_inproc(2, [&](Communicator& comm) {
    Net net;
    torch::optim::AdamW optimizer(net.parameters());
    save_module(folder.path(), net, &optimizer, comm);  // before the first step
    train(net, optimizer, 0, 2);
    HERD_CHECK(!optimizer.state().empty(), "AdamW has states after a step");
    load_module(folder.path(), net, &optimizer, comm);
    HERD_CHECK(optimizer.state().empty(), "states of a training that was given up");
  });
}

TEST(ModuleCheckpoint, NamesWhatDoesNotFit_AndChangesNothing) {
  const TemporaryFolder folder;
  run_inproc(2, [&](Communicator& comm) {
    const auto refusal = [](const std::function<void()>& call) -> std::string {
      try {
        call();
      } catch (const Error& error) {
        HERD_CHECK(error.code() == Code::kBadConfig, error.message());
        return error.message();
      }
      return "";
    };
    const auto says = [&](const std::string& text, const std::string& part) {
      HERD_CHECK(text.find(part) != std::string::npos, text + " does not say " + part);
    };
    Net net;
    torch::optim::SGD optimizer(net.parameters(), 0.1);
    save_module(folder.path(), net, &optimizer, comm);

    struct Wider : Net {
      at::Tensor more = register_parameter("more", at::ones({2}));
    } wider;
    says(refusal([&] { load_module(folder.path(), wider, nullptr, comm); }), "more");
    HERD_CHECK(wider.more.sum().item<double>() == 2, "nothing was touched");
    torch::optim::LBFGS unknown(net.parameters());
    says(refusal([&] { save_module(folder.path(), net, &unknown, comm); }), "SGD, Adam, AdamW, Adagrad and RMSprop");
    Net another;
    torch::optim::SGD of_another(another.parameters(), 0.1);
    says(refusal([&] { save_module(folder.path(), net, &of_another, comm); }), "that the module does not have");
  });
}

}  // namespace
}  // namespace herd
