#include "herd/nn/mixture.h"

#include <ATen/ops/arange.h>

#include "herd/base/check.h"
#include "herd/comm/communicator.h"
#include "herd/nn/experts_of_ranks.h"
#include "herd/nn/linear.h"

namespace herd::nn {

RoutedExperts::RoutedExperts(std::string name, GroupList of_layer, const std::string& prefix, const MixtureShape& shape)
    : Block(std::move(name), std::move(of_layer)),
      shape_(shape),
      router_(find(groups(), prefix + "router.weight")),
      experts_{find(groups(), prefix + "experts.gate.weight"), find(groups(), prefix + "experts.up.weight"),
               find(groups(), prefix + "experts.down.weight")},
      state_(std::make_shared<RouterState>(prefix + "router.bias", shape.experts, shape.bias_balancing)) {
  if (shape.shared_ffn == 0) return;
  shared_gate_ = &find(groups(), prefix + "shared.gate.weight");
  shared_up_ = &find(groups(), prefix + "shared.up.weight");
  shared_down_ = &find(groups(), prefix + "shared.down.weight");
  if (shape.shared_gate) scale_ = &find(groups(), prefix + "shared_gate.weight");
}

std::vector<Buffer> RoutedExperts::buffers() const {
  if (!state_->bias_E().defined()) return {};
  return {{state_->name(), state_->bias_E()}};
}

// Context ranks have some tokens of each sequence, tensor ranks rows that follow each other.
SharedSequences RoutedExperts::shared_sequences(const at::Tensor& n, const Context& context,
                                                WholeSequences& whole) const {
  HERD_CHECK(context.tensor_ranks != nullptr, "ranks that have parts of sequences have a group");
  SharedSequences out{.ranks = context.tensor_ranks, .sums_losses = n.dim() == 2, .whole = &whole};
  out.sequences = n.dim() == 3 ? n.size(0) : std::ssize(context.samples);
  out.tokens = n.dim() == 3 ? context.cut.tokens : context.tokens;
  for (int rank = 0; rank < out.ranks->size(); ++rank) {
    at::Tensor places;
    if (n.dim() == 2) {
      places = at::arange(n.size(0), at::kLong).add_(rank * n.size(0));
      places.masked_fill_(places.ge(out.sequences * out.tokens), -1);
    } else {
      TokenCut cut = context.cut;
      cut.place = rank;
      const at::Tensor all = at::arange(out.sequences * out.tokens, at::kLong).view({out.sequences, out.tokens});
      places = own_columns(all, cut, -1).view({-1});
    }
    out.places_PN.push_back(places);
  }
  return out;
}

Tuple RoutedExperts::forward(const Tuple& n_SD, const Context& context) {
  const at::Tensor& n = n_SD.at(0);
  const bool whole = n.dim() == 3;
  RouterStyle style = shape_.router;
  if (context.cache != nullptr) style.capacity_factor = 0;  // a text that grows has no length to share
  KeptRouting of_pass;
  KeptRouting& kept = context.routing != nullptr ? *context.routing : of_pass;
  const bool needs_whole = style.with_losses || style.capacity_factor > 0;
  const bool has_parts = needs_whole && (!whole || context.cut.parts > 1);
  const Routing routing = route(style, whole ? n : n.unsqueeze(0), router_, state_->bias_E(), kept.experts_Nk,
                                has_parts ? shared_sequences(n, context, kept.whole) : SharedSequences{});
  if (!kept.experts_Nk.defined()) kept.experts_Nk = routing.experts_Nk;
  if (context.updates_buffers)
    state_->count(routing.experts_Nk, context.samples,
                  context.cut.parts > 1 ? context.cut : TokenCut{.tokens = whole ? n.size(1) : context.tokens},
                  context.first_row);
  const bool shares_experts = shape_.ranks > 1;
  HERD_CHECK(!shares_experts || context.tensor_ranks != nullptr, "ranks that hold experts have a group");
  if (shares_experts && !hosts_) hosts_ = hosts_of_ranks(*context.tensor_ranks);
  at::Tensor y = shares_experts ? experts_of_ranks(n, routing, experts_, shape_.experts, *context.tensor_ranks, *hosts_,
                                                   &kept.transfer)
                                : experts(n, routing, experts_);
  if (shared_up_ != nullptr) {
    const at::Tensor shared = feed_forward(n, {shared_gate_, *shared_up_, nullptr, *shared_down_, nullptr});
    y = y + (scale_ == nullptr ? shared : linear(n, *scale_).sigmoid() * shared);
  }
  if (!routing.losses_B2.defined()) return {y};
  const bool has_before = n_SD.size() > 1 && n_SD[1].defined();
  return {y, has_before ? n_SD[1] + routing.losses_B2 : routing.losses_B2};
}

}  // namespace herd::nn
