// Makes blocks of the parts of a pre-norm decoder layer, which maps x_BTD to x_BTD, with width D, feed-forward width F,
// H heads and K key heads of d:
//   h = x + dropout(attention(ln_1(x)));  y = h + dropout(feed_forward(ln_2(h)))      self_attention.h, feed_forward.h
//   norm_1, attention, add_1, norm_2, mlp, add_2                       its parts (layer_parts.h)
//   norm_1, qkv, attention, projection, add_1, ..                      where ranks share tokens (context_parts.h)
//   norm_1, attention, add_1, norm_2, experts, add_2                   with a mixture of experts (mixture.h)
//   attention, add_1, norm_1, mlp, add_2, norm_2                       with norms of the sums, as in BERT
//   .., norm_2, route, experts, combine, add_2                         whose experts ranks share (experts_of_ranks.h)
//   Forward takes 8*B*T*D^2 + 4*B*T*D*F + 4*B*T^2*D FLOP for GPT, and 4*B*T*D*(H + K)*d + 6*B*T*D*F + 4*B*T^2*H*d for
//   Llama; backward takes twice that. With the router's losses the layer also takes those of the layers before it, (B,
//   2), if there are any, and gives the sum with its own. The graph keeps per token, in elements: D of the input, 2D of
//   the norms' outputs, (H + 2K)d of qkv, Hd of attention, D of h, and 2F around gelu or 4F around the gate.
// Source: Radford et al. 2019 (GPT-2); Touvron et al. 2023, arXiv:2302.13971 (Llama); Xiong et al. 2020,
// arXiv:2002.04745 for pre-norm.
// Threads: one at a time.
#pragma once

#include <optional>

#include "herd/nn/block.h"
#include "herd/nn/layer_parts.h"
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
  bool qkv_bias = false;              // that of queries, keys and values has, where others have none
  bool qk_norm = false;               // heads of queries and keys go through a norm
  std::optional<Rotary> rotary = {};  // unset: q and k are not rotated
  bool causal = true;                 // AttentionShape::causal
  bool exact_gelu = false;            // FeedForwardParameters::exact_gelu
  bool norms_after = false;           // norms are of the sums with the residual
  double dropout = 0;
  bool recompute_attention = false;          // AttentionShape::recompute
  std::optional<MixtureShape> mixture = {};  // set: experts in place of a feed-forward layer of width ffn
  bool has_qkv_bias() const { return biases || qkv_bias; }
  int64_t query_heads_per_key() const { return kv_heads == 0 ? 1 : heads / kv_heads; }
  int64_t width_of_head() const { return head_width == 0 ? width / heads : head_width; }
};

// Returns the shape of `heads` of the layer's heads, from `first_head` on. REQUIRES whole groups of heads that share a
// key head, or part of one such group.
AttentionShape attention_shape(const TransformerShape& shape, int64_t heads, int64_t first_head = 0);

// Names the heads of a layer that a tensor rank has.
struct HeadPart {
  int64_t ranks = 1, place = 0;
  AttentionShape of(const TransformerShape& shape) const {
    return attention_shape(shape, shape.heads / ranks, shape.heads / ranks * place);
  }
};

// Makes the blocks of a model's layers, as far as this rank has them.
struct LayerParts {
  TransformerShape shape;
  // True: as ranks of a tensor axis share them. Rows (R, D) take the place of sequences (B, T, D), and the sums with
  // the residual add the biases of what is partial before.
  bool is_split = false;
  HeadPart heads = {};
  int context_ranks = 1;                                   // that share the tokens of each sequence
  bool ring = false;                                       // true: keys and values pass around these
  std::vector<std::shared_ptr<RouterState>> routers = {};  // of the blocks that have been made, in order

  // Returns one part of a layer, or several that follow each other, joined. `groups` hold parameters prefix + {ln_1,
  // attn.qkv, attn.q_norm, attn.k_norm, attn.proj, ln_2, mlp.gate, mlp.up, mlp.down} + {.weight, .bias} and those of
  // experts, as far as its parts read them. Of attn.qkv there may be two: of queries, then of keys and values. Throws
  // kBug for a part that there is not.
  std::shared_ptr<Block> make(const std::string& name, const std::string& prefix, const std::vector<std::string>& parts,
                              const GroupList& groups);

 private:
  // `joined_norm`: of a sum that normalises, too.
  std::shared_ptr<Block> make_part(const std::string& name, const std::string& prefix, const std::string& part,
                                   const GroupList& groups, std::shared_ptr<const Norm> joined_norm = nullptr);
};

// Returns the parameters of one block in order, without those of experts. `layers` is the depth of the whole model,
// since residual projections start smaller in deep ones.
std::vector<ParameterSpec> transformer_parameters(const std::string& prefix, const TransformerShape& shape,
                                                  int64_t layers);
// Returns the parameters of a block's experts. REQUIRES a mixture.
std::vector<ParameterSpec> expert_parameters(const std::string& prefix, const TransformerShape& shape, int64_t layers);

}  // namespace herd::nn
