// Defines the parts of a decoder's layers that ranks of a tensor-parallel axis share (spec::program_table). Each is a
// block of its own, so that the collectives between them are ops of the Program.
//   R rows of tokens, S of them in a rank's shard where norms and sums work on shards (S = R without sequence
//   parallel), D width, A the width of this rank's heads, F its part of the feed-forward width, V the vocabulary
//   entries of this rank, T tokens of a sequence, C positions (model.context).
//     cut embedding   ids_BT  -> y_RD partial, after dropout: rows of entries that other ranks have are zero
//     positions       x_SD    -> dropout(x + positions)
//     norm            x_SD    -> n_SD
//     attention       n_RD    -> y_RD partial: its heads, through their columns of the output projection, without bias
//     add             x_SD, y_SD -> x + dropout(y + bias)
//     feed forward    n_RD    -> y_RD partial: its columns of the second matrix without its bias
//     experts         n_SD    -> y_SD: a mixture of whole experts, of this rank's rows
//     head            n_RD    -> loss, and dn_RD partial
// Dropout draws what the whole layer would. Threads: one at a time. Sources: those of strategies/tensor_parallel.h.
#pragma once

#include "herd/nn/block.h"
#include "herd/nn/dropout.h"
#include "herd/nn/feed_forward.h"
#include "herd/nn/mixture.h"
#include "herd/nn/norm.h"
#include "herd/nn/self_attention.h"

namespace herd::nn {

using GroupList = std::vector<std::shared_ptr<ParameterGroup>>;

class CutEmbedding final : public Block {
 public:
  CutEmbedding(GroupList groups, Parameter& tokens_VD, double dropout);
  Tuple forward(const Tuple& ids_BT, const Context& context) override;

 private:
  Parameter& tokens_VD_;
  double dropout_;  // 0 where AddPositions follows, which then drops out
};

class AddPositions final : public Block {
 public:
  AddPositions(GroupList groups, Parameter& positions_CD, double dropout);
  Tuple forward(const Tuple& x_SD, const Context& context) override;  // throws kBadConfig if T > C
  bool has_backward() const override { return true; }
  Tuple backward(const Tuple& dy_SD, const Context& context) override;

 private:
  Parameter& positions_CD_;
  double dropout_;
};

class Norm final : public Block {
 public:
  Norm(std::string name, GroupList groups, const NormStyle& style, Parameter& gain, Parameter* bias);
  Tuple forward(const Tuple& x_SD, const Context& context) override;

 private:
  NormStyle style_;
  Parameter& gain_;
  Parameter* bias_;
};

class CutAttention final : public Block {
 public:
  CutAttention(std::string name, GroupList groups, const AttentionParameters& parameters, const AttentionShape& shape);
  Tuple forward(const Tuple& n_RD, const Context& context) override;

 private:
  AttentionParameters parameters_;
  AttentionShape shape_;
};

class AddResidual final : public Block {
 public:
  AddResidual(std::string name, GroupList groups, Parameter* bias, double dropout, DropoutSite site);
  Tuple forward(const Tuple& x_and_y_SD, const Context& context) override;
  bool has_backward() const override { return true; }
  Tuple backward(const Tuple& dz_SD, const Context& context) override;

 private:
  Parameter* bias_;
  double dropout_;
  DropoutSite site_;
};

class CutFeedForward final : public Block {
 public:
  CutFeedForward(std::string name, GroupList groups, const FeedForwardParameters& parameters);
  Tuple forward(const Tuple& n_RD, const Context& context) override;

 private:
  FeedForwardParameters parameters_;
};

class RoutedExperts final : public Block {
 public:
  RoutedExperts(std::string name, GroupList groups, const std::string& prefix, const MixtureShape& shape);
  Tuple forward(const Tuple& n_SD, const Context& context) override {
    return {mixture_.forward(n_SD.at(0), context).y};
  }
  std::vector<Buffer> buffers() const override { return mixture_.buffers(); }
  const std::shared_ptr<RouterState>& router_state() const { return mixture_.state(); }

 private:
  Mixture mixture_;
};

class CutHead final : public LossBlock {
 public:
  explicit CutHead(GroupList groups, Parameter& projection_VD);
  Tuple forward(const Tuple& n_RD, const Context& context) override;  // returns logits of this rank's entries
  LossResult loss(const Tuple& n_RD, const at::Tensor& targets_BT, const Context& context, bool with_gradients,
                  DeferredGradients* deferred = nullptr) override;

 private:
  Parameter& projection_VD_;
};

}  // namespace herd::nn
