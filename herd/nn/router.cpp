#include "herd/nn/router.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "herd/base/check.h"
#include "herd/bridge/tensor_buffer.h"
#include "herd/comm/communicator.h"
#include "herd/nn/deferred_gradients.h"

namespace herd::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kRowsOfThread = 256;  // at least so many rows make a thread of their own worthwhile

at::Tensor scores_of(RouterKind kind, const at::Tensor& logits) {
  return kind == RouterKind::kSoftmax ? logits.softmax(1) : logits.sigmoid();
}

// Returns the gradient of the logits from those of the scores.
at::Tensor logits_gradient(RouterKind kind, const at::Tensor& scores, const at::Tensor& dscores) {
  if (kind == RouterKind::kSigmoid) return dscores * scores * (1 - scores);
  return scores * (dscores - (scores * dscores).sum(1, true));
}

// The sequence of each row, where ranks have parts of sequences: -1 for padding. Undefined where rows are those of
// whole sequences, one after the other.
at::Tensor sequences_of_rows(const SharedSequences& shared) {
  const at::Tensor& places = shared.places_PN.at(static_cast<size_t>(shared.ranks->rank()));
  return places.div(std::max<int64_t>(shared.tokens, 1), "floor");
}

at::Tensor exists(const at::Tensor& sequences_N) { return sequences_N.ge(0).to(at::kFloat).unsqueeze(1); }

// Spreads a number of each sequence over its rows: (B, n) -> (N, n).
at::Tensor of_rows(const at::Tensor& per_sequence, int64_t rows, const at::Tensor& sequences_N) {
  const int64_t B = per_sequence.size(0), n = per_sequence.size(1);
  if (sequences_N.defined()) return per_sequence.index_select(0, sequences_N.clamp_min(0)).mul_(exists(sequences_N));
  return per_sequence.unsqueeze(1).expand({B, B == 0 ? 0 : rows / B, n}).reshape({-1, n});
}

// Adds up the rows of each sequence: (N, n) -> (B, n).
at::Tensor sums_of_sequences(const at::Tensor& rows_Nn, int64_t B, const at::Tensor& sequences_N) {
  const int64_t n = rows_Nn.size(1);
  if (sequences_N.defined())
    return at::zeros({B, n}, rows_Nn.options()).index_add_(0, sequences_N.clamp_min(0), rows_Nn * exists(sequences_N));
  return rows_Nn.view({B, B == 0 ? 0 : rows_Nn.size(0) / B, n}).sum(1);
}

// Returns the choices of all tokens (B * tokens, k), of which each rank has some.
at::Tensor choices_of_all(const at::Tensor& own_Nk, const SharedSequences& shared) {
  const int64_t N = own_Nk.size(0), k = own_Nk.size(1);
  const at::Tensor gathered = at::empty({shared.ranks->size() * N, k}, own_Nk.options());
  shared.ranks->all_gather(own_Nk, gathered, {.name = "choices of tokens"});
  const at::Tensor places = at::cat(shared.places_PN), there = places.ge(0).nonzero().squeeze(1);
  return at::empty({shared.sequences * shared.tokens, k}, own_Nk.options())
      .index_copy_(0, places.index_select(0, there), gathered.index_select(0, there));
}

// Returns this rank's rows of the choices of all tokens. Rows of padding have dropped choices.
at::Tensor own_choices(const at::Tensor& all, const SharedSequences& shared) {
  const at::Tensor& places = shared.places_PN.at(static_cast<size_t>(shared.ranks->rank()));
  return all.index_select(0, places.clamp_min(0)).masked_fill_(places.lt(0).unsqueeze(1), ~int64_t{0});
}

// What decides the choices of a pass beside its scores (route()), and what is found of them.
struct Choosing {
  const at::Tensor &bias_E, &chosen_Nk, &forced_Nk;
  CloseRows close;
};

// The weight is an input so that backward reaches this node; its gradient is written to the parameter.
struct RouteFunction : torch::autograd::Function<RouteFunction> {
  static variable_list forward(AutogradContext* context, const at::Tensor& x_BTD, const at::Tensor& weight,
                               Parameter* parameter, int64_t kind_number, int64_t top_k, bool normalizes,
                               bool with_losses, double capacity_factor, Choosing* choosing,
                               const SharedSequences* sequences) {
    const at::Tensor &bias = choosing->bias_E, &chosen = choosing->chosen_Nk;
    const auto kind = static_cast<RouterKind>(kind_number);
    const bool shares = sequences->ranks != nullptr;
    const int64_t B = shares ? sequences->sequences : x_BTD.size(0), E = weight.size(0);
    const int64_t T = shares ? sequences->tokens : x_BTD.size(1);
    const at::Device device = x_BTD.device();
    const at::Tensor of_sequence = shares ? sequences_of_rows(*sequences).to(device) : at::Tensor();
    const at::Tensor x = x_BTD.reshape({-1, x_BTD.size(-1)});
    const at::Tensor logits = at::mm(x.to(at::kFloat), weight.to(at::kFloat).t());
    at::Tensor experts, weights, losses, all, counts;
    {
      const at::Tensor scores = scores_of(kind, logits);
      experts = chosen.defined()
                    ? undropped(chosen)
                    : largest_of_rows((bias.defined() ? scores : logits).cpu(), top_k, bias, &choosing->close);
      if (choosing->forced_Nk.defined()) experts = choosing->forced_Nk;
      weights = scores.gather(1, experts.to(device));
      if (normalizes) weights.div_(weights.sum(1, true));
      all = shares && !chosen.defined() ? choices_of_all(experts, *sequences) : experts;
      if (with_losses) {
        counts = shares && chosen.defined() ? sequences->whole->counts_BE : count_choices(all, B, E).to(device);
        const at::Tensor factors = counts * balance_factor(top_k * T, E);
        const at::Tensor parts = kind == RouterKind::kSoftmax ? scores : scores / scores.sum(1, true);
        const at::Tensor z = logits.logsumexp(1, true).square_();
        losses = at::cat(
            {(sums_of_sequences(parts, B, of_sequence) * factors).sum(1, true), sums_of_sequences(z, B, of_sequence)},
            1);
      }
    }
    if (chosen.defined()) {
      experts = chosen.detach();
    } else if (capacity_factor > 0) {
      drop_beyond(capacity(capacity_factor, top_k, T, E), all, B, E);
      if (shares) experts = own_choices(all, *sequences);
    }
    if (shares && with_losses) {
      share_losses(losses, counts, chosen.defined(), *sequences);
      context->saved_data["counts"] = counts;
      context->saved_data["of_sequence"] = of_sequence;
    }
    context->saved_data["sequences"] = B;
    context->saved_data["choices"] = top_k * T;
    context->save_for_backward({x, weight, logits, experts, weights});
    context->saved_data["weight"] = reinterpret_cast<int64_t>(parameter);
    context->saved_data["kind"] = kind_number;
    context->saved_data["normalizes"] = normalizes;
    context->saved_data["drops"] = capacity_factor > 0;
    context->saved_data["sizes"] = x_BTD.sizes().vec();
    context->mark_non_differentiable({experts});
    if (with_losses) return {weights, experts, losses};
    return {weights, experts};
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &logits = saved[2], &experts = saved[3];
    const auto kind = static_cast<RouterKind>(context->saved_data["kind"].toInt());
    const std::vector<int64_t> sizes = context->saved_data["sizes"].toIntVector();
    const at::Tensor scores = scores_of(kind, logits);
    const at::Tensor chosen =
        (context->saved_data["drops"].toBool() ? undropped(experts) : experts).to(scores.device());
    at::Tensor dscores = at::zeros_like(scores);
    if (gradients[0].defined()) {
      const bool normalizes = context->saved_data["normalizes"].toBool();
      dscores.scatter_(1, chosen, chosen_gradient(gradients[0], saved[4], scores, chosen, normalizes));
    }
    const bool has_losses = gradients.size() > 2 && gradients[2].defined();
    const auto saved_tensor = [&](const char* name) {
      const auto found = context->saved_data.find(name);
      return found == context->saved_data.end() ? at::Tensor() : found->second.toTensor();
    };
    const at::Tensor of_sequence = saved_tensor("of_sequence");
    if (has_losses) {
      at::Tensor counts = saved_tensor("counts");
      if (!counts.defined())
        counts = count_choices(experts, context->saved_data["sequences"].toInt(), scores.size(1)).to(scores.device());
      counts = counts * balance_factor(context->saved_data["choices"].toInt(), scores.size(1));
      add_balance_gradient(dscores, gradients[2].narrow(1, 0, 1) * counts, kind, scores, of_sequence);
    }
    at::Tensor dlogits = logits_gradient(kind, scores, dscores);
    if (has_losses) add_z_gradient(dlogits, gradients[2].narrow(1, 1, 1), logits, of_sequence);
    Parameter* parameter = reinterpret_cast<Parameter*>(context->saved_data["weight"].toInt());
    const auto add_gradient = [parameter, dlogits, x = x.detach()] {
      if (!parameter->frozen()) parameter->add_gradient(at::mm(dlogits.t(), x.to(at::kFloat)));
    };
    if (DeferredGradients* later = DeferredGradients::current())
      later->add(add_gradient);
    else
      add_gradient();
    at::Tensor dx;
    if (context->needs_input_grad(0)) dx = at::mm(dlogits, weight.to(at::kFloat)).to(x.scalar_type()).view(sizes);
    return {dx, {}, {}, {}, {}, {}, {}, {}, {}, {}};
  }

 private:
  // Keeps the counts and the losses of the first pass, which later ones take over.
  static void share_losses(at::Tensor& losses, const at::Tensor& counts, bool is_later, const SharedSequences& shared) {
    if (is_later && shared.sums_losses) losses = shared.whole->losses_B2.detach();
    if (is_later) return;
    if (shared.sums_losses) {
      at::Tensor of_parts = losses;
      if (shared.parts > 1) {
        of_parts = at::zeros({shared.parts, losses.size(0), losses.size(1)}, losses.options());
        of_parts[shared.place].copy_(losses);
      }
      shared.ranks->all_reduce(of_parts, {.name = "losses of routers"});
      if (shared.parts > 1) losses = of_parts[shared.place].clone();
    }
    *shared.whole = {counts, losses};
  }

  // Returns the experts that were chosen, dropped or not.
  static at::Tensor undropped(const at::Tensor& experts_Nk) { return at::max(experts_Nk, experts_Nk.bitwise_not()); }

  static int64_t capacity(double factor, int64_t top_k, int64_t T, int64_t E) {
    return static_cast<int64_t>(std::ceil(factor * static_cast<double>(top_k * T) / static_cast<double>(E)));
  }

  // Returns what makes of an expert's choices its share of them, times the number of experts.
  static double balance_factor(int64_t choices, int64_t E) {
    return choices == 0 ? 0 : static_cast<double>(E) / static_cast<double>(choices);
  }

  // Returns the gradient of the chosen scores (N, k) from that of the weights.
  static at::Tensor chosen_gradient(const at::Tensor& dweights, const at::Tensor& weights, const at::Tensor& scores,
                                    const at::Tensor& experts, bool normalizes) {
    if (!normalizes) return dweights;
    return (dweights - (dweights * weights).sum(1, true)) / scores.gather(1, experts).sum(1, true);
  }

  // `dparts_BE` are the gradients of the sums over each sequence's tokens.
  static void add_balance_gradient(const at::Tensor& dscores, const at::Tensor& dparts_BE, RouterKind kind,
                                   const at::Tensor& scores, const at::Tensor& of_sequence) {
    at::Tensor dparts = of_rows(dparts_BE, scores.size(0), of_sequence);
    if (kind == RouterKind::kSigmoid) {
      const at::Tensor sum = scores.sum(1, true);
      dparts = (dparts - (dparts * scores).sum(1, true) / sum) / sum;
    }
    dscores.add_(dparts);
  }

  static void add_z_gradient(const at::Tensor& dlogits, const at::Tensor& dloss_B1, const at::Tensor& logits,
                             const at::Tensor& of_sequence) {
    const at::Tensor z = logits.logsumexp(1, true).mul_(of_rows(dloss_B1, logits.size(0), of_sequence)).mul_(2);
    dlogits.add_(logits.softmax(1).mul_(z));
  }
};

}  // namespace

at::Tensor largest_of_rows(const at::Tensor& scores_NE, int64_t k, const at::Tensor& bias_E, CloseRows* close) {
  const int64_t N = scores_NE.size(0), E = scores_NE.size(1);
  const at::Tensor out = at::empty({N, k}, scores_NE.options().dtype(at::kLong));
  const float* scores = scores_NE.const_data_ptr<float>();
  const float* bias = bias_E.defined() ? bias_E.const_data_ptr<float>() : nullptr;
  int64_t* chosen = out.mutable_data_ptr<int64_t>();
  if (close != nullptr) close->close_N.assign(static_cast<size_t>(N), 0);
  at::parallel_for(0, N, kRowsOfThread, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      const float* row = scores + n * E;
      const auto score = [&](int64_t e) { return bias == nullptr ? row[e] : row[e] + bias[e]; };
      int64_t* taken = chosen + n * k;
      for (int64_t j = 0; j < k; ++j) {
        int64_t best = -1;
        float largest = 0, next = -std::numeric_limits<float>::infinity();
        for (int64_t e = 0; e < E; ++e) {
          if (std::find(taken, taken + j, e) != taken + j) continue;
          const float own = score(e);
          if (best < 0 || own > largest) {  // also takes NaN, whose loss stops the run
            if (best >= 0) next = largest;
            best = e, largest = own;
          } else if (own > next) {
            next = own;
          }
        }
        taken[j] = best;
        if (close != nullptr && (close->of_all || j + 1 == k) && largest - next < kCloseMargin)
          close->close_N[static_cast<size_t>(n)] = 1;
      }
    }
  });
  return out;
}

void drop_beyond(int64_t capacity, const at::Tensor& experts_Nk, int64_t B, int64_t E) {
  const int64_t k = experts_Nk.size(1), T = B == 0 ? 0 : experts_Nk.size(0) / B;
  int64_t* experts = experts_Nk.mutable_data_ptr<int64_t>();
  for (int64_t b = 0; b < B; ++b) {
    std::vector<int64_t> taken(static_cast<size_t>(E));
    for (int64_t j = 0; j < k; ++j) {
      for (int64_t t = 0; t < T; ++t) {
        int64_t& choice = experts[(b * T + t) * k + j];
        if (taken[static_cast<size_t>(choice)]++ >= capacity) choice = ~choice;
      }
    }
  }
}

at::Tensor count_choices(const at::Tensor& experts_Nk, int64_t B, int64_t E) {
  const at::Tensor out = at::zeros({B, E}, experts_Nk.options().dtype(at::kFloat));
  const int64_t choices = B == 0 ? 0 : experts_Nk.numel() / B;
  const int64_t* experts = experts_Nk.const_data_ptr<int64_t>();
  float* counts = out.mutable_data_ptr<float>();
  for (int64_t b = 0; b < B; ++b) {
    for (int64_t i = 0; i < choices; ++i) ++counts[b * E + chosen_expert(experts[b * choices + i])];
  }
  return out;
}

Routing route(const RouterStyle& style, const at::Tensor& x_BTD, Parameter& weight_ED, const at::Tensor& bias_E,
              const at::Tensor& chosen_Nk, const SharedSequences& sequences, const at::Tensor& forced_Nk) {
  Choosing choosing{bias_E, chosen_Nk, forced_Nk, {.of_all = style.capacity_factor > 0}};
  const variable_list out =
      RouteFunction::apply(x_BTD, weight_ED.value(), &weight_ED, static_cast<int64_t>(style.kind), style.top_k,
                           style.normalize_weights, style.with_losses, style.capacity_factor, &choosing, &sequences);
  return {out[0], out[1], style.with_losses ? out[2] : at::Tensor(), std::move(choosing.close.close_N)};
}

}  // namespace herd::nn
