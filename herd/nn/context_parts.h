// Defines the parts of attention where ranks share the tokens of each sequence (spec::program_table), in place of one
// part (layer_parts.h). Each is in a block of its own, so that the all-to-alls between them are ops of the Program.
//   B sequences, T tokens, P ranks with S tokens each (token_cut.h), D width, W the width of q, k and v of one rank's
//   heads, A the width of one rank's query heads.
//     projection  n_BSD           -> qkv_PBSW: of this rank's tokens, what each rank's heads need of them
//     attention   qkv_PBSW        -> y_PBSA: from each rank's tokens to each rank's tokens, of this rank's heads
//     output      y_PBSA          -> y_BSD
//   In a ring (ring_attention.h) nothing is exchanged: P is 1, W and A are the widths of all heads, and in place of
//   attention stands
//     ring        qkv_1BSW        -> y_1BSA: from all tokens to this rank's tokens, of all heads
//   Where ranks of a tensor-parallel axis share the layer, too, heads are those of their part, and the first and the
//   last tensor are rows (B*S, D), of which the last is partial.
// An all-to-all sends slice p of the first dimension to rank p, and puts what rank q has sent there at q. Where there
// are fewer key heads than ranks, several ranks get the same one. Dropout draws what the whole layer would. Threads:
// one at a time. Source: Jacobs et al. 2023, arXiv:2309.14509.
#pragma once

#include "herd/nn/transformer_block.h"

namespace herd::nn {

class HeadProjection final : public Block {
 public:
  // `parameters` are those of the part's heads; their output projection is not read.
  HeadProjection(std::string name, GroupList groups, const AttentionParameters& parameters,
                 const TransformerShape& shape, const HeadPart& part, int ranks);
  Tuple forward(const Tuple& n_BSD, const Context& context) override;

 private:
  AttentionParameters parameters_;
  AttentionShape attention_;
  int64_t head_width_;
  int ranks_;
};

class HeadOutput final : public Block {
 public:
  // `gives_rows`: of y (B*S, D), in place of (B, S, D).
  HeadOutput(std::string name, GroupList groups, Parameter& weight, Parameter* bias, bool gives_rows);
  Tuple forward(const Tuple& y_PBSA, const Context& context) override;

 private:
  Parameter& weight_;
  Parameter* bias_;
  bool gives_rows_;
};

class HeadAttention final : public Block {
 public:
  HeadAttention(std::string name, const TransformerShape& shape, int ranks, const HeadPart& part = {});
  Tuple forward(const Tuple& qkv_PBSW, const Context& context) override;

 private:
  AttentionShape attention_;  // of one rank's heads; first_head is that of the tensor rank
  int64_t head_width_;
};

class RingAttention final : public Block {
 public:
  RingAttention(std::string name, const TransformerShape& shape, const HeadPart& part = {});
  Tuple forward(const Tuple& qkv_1BSW, const Context& context) override;

 private:
  AttentionShape attention_;
};

}  // namespace herd::nn
