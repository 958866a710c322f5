// Defines the parts of a decoder's layers (transformer_block.h), besides those of context_parts.h. Where ranks of a
// tensor-parallel axis share a layer (spec::program_table), each is a block of its own, so that the collectives between
// them are ops of the Program; a layer that nothing cuts is a JoinedBlock of them.
//   R rows of tokens, S of them in a rank's shard where norms and sums work on shards (S = R without sequence
//   parallel), D width. Where nothing cuts the layer, rows are tensors (B, T, D) of whole sequences.
//     norm            x_SD    -> n_SD
//     attention       n_RD    -> y_RD: its heads, through their columns of the output projection
//     add             x_SD, y_SD -> x + dropout(y), and the norm of it where a norm is joined to it
//     feed forward    n_RD    -> y_RD: its columns of the second matrix
//     experts         n_SD    -> y_SD: a mixture of whole experts, of this rank's rows (mixture.h); where ranks share
//                     experts, parts of their own take its place (experts_of_ranks.h)
//   What tensor-parallel ranks give is partial, and then the sum with the residual adds the bias.
// Dropout draws what the whole layer would. Threads: one at a time. Sources: those of strategies/tensor_parallel.h.
#pragma once

#include "herd/nn/block.h"
#include "herd/nn/dropout.h"
#include "herd/nn/feed_forward.h"
#include "herd/nn/norm.h"
#include "herd/nn/self_attention.h"

namespace herd::nn {

class Norm final : public Block {
 public:
  Norm(std::string name, GroupList groups, const NormStyle& style, Parameter& gain, Parameter* bias);
  Tuple forward(const Tuple& x_SD, const Context& context) override;
  Tuple of_sum(const at::Tensor& x, const at::Tensor& added) const;  // returns the sum and its norm

 private:
  NormStyle style_;
  Parameter& gain_;
  Parameter* bias_;
};

class LayerAttention final : public Block {
 public:
  LayerAttention(std::string name, GroupList groups, const AttentionParameters& parameters,
                 const AttentionShape& shape);
  Tuple forward(const Tuple& n_RD, const Context& context) override;

 private:
  AttentionParameters parameters_;
  AttentionShape shape_;
};

class AddResidual final : public Block {
 public:
  // `norm` is joined to it, or null.
  AddResidual(std::string name, GroupList groups, Parameter* bias, double dropout, DropoutSite site,
              std::shared_ptr<const Norm> norm = nullptr);
  Tuple forward(const Tuple& x_and_y_SD, const Context& context) override;
  bool has_backward() const override { return norm_ == nullptr; }
  Tuple backward(const Tuple& dz_SD, const Context& context) override;

 private:
  std::shared_ptr<const Norm> norm_;
  Parameter* bias_;
  double dropout_;
  DropoutSite site_;
};

class LayerFeedForward final : public Block {
 public:
  LayerFeedForward(std::string name, GroupList groups, const FeedForwardParameters& parameters);
  Tuple forward(const Tuple& n_RD, const Context& context) override;

 private:
  FeedForwardParameters parameters_;
};

}  // namespace herd::nn
