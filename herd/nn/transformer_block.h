// One pre-norm decoder block maps x_BTD to x_BTD, with width D, feed-forward width F, H heads and K key heads of d.
//   h = x + dropout(attention(ln_1(x)));  y = h + dropout(feed_forward(ln_2(h)))      self_attention.h, feed_forward.h
//   Forward takes 8*B*T*D^2 + 4*B*T*D*F + 4*B*T^2*D FLOP for GPT, and 4*B*T*D*(H + K)*d + 6*B*T*D*F + 4*B*T^2*H*d for
//   Llama; backward takes twice that.
//   With a mixture, experts stand in place of the feed-forward layer (mixture.h). With the router's losses the block
//   also takes those of the layers before it, (B, 2), if there are any, and gives the sum with its own. The graph keeps
//   per token, in elements: D of the input, 2D of the norms' outputs, (H + 2K)d of qkv, Hd of attention, D of h, and 2F
//   around gelu or 4F around the gate.
// Source: Radford et al. 2019 (GPT-2); Touvron et al. 2023, arXiv:2302.13971 (Llama); Xiong et al. 2020,
// arXiv:2002.04745 for pre-norm.
// Threads: one at a time.
#pragma once

#include <optional>

#include "herd/nn/block.h"
#include "herd/nn/mixture.h"
#include "herd/nn/norm.h"
#include "herd/nn/rotary.h"
#include "herd/nn/self_attention.h"

namespace herd::nn {

struct TransformerShape {
  int64_t width = 0, heads = 1, ffn = 0;
  int64_t kv_heads = 0;    // K; 0 = heads
  int64_t head_width = 0;  // 0 = width / heads
  NormStyle norm = {};
  bool gated = false;                 // true: SwiGLU
  bool biases = true;                 // linear layers have biases
  std::optional<Rotary> rotary = {};  // unset: q and k are not rotated
  double dropout = 0;
  bool recompute_attention = false;          // AttentionShape::recompute
  std::optional<MixtureShape> mixture = {};  // set: experts in place of a feed-forward layer of width ffn
  int64_t query_heads_per_key() const { return kv_heads == 0 ? 1 : heads / kv_heads; }
  int64_t width_of_head() const { return head_width == 0 ? width / heads : head_width; }
};

// Returns the shape of `heads` of the layer's heads, from `first_head` on. REQUIRES whole groups of heads that share a
// key head, or part of one such group.
AttentionShape attention_shape(const TransformerShape& shape, int64_t heads, int64_t first_head = 0);

using GroupsOfLayer = std::vector<std::shared_ptr<ParameterGroup>>;

// Finds the parameters of a layer: prefix + {ln_1, attn.qkv, attn.proj, ln_2, mlp.gate, mlp.up, mlp.down} + {.weight,
// .bias}, as far as transformer_parameters() has them. It borrows them.
struct LayerWeights {
  struct Pair {
    Parameter* weight = nullptr;
    Parameter* bias = nullptr;  // null where there is none
  };
  LayerWeights(const GroupsOfLayer& groups, const std::string& prefix, const TransformerShape& shape);
  Pair ln_1, qkv, out, ln_2;
  Pair gate, up, down;  // null with a mixture
};

class TransformerBlock final : public Block {
 public:
  // `groups` hold the LayerWeights, and expert_parameters() where there is a mixture.
  TransformerBlock(std::string name, GroupsOfLayer groups, const std::string& prefix, const TransformerShape& shape);
  Tuple forward(const Tuple& x_BTD, const Context& context) override;  // of x, and losses (B, 2) where there are any
  std::vector<Buffer> buffers() const override { return mixture_ ? mixture_->buffers() : std::vector<Buffer>(); }
  std::shared_ptr<RouterState> router_state() const { return mixture_ ? mixture_->state() : nullptr; }

 private:
  TransformerShape shape_;
  AttentionShape attention_;
  LayerWeights weights_;
  std::optional<Mixture> mixture_;
};

// Returns the parameters of one block in order, without those of experts. `layers` is the depth of the whole model,
// since residual projections start smaller in deep ones.
std::vector<ParameterSpec> transformer_parameters(const std::string& prefix, const TransformerShape& shape,
                                                  int64_t layers);
// Returns the parameters of a block's experts. REQUIRES a mixture.
std::vector<ParameterSpec> expert_parameters(const std::string& prefix, const TransformerShape& shape, int64_t layers);

}  // namespace herd::nn
