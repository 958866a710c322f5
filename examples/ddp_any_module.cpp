// Data parallel training of an ordinary torch module:   herd run -n 2 -- ddp_any_module
// Each rank sees half of every batch; both end with the same weights, those of y = 2 a - 3 b + 1.
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <cstdio>

#include "herd/tensors.h"

struct Net : torch::nn::Module {
  Net() : linear(register_module("linear", torch::nn::Linear(2, 1))) {}
  at::Tensor forward(const at::Tensor& x) { return linear(x); }
  torch::nn::Linear linear;
};

int main() {
  auto comm = herd::Communicator::create();
  auto net = std::make_shared<Net>();
  herd::DistributedDataParallel ddp(net, comm);  // rank 0's weights go to all
  torch::optim::SGD optimizer(ddp.parameters(), 0.1);

  torch::manual_seed(comm.rank());  // each rank draws its own samples
  for (int step = 0; step < 200; ++step) {
    const at::Tensor x = torch::randn({16, 2});
    const at::Tensor y = 2 * x.select(1, 0) - 3 * x.select(1, 1) + 1;
    const at::Tensor loss = (ddp(x).squeeze(1) - y).square().mean();
    loss.backward();  // gradients are averaged over ranks when this returns
    optimizer.step();
    optimizer.zero_grad();
    if (step % 50 == 0 && comm.rank() == 0) std::printf("step %d loss %.4f\n", step, loss.item<double>());
  }
  const at::Tensor w = net->linear->weight;
  std::printf("rank %d: y = %.3f a + %.3f b + %.3f\n", comm.rank(), w[0][0].item<double>(), w[0][1].item<double>(),
              net->linear->bias.item<double>());
}
