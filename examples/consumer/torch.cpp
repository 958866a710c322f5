// Uses herd with torch: ranks average the gradients of a module, and add a tensor of each.   consumer_torch, or
// herd run -n 2 -- consumer_torch
#include <torch/nn/modules/linear.h>

#include <cstdio>

#include "herd/tensors.h"

struct Net : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) { return linear(x); }
  torch::nn::Linear linear = register_module("linear", torch::nn::Linear(3, 1));
};

int main() {
  try {
    auto comm = herd::Communicator::create();
    auto net = std::make_shared<Net>();
    herd::DistributedDataParallel<Net> ddp(net, comm);
    ddp(at::full({1, 3}, comm.rank() + 1.0)).sum().backward();  // of rank r, the gradient is r + 1
    const at::Tensor sum = at::full({2}, comm.rank() + 1.0);
    comm.all_reduce(sum);
    std::printf("rank %d of %d: gradient %g, sum %g\n", comm.rank(), comm.size(),
                net->linear->weight.grad()[0][0].item<double>(), sum[0].item<double>());
  } catch (const herd::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
