// Do experts multiply as fast as one large layer? The same rows through E experts, an equal part of them each, and
// through one expert of the same size, forward and backward, by turns, on one thread.
//   experts_products [experts = 8] [rows of an expert = 128] [width = 512] [ffn = 1024] [rounds = 40]
// Prints GFLOP/s of both (medians), and the median of the ratios of neighbours, for forward and for both passes. Both
// sort rows, gate and add up alike, so the ratio is that of grouped products to large ones.
#include <ATen/Parallel.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <torch/csrc/autograd/autograd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "herd/base/elapsed.h"
#include "herd/base/median.h"
#include "herd/nn/experts.h"

namespace {

using namespace herd;

struct Layer {
  Layer(int64_t experts, int64_t width, int64_t ffn)
      : group("experts", {{"gate", {experts, ffn, width}, true, nn::Init::kNormal, 0.02},
                          {"up", {experts, ffn, width}, true, nn::Init::kNormal, 0.02},
                          {"down", {experts, width, ffn}, true, nn::Init::kNormal, 0.02}}),
        weights(at::empty({group.elements()}, at::kFloat)),
        gradient(at::empty({group.elements()}, at::kFloat)),
        parameters{group.find("gate"), group.find("up"), group.find("down")} {
    group.initialize(1, weights);
    group.attach(weights);
    group.attach_gradient(gradient);
  }
  nn::ParameterGroup group;
  at::Tensor weights, gradient;
  nn::ExpertParameters parameters;
};

struct Times {
  std::vector<double> forward_us, both_us;
};

void run(Layer& layer, const at::Tensor& x, const nn::Routing& routing, const at::Tensor& dy, Times& times) {
  layer.group.begin_gradient();
  const auto begin = std::chrono::steady_clock::now();
  const at::Tensor y = nn::experts(x, routing, layer.parameters);
  times.forward_us.push_back(us_since(begin));
  torch::autograd::grad({y}, {x, layer.parameters.gate.value()}, {dy}, false, false, true);
  times.both_us.push_back(us_since(begin));
}

void print(const char* pass, double flops, const std::vector<double>& grouped_us, const std::vector<double>& one_us) {
  std::vector<double> ratios;
  for (size_t i = 0; i < grouped_us.size(); ++i) ratios.push_back(one_us[i] / grouped_us[i]);
  std::printf("%-20s %8.1f GFLOP/s of experts %8.1f of one layer  ratio %.3f\n", pass, flops / median(grouped_us) / 1e3,
              flops / median(one_us) / 1e3, median(ratios));
}

}  // namespace

int main(int argc, char** argv) {
  const auto number = [&](int at, int64_t without) {
    return argc > at ? std::strtoll(argv[at], nullptr, 10) : without;
  };
  const int64_t experts = number(1, 8), rows = number(2, 128), width = number(3, 512), ffn = number(4, 1024),
                rounds = number(5, 40);
  if (argc > 6 || experts < 1 || rows < 1 || width < 1 || ffn < 1 || rounds < 1)
    return std::fprintf(stderr, "experts_products [EXPERTS] [ROWS] [WIDTH] [FFN] [ROUNDS], each 1 or more\n"), 2;
  at::set_num_threads(1);
  Layer grouped(experts, width, ffn), one(1, width, ffn);
  const at::Tensor x = at::randn({experts * rows, width}).requires_grad_(), dy = at::randn({experts * rows, width});
  const at::Tensor choices = at::arange(experts * rows, at::kLong).remainder(experts).unsqueeze(1);
  const at::Tensor weights = at::ones({experts * rows, 1});
  const nn::Routing to_experts{weights, choices, {}}, to_one{weights, choices.mul(0), {}};
  Times of_experts, of_one;
  for (int64_t round = -2; round < rounds; ++round) {
    if (round == 0) of_experts = of_one = {};
    run(grouped, x, to_experts, dy, of_experts);
    run(one, x, to_one, dy, of_one);
  }
  const double flops = 2.0 * 3 * static_cast<double>(experts * rows * width * ffn);
  print("forward", flops, of_experts.forward_us, of_one.forward_us);
  print("forward and backward", 3 * flops, of_experts.both_us, of_one.both_us);
}
