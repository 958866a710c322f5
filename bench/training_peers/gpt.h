// The GPT of torch_peers.py as an ordinary torch module, for DistributedDataParallel.
// B sequences, T tokens, D width, V vocabulary.
#pragma once

#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

namespace bench {

struct GptShape {
  int64_t layers = 12, width = 768, vocab = 50257, context = 256, batch = 2;
};

struct LayerImpl : torch::nn::Module {
  explicit LayerImpl(int64_t width)
      : norm1(register_module("norm1", torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})))),
        norm2(register_module("norm2", torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})))),
        qkv(register_module("qkv", torch::nn::Linear(width, 3 * width))),
        projection(register_module("projection", torch::nn::Linear(width, width))),
        up(register_module("up", torch::nn::Linear(width, 4 * width))),
        down(register_module("down", torch::nn::Linear(4 * width, width))) {}

  at::Tensor forward(at::Tensor x_BTD) {
    const int64_t batch = x_BTD.size(0), tokens = x_BTD.size(1), width = x_BTD.size(2);
    const auto parts = qkv(norm1(x_BTD)).chunk(3, -1);
    const auto heads = [&](const at::Tensor& part) { return part.view({batch, tokens, -1, 64}).transpose(1, 2); };
    const at::Tensor y =
        at::scaled_dot_product_attention(heads(parts[0]), heads(parts[1]), heads(parts[2]), {}, 0.0, true);
    x_BTD = x_BTD + projection(y.transpose(1, 2).reshape({batch, tokens, width}));
    return x_BTD + down(at::gelu(up(norm2(x_BTD)), "tanh"));
  }
  torch::nn::LayerNorm norm1, norm2;
  torch::nn::Linear qkv, projection, up, down;
};
TORCH_MODULE(Layer);

struct Gpt : torch::nn::Module {
  explicit Gpt(const GptShape& shape)
      : tokens(register_module("tokens", torch::nn::Embedding(shape.vocab, shape.width))),
        positions(register_module("positions", torch::nn::Embedding(shape.context, shape.width))),
        layers(register_module("layers", torch::nn::ModuleList())),
        norm(register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({shape.width})))),
        head(register_module("head",
                             torch::nn::Linear(torch::nn::LinearOptions(shape.width, shape.vocab).bias(false)))) {
    for (int64_t k = 0; k < shape.layers; ++k) layers->push_back(Layer(shape.width));
    const torch::NoGradGuard no_grad;
    for (auto& parameter : parameters()) {
      if (parameter.dim() == 2) parameter.normal_(0, 0.02);
    }
  }
  at::Tensor forward(const at::Tensor& ids_BT) {
    at::Tensor x_BTD = tokens(ids_BT) + positions->weight;
    for (const auto& layer : *layers) x_BTD = layer->as<Layer>()->forward(x_BTD);
    return head(norm(x_BTD));
  }
  torch::nn::Embedding tokens, positions;
  torch::nn::ModuleList layers;
  torch::nn::LayerNorm norm;
  torch::nn::Linear head;
};

}  // namespace bench
