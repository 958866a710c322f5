#include "herd/nn/mixture.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>

#include <algorithm>

#include "herd/base/check.h"
#include "herd/comm/communicator.h"
#include "herd/nn/linear.h"
#include "herd/nn/recorded_routing.h"

namespace herd::nn {

MixtureRouter::MixtureRouter(const GroupList& groups, const std::string& prefix, const MixtureShape& shape)
    : shape_(shape),
      router_(find(groups, prefix + "router.weight")),
      state_(std::make_shared<RouterState>(prefix + "router.bias", shape.experts, shape.bias_balancing)) {
  if (shape.shared_ffn == 0) return;
  shared_gate_ = &find(groups, prefix + "shared.gate.weight");
  shared_up_ = &find(groups, prefix + "shared.up.weight");
  shared_down_ = &find(groups, prefix + "shared.down.weight");
  if (shape.shared_gate) scale_ = &find(groups, prefix + "shared_gate.weight");
}

std::vector<Buffer> MixtureRouter::buffers() const {
  if (!state_->bias_E().defined()) return {};
  return {{state_->name(), state_->bias_E()}};
}

// Context ranks have some tokens of each sequence, and tensor ranks beside them rows of these that follow each other.
SharedSequences MixtureRouter::shared_sequences(const at::Tensor& n, const Context& context,
                                                WholeSequences& whole) const {
  HERD_CHECK(context.tensor_ranks != nullptr, "ranks that have parts of sequences have a group");
  const bool has_rows = n.dim() == 2;
  SharedSequences out{.ranks = context.tensor_ranks,
                      .sums_losses = has_rows,
                      .parts = context.cut.parts,
                      .place = context.cut.place,
                      .whole = &whole};
  out.sequences = has_rows ? std::ssize(context.samples) : n.size(0);
  out.tokens = context.cut.parts > 1 ? context.cut.tokens : context.tokens;
  const at::Tensor all = at::arange(out.sequences * out.tokens, at::kLong).view({out.sequences, out.tokens});
  const int tensor_ranks = out.ranks->size() / context.cut.parts;
  for (int rank = 0; rank < out.ranks->size(); ++rank) {
    TokenCut cut = context.cut;
    cut.tokens = out.tokens, cut.place = rank / tensor_ranks;
    const at::Tensor own = own_columns(all, cut, -1).view({-1});
    const int64_t rows = has_rows ? n.size(0) : own.numel(), begin = rank % tensor_ranks * rows;
    at::Tensor places = at::full({rows}, -1, at::kLong);
    const int64_t there = std::clamp<int64_t>(own.numel() - begin, 0, rows);
    if (there > 0) places.narrow(0, 0, there).copy_(own.narrow(0, begin, there));
    out.places_PN.push_back(places);
  }
  return out;
}

Routing MixtureRouter::route(const at::Tensor& n, const Context& context, KeptRouting& kept) const {
  const bool whole = n.dim() == 3;
  RouterStyle style = shape_.router;
  if (context.cache != nullptr) style.capacity_factor = 0;  // a text that grows has no length to share
  const bool needs_whole = style.with_losses || style.capacity_factor > 0;
  const bool has_parts = needs_whole && (!whole || context.cut.parts > 1);
  const int layer = context.layer - 1;  // among those with attention: the embedding's is 0
  std::vector<TokenRow> rows;
  at::Tensor forced;
  if (context.updates_buffers) {
    const TokenCut own = {.tokens = whole ? n.size(1) : context.tokens};
    rows = token_rows(n.numel() / n.size(-1), context.samples, context.cut.parts > 1 ? context.cut : own,
                      context.first_row);
    if (context.replayed != nullptr)
      forced = context.replayed->choices(context.step, layer, rows, style.top_k, shape_.experts);
  }
  Routing routing = nn::route(style, whole ? n : n.unsqueeze(0), router_, state_->bias_E(), kept.experts_Nk,
                              has_parts ? shared_sequences(n, context, kept.whole) : SharedSequences{}, forced);
  if (!kept.experts_Nk.defined()) kept.experts_Nk = routing.experts_Nk;
  if (!context.updates_buffers) return routing;
  state_->count(routing.experts_Nk, rows, routing.close_N);
  if (context.recorded != nullptr) context.recorded->add(context.step, layer, rows, routing.experts_Nk);
  return routing;
}

at::Tensor MixtureRouter::shared(const at::Tensor& n) const {
  const at::Tensor y = feed_forward(n, {shared_gate_, *shared_up_, nullptr, *shared_down_, nullptr});
  return scale_ == nullptr ? y : linear(n, *scale_).sigmoid() * y;
}

at::Tensor summed_losses(const Tuple& n_SD, const at::Tensor& losses_B2) {
  const bool has_before = n_SD.size() > 1 && n_SD[1].defined();
  return has_before ? n_SD[1] + losses_B2 : losses_B2;
}

RoutedExperts::RoutedExperts(std::string name, GroupList of_layer, const std::string& prefix, const MixtureShape& shape)
    : Block(std::move(name), std::move(of_layer)),
      router_(groups(), prefix, shape),
      experts_(find_experts(groups(), prefix)) {}

Tuple RoutedExperts::forward(const Tuple& n_SD, const Context& context) {
  const at::Tensor& n = n_SD.at(0);
  KeptRouting of_pass;
  const Routing routing = router_.route(n, context, context.routing != nullptr ? *context.routing : of_pass);
  at::Tensor y = experts(n, routing, experts_);
  if (router_.has_shared()) y = y + router_.shared(n);
  if (!routing.losses_B2.defined()) return {y};
  return {y, summed_losses(n_SD, routing.losses_B2)};
}

}  // namespace herd::nn
