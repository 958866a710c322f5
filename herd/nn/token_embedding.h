// The first block of a language model maps token ids int64 (B, T) to x_BTD = tokens[id] + positions[0 .. T), with
// dropout. In packed sequences positions count from the beginning of each document (documents.h). It has at most C
// positions; a model whose attention knows positions (rotary.h) has none here. Threads: one
// at a time.
#pragma once

#include "herd/nn/block.h"

namespace herd::nn {

class TokenEmbedding final : public Block {
 public:
  // The parameters belong to `groups`; positions may be null.
  TokenEmbedding(std::vector<std::shared_ptr<ParameterGroup>> groups, Parameter& tokens_VD, Parameter* positions_CD,
                 double dropout);
  Tuple forward(const Tuple& ids_BT, const Context& context) override;  // throws kBadConfig if T > C

 private:
  at::Tensor positions_of(const at::Tensor& ids_BT, const Context& context) const;
  Parameter& tokens_VD_;
  Parameter* positions_CD_;
  double dropout_;
};

}  // namespace herd::nn
