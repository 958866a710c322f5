// Defines the parts of a decoder's layer whose ranks share the tokens of each sequence (spec::program_table). Each is a
// block of its own, so that the all-to-alls between them are ops of the Program.
//   B sequences, T tokens, P ranks with S tokens each (token_cut.h), D width, W the width of q, k and v of one rank's
//   heads, A the width of one rank's query heads.
//     projection  x_BSD           -> qkv_PBSW: of this rank's tokens, what each rank's heads need of them
//     attention   qkv_PBSW        -> y_PBSA: from each rank's tokens to each rank's tokens, of this rank's heads
//     output      x_BSD, y_PBSA   -> x + the rest of the layer, of this rank's tokens
//   In a ring (ring_attention.h) nothing is exchanged: P is 1, W and A are the widths of all heads, and in place of
//   attention stands
//     ring        qkv_1BSW        -> y_1BSA: from all tokens to this rank's tokens, of all heads
// An all-to-all sends slice p of the first dimension to rank p, and puts what rank q has sent there at q. Where there
// are fewer key heads than ranks, several ranks get the same one. Dropout draws what the whole layer would. Threads:
// one at a time. Source: Jacobs et al. 2023, arXiv:2309.14509.
#pragma once

#include "herd/nn/transformer_block.h"

namespace herd::nn {

class TokenProjection final : public Block {
 public:
  TokenProjection(const std::string& layer, GroupsOfLayer groups, const TransformerShape& shape, int ranks);
  Tuple forward(const Tuple& x_BSD, const Context& context) override;

 private:
  LayerWeights weights_;
  NormStyle norm_;
  AttentionShape attention_;
  int64_t head_width_;
  int ranks_;
};

class HeadAttention final : public Block {
 public:
  HeadAttention(const std::string& layer, const TransformerShape& shape, int ranks);
  Tuple forward(const Tuple& qkv_PBSW, const Context& context) override;

 private:
  AttentionShape attention_;  // of one rank's heads
  int64_t head_width_;
};

class RingAttention final : public Block {
 public:
  RingAttention(const std::string& layer, const TransformerShape& shape);
  Tuple forward(const Tuple& qkv_1BSW, const Context& context) override;

 private:
  AttentionShape attention_;
};

class LayerOutput final : public Block {
 public:
  LayerOutput(const std::string& layer, GroupsOfLayer groups, const TransformerShape& shape);
  Tuple forward(const Tuple& x_BSD_and_y_PBSA, const Context& context) override;

 private:
  LayerWeights weights_;
  NormStyle norm_;
  double dropout_;
};

}  // namespace herd::nn
