// The first block of a language model maps token ids int64 (B, T) to x_BTD = tokens[id] + positions[0 .. T), with
// dropout. A model of segments adds the first one, and a norm may come before the dropout. In packed sequences
// positions count from the beginning of each document (documents.h). It has at most C positions; a model whose
// attention knows positions (rotary.h) has none here.
//   Where ranks of a tensor-parallel axis share the vocabulary, it gives y_RD, of which rows of entries that other
//   ranks have are zero; AddPositions adds positions to their sum, and then drops out. Threads: one at a time.
#pragma once

#include "herd/nn/block.h"
#include "herd/nn/layer_parts.h"

namespace herd::nn {

class TokenEmbedding final : public Block {
 public:
  // The parameters belong to `groups`; positions may be null, and then so are segments.
  TokenEmbedding(GroupList groups, Parameter& tokens_VD, Parameter* positions_CD, double dropout,
                 Parameter* segments_2D = nullptr, std::shared_ptr<Norm> norm = nullptr);
  Tuple forward(const Tuple& ids_BT, const Context& context) override;  // throws kBadConfig if T > C

 private:
  at::Tensor positions_of(const at::Tensor& ids_BT, const Context& context) const;
  Parameter& tokens_VD_;
  Parameter* positions_CD_;
  double dropout_;
  Parameter* segments_2D_;
  std::shared_ptr<Norm> norm_;
};

// x_SD -> dropout(x + positions), of the rows that this rank has.
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

}  // namespace herd::nn
