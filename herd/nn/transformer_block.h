// One pre-norm decoder block.   x_BTD -> x_BTD, width D, feed-forward width F.
//   h = x + dropout(attention(ln_1(x)));  y = h + dropout(down(gelu(up(ln_2(h)))))      gelu by its tanh form
//   Forward 8*B*T*D^2 + 4*B*T*D*F + 4*B*T^2*D FLOP; backward twice that.
//   Keeps for backward (elements per token): 2D norms' outputs, 3D qkv, D attention, D h, 2F around gelu, and the
//   input.
// Source: Radford et al. 2019 (GPT-2); Xiong et al. 2020, arXiv:2002.04745 for pre-norm.
#pragma once

#include "herd/nn/block.h"
#include "herd/nn/norm.h"

namespace herd::nn {

struct TransformerShape {
  int64_t width = 0, heads = 1, ffn = 0;
  NormKind norm = NormKind::kLayerNorm;
  double dropout = 0;
  bool recompute_attention = false;  // AttentionShape::recompute
};

class TransformerBlock final : public Block {
 public:
  // `groups` hold prefix + {ln_1, attn.qkv, attn.proj, ln_2, mlp.up, mlp.down} + {.weight, .bias}.
  TransformerBlock(std::string name, std::vector<std::shared_ptr<ParameterGroup>> groups, const std::string& prefix,
                   const TransformerShape& shape);
  Tuple forward(const Tuple& x_BTD, const Context& context) override;

 private:
  struct Weights {
    Parameter* weight;
    Parameter* bias;  // null where there is none
  };
  Weights find(const std::string& name) const;
  TransformerShape shape_;
  std::string prefix_;
  Weights ln_1_, qkv_, out_, ln_2_, up_, down_;
};

// The parameters of one block in their order; layers = depth of the whole model (residual projections start smaller).
std::vector<ParameterSpec> transformer_parameters(const std::string& prefix, const TransformerShape& shape,
                                                  int64_t layers);

}  // namespace herd::nn
