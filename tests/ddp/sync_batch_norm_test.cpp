// Batch norms of all ranks against torch's own on the whole batch: outputs, gradients, running statistics.
#include "herd/ddp/sync_batch_norm.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "herd/base/check.h"
#include "herd/base/error.h"
#include "herd/bridge/tensor_buffer.h"
#include "herd/comm/inproc_world.h"

namespace herd::ddp {
namespace {

using torch::nn::BatchNormOptions;

void set_affine(at::Tensor weight, at::Tensor bias) {
  at::NoGradGuard no_grad;
  weight.copy_(at::arange(weight.numel()) / 3.0 + 0.5);
  bias.copy_(at::arange(bias.numel()) / 7.0 - 0.2);
}

double distance(const at::Tensor& a, const at::Tensor& b) {
  return a.numel() == 0 ? 0 : (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
}

// Torch's batch norm for inputs of any number of dimensions.
struct Alone : torch::nn::BatchNormImplBase<1, Alone> {
  using torch::nn::BatchNormImplBase<1, Alone>::BatchNormImplBase;
  void _check_input_dim(const at::Tensor&) override {}
};

struct Case {
  std::vector<int64_t> samples;  // of each rank
  std::vector<int64_t> shape;    // of a sample: channels first
  at::ScalarType type = at::kDouble;
  double tolerance = 1e-12;
};

void agrees_with_torch(const Case& c, BatchNormOptions options = BatchNormOptions(3)) {
  int64_t total = 0;
  for (const int64_t n : c.samples) total += n;
  std::vector<int64_t> sizes = {total};
  sizes.insert(sizes.end(), c.shape.begin(), c.shape.end());
  at::Tensor all =
      (at::sin(at::arange(at::prod(at::tensor(sizes)).item<int64_t>(), at::kDouble) * 1.7).view(sizes) * 2 + 5)
          .to(c.type);
  const at::Tensor loss_weights = at::cos(at::arange(all.numel(), at::kDouble)).view(sizes).to(c.type);

  Alone alone(options);
  const at::ScalarType kept = c.type == at::kBFloat16 ? at::kFloat : c.type;
  alone.to(kept);
  set_affine(alone.weight, alone.bias);
  const at::Tensor whole = all.to(kept).clone().requires_grad_();
  at::Tensor want;
  for (int step = 0; step < 2; ++step) want = alone.forward(whole);
  (want * loss_weights.to(kept)).sum().backward();

  run_inproc(static_cast<int>(c.samples.size()), [&](Communicator& comm) {
    SyncBatchNorm norm(options, comm);
    norm->to(kept);
    set_affine(norm->weight, norm->bias);
    int64_t begin = 0;
    for (int r = 0; r < comm.rank(); ++r) begin += c.samples[static_cast<size_t>(r)];
    const int64_t own = c.samples[static_cast<size_t>(comm.rank())];
    const at::Tensor x = all.narrow(0, begin, own).clone().requires_grad_();
    at::Tensor y;
    for (int step = 0; step < 2; ++step) y = norm->forward(x);
    (y * loss_weights.narrow(0, begin, own)).sum().backward();
    const auto same = [&](const at::Tensor& mine, const at::Tensor& theirs, const std::string& what) {
      HERD_CHECK(distance(mine, theirs) <= c.tolerance, what + " differs by " + std::to_string(distance(mine, theirs)));
    };
    same(y.detach(), want.detach().narrow(0, begin, own), "output");
    same(x.grad(), whole.grad().narrow(0, begin, own), "gradient of the input");
    same(comm.all_reduced(norm->weight.grad()), alone.weight.grad(), "gradient of the weight");
    same(comm.all_reduced(norm->bias.grad()), alone.bias.grad(), "gradient of the bias");
    same(norm->running_mean, alone.running_mean, "running mean");
    same(norm->running_var, alone.running_var, "running variance");
    HERD_CHECK(norm->num_batches_tracked.item<int64_t>() == 2, "batches are counted");
    norm->eval();
    alone.eval();
    same(norm->forward(x).detach(), alone.forward(whole).detach().narrow(0, begin, own), "output of an evaluation");
    alone.train();
  });
}

TEST(SyncBatchNorm, IsTheBatchNormOfTheWholeBatch) {
  agrees_with_torch({.samples = {4, 4}, .shape = {3, 5, 2}});
  agrees_with_torch({.samples = {2, 0, 5}, .shape = {3}});  // uneven, and a rank without samples
  agrees_with_torch({.samples = {1, 1}, .shape = {3}});
  agrees_with_torch({.samples = {3}, .shape = {3, 4}});
  agrees_with_torch({.samples = {3, 2, 2, 1}, .shape = {3, 7}, .type = at::kFloat, .tolerance = 2e-5});
  agrees_with_torch({.samples = {3, 2}, .shape = {3, 7}, .type = at::kBFloat16, .tolerance = 0.2});
}

TEST(SyncBatchNorm, KeepsACumulativeAverage_WithoutMomentum) {
  agrees_with_torch({.samples = {3, 1}, .shape = {3, 2}}, BatchNormOptions(3).momentum(std::nullopt));
}

TEST(SyncBatchNorm, NamesWhatDoesNotFit) {
  run_inproc(2, [](Communicator& comm) {
    const auto refusal = [&](const at::Tensor& x) -> std::string {
      try {
        SyncBatchNorm(3, comm)->forward(x);
      } catch (const Error& error) {
        return error.message();
      }
      return "";
    };
    const std::string channels = refusal(at::zeros({2, 4}));
    HERD_CHECK(channels.find("takes [samples, 3, ...], not [2, 4]") != std::string::npos, channels);
    const std::string few = refusal(at::zeros({comm.rank(), 3}));
    HERD_CHECK(few.find("the 2 ranks have 1 together") != std::string::npos, few);
  });
}

}  // namespace
}  // namespace herd::ddp
