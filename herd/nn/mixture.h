// A mixture of experts in place of a layer's feed-forward network: a router (router.h) chooses experts for each row,
// which run here (experts.h) or on the ranks that hold them (experts_of_ranks.h); shared experts, one network, take all
// rows beside them, and a gate may scale what they give.
// Threads: one at a time. Source: Jiang et al. 2024, arXiv:2401.04088 (Mixtral); Dai et al. 2024, arXiv:2401.06066 for
// shared experts; Qwen team 2024, arXiv:2407.10671, for their gate.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "herd/nn/block.h"
#include "herd/nn/experts.h"
#include "herd/nn/feed_forward.h"
#include "herd/nn/router.h"
#include "herd/nn/router_state.h"

namespace herd::nn {

struct MixtureShape {
  int64_t experts = 0, ffn = 0;  // ffn: width of an expert
  int64_t shared_ffn = 0;        // width of the shared experts together
  bool shared_gate = false;      // sigmoid(n w^T) of each row scales what these give
  int ranks = 1;                 // ranks that hold equal parts of the experts
  RouterStyle router = {};
  double bias_balancing = 0;  // speed of the router's bias (router_state.h); 0 = none
};

class RowTransfer;
struct RowOrder;

// What a router has chosen for the rows of a micro-batch.
struct KeptRouting {
  at::Tensor experts_Nk;  // as Routing has them; undefined until the first pass has chosen
  WholeSequences whole = {};
  // Where ranks share the experts (experts_of_ranks.h): the order of rows by expert, their weights by row, and what is
  // known of all ranks once they have told their counts.
  std::shared_ptr<const RowOrder> order = {};
  at::Tensor weights_P = {};
  std::shared_ptr<const RowTransfer> transfer = {};
};

// What a mixture does whoever holds its experts: it routes rows, and runs the shared experts.
class MixtureRouter {
 public:
  // `groups` have prefix + router + .weight, and shared.{gate, up, down} and shared_gate where there are these. It
  // borrows these parameters.
  MixtureRouter(const GroupList& groups, const std::string& prefix, const MixtureShape& shape);
  // Chooses experts for rows of whole sequences (B, T, D), or any part of a micro-batch's rows (S, D), which begins
  // with context.first_row. Counts the choices where context.updates_buffers. It takes over those of `kept`, or keeps
  // its own there. REQUIRES context.tensor_ranks where several ranks have parts of sequences that losses or a capacity
  // need whole.
  Routing route(const at::Tensor& n_SD, const Context& context, KeptRouting& kept) const;
  bool has_shared() const { return shared_up_ != nullptr; }
  at::Tensor shared(const at::Tensor& n_SD) const;  // REQUIRES has_shared()

  std::vector<Buffer> buffers() const;  // the router's bias, where it has one
  const std::shared_ptr<RouterState>& state() const { return state_; }
  const MixtureShape& shape() const { return shape_; }

 private:
  SharedSequences shared_sequences(const at::Tensor& n, const Context& context, WholeSequences& whole) const;

  MixtureShape shape_;
  Parameter& router_;
  Parameter *shared_gate_ = nullptr, *shared_up_ = nullptr, *shared_down_ = nullptr, *scale_ = nullptr;
  std::shared_ptr<RouterState> state_;
};

// Returns the losses of a router with those of the layers before, which n_SD may have after the rows.
at::Tensor summed_losses(const Tuple& n_SD, const at::Tensor& losses_B2);

// A part of a layer (layer_parts.h).
class RoutedExperts final : public Block {
 public:
  // `groups` have those of the router, and prefix + experts.{gate, up, down} + .weight. It borrows these parameters.
  RoutedExperts(std::string name, GroupList groups, const std::string& prefix, const MixtureShape& shape);
  // Runs the rows that MixtureRouter::route() takes. With context.routing, it chooses in the first pass alone. With the
  // router's losses (B, 2) it also takes those of the layers before, if any, and gives the sum with its own.
  Tuple forward(const Tuple& n_SD, const Context& context) override;

  std::vector<Buffer> buffers() const override { return router_.buffers(); }
  const std::shared_ptr<RouterState>& router_state() const { return router_.state(); }

 private:
  MixtureRouter router_;
  ExpertParameters experts_;
};

}  // namespace herd::nn
