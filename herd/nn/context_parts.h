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
//   Where ranks of a tensor-parallel axis share the layer, too, heads are those of their part, and the first and the
//   last part are these, beside those of layer_parts.h, of R = B*S rows:
//     projection  n_RD            -> qkv_PBSW
//     output      y_PBSA          -> y_RD partial, without bias
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

// Names the heads of a layer that a tensor rank has.
struct HeadPart {
  int64_t ranks = 1, place = 0;
  AttentionShape of(const TransformerShape& shape) const {
    return attention_shape(shape, shape.heads / ranks, shape.heads / ranks * place);
  }
};

class CutProjection final : public Block {
 public:
  // `parameters` are those of the part's heads; their output projection is not read.
  CutProjection(const std::string& layer, GroupsOfLayer groups, const AttentionParameters& parameters,
                const TransformerShape& shape, const HeadPart& part, int ranks);
  Tuple forward(const Tuple& n_RD, const Context& context) override;

 private:
  AttentionParameters parameters_;
  AttentionShape attention_;
  int64_t head_width_;
  int ranks_;
};

class CutOutput final : public Block {
 public:
  CutOutput(const std::string& layer, GroupsOfLayer groups, Parameter& weight);
  Tuple forward(const Tuple& y_PBSA, const Context& context) override;

 private:
  Parameter& weight_;
};

class HeadAttention final : public Block {
 public:
  HeadAttention(const std::string& layer, const TransformerShape& shape, int ranks, const HeadPart& part = {});
  Tuple forward(const Tuple& qkv_PBSW, const Context& context) override;

 private:
  AttentionShape attention_;  // of one rank's heads; first_head is that of the tensor rank
  int64_t head_width_;
};

class RingAttention final : public Block {
 public:
  RingAttention(const std::string& layer, const TransformerShape& shape, const HeadPart& part = {});
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
