#include "herd/nn/router.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <vector>

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

// Spreads a number of each sequence over its rows: (B, n) -> (N, n).
at::Tensor of_rows(const at::Tensor& per_sequence, int64_t rows) {
  const int64_t B = per_sequence.size(0), n = per_sequence.size(1);
  return per_sequence.unsqueeze(1).expand({B, B == 0 ? 0 : rows / B, n}).reshape({-1, n});
}

// The weight is an input so that backward reaches this node; its gradient is written to the parameter.
struct RouteFunction : torch::autograd::Function<RouteFunction> {
  static variable_list forward(AutogradContext* context, const at::Tensor& x_BTD, const at::Tensor& weight,
                               Parameter* parameter, int64_t kind_number, int64_t top_k, bool normalizes,
                               bool with_losses, double capacity_factor, const at::Tensor* bias,
                               const at::Tensor* chosen) {
    const auto kind = static_cast<RouterKind>(kind_number);
    const int64_t B = x_BTD.size(0), T = x_BTD.size(1), E = weight.size(0);
    const at::Tensor x = x_BTD.reshape({-1, x_BTD.size(-1)});
    const at::Tensor logits = at::mm(x.to(at::kFloat), weight.to(at::kFloat).t());
    at::Tensor experts, weights, losses;
    {
      const at::Tensor scores = scores_of(kind, logits);
      experts =
          chosen->defined() ? undropped(*chosen) : largest_of_rows(bias->defined() ? scores : logits, top_k, *bias);
      weights = scores.gather(1, experts);
      if (normalizes) weights.div_(weights.sum(1, true));
      if (with_losses) {
        const at::Tensor shares = count_choices(experts, B, E).mul_(balance_factor(experts, B, E));
        const at::Tensor parts = kind == RouterKind::kSoftmax ? scores : scores / scores.sum(1, true);
        const at::Tensor z = logits.logsumexp(1).square_();
        losses = at::stack({(parts.view({B, T, E}).sum(1) * shares).sum(1), z.view({B, T}).sum(1)}, 1);
      }
    }
    if (chosen->defined())
      experts = chosen->detach();
    else if (capacity_factor > 0)
      drop_beyond(capacity(capacity_factor, top_k, T, E), experts, B, E);
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
    const at::Tensor chosen = context->saved_data["drops"].toBool() ? undropped(experts) : experts;
    at::Tensor dscores = at::zeros_like(scores);
    if (gradients[0].defined()) {
      const bool normalizes = context->saved_data["normalizes"].toBool();
      dscores.scatter_(1, chosen, chosen_gradient(gradients[0], saved[4], scores, chosen, normalizes));
    }
    const bool has_losses = gradients.size() > 2 && gradients[2].defined();
    if (has_losses) add_balance_gradient(dscores, gradients[2].narrow(1, 0, 1), kind, scores, experts, sizes[0]);
    at::Tensor dlogits = logits_gradient(kind, scores, dscores);
    if (has_losses) add_z_gradient(dlogits, gradients[2].narrow(1, 1, 1), logits);
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
  // Returns the experts that were chosen, dropped or not.
  static at::Tensor undropped(const at::Tensor& experts_Nk) { return at::max(experts_Nk, experts_Nk.bitwise_not()); }

  static int64_t capacity(double factor, int64_t top_k, int64_t T, int64_t E) {
    return static_cast<int64_t>(std::ceil(factor * static_cast<double>(top_k * T) / static_cast<double>(E)));
  }

  // Returns what makes of an expert's choices its share of them, times the number of experts.
  static double balance_factor(const at::Tensor& experts, int64_t B, int64_t E) {
    const int64_t choices = B == 0 ? 0 : experts.numel() / B;
    return choices == 0 ? 0 : static_cast<double>(E) / static_cast<double>(choices);
  }

  // Returns the gradient of the chosen scores (N, k) from that of the weights.
  static at::Tensor chosen_gradient(const at::Tensor& dweights, const at::Tensor& weights, const at::Tensor& scores,
                                    const at::Tensor& experts, bool normalizes) {
    if (!normalizes) return dweights;
    return (dweights - (dweights * weights).sum(1, true)) / scores.gather(1, experts).sum(1, true);
  }

  static void add_balance_gradient(const at::Tensor& dscores, const at::Tensor& dloss_B1, RouterKind kind,
                                   const at::Tensor& scores, const at::Tensor& experts, int64_t B) {
    const int64_t E = scores.size(1);
    const at::Tensor shares = count_choices(experts, B, E).mul_(balance_factor(experts, B, E)).mul_(dloss_B1);
    at::Tensor dparts = of_rows(shares, scores.size(0));
    if (kind == RouterKind::kSigmoid) {
      const at::Tensor sum = scores.sum(1, true);
      dparts = (dparts - (dparts * scores).sum(1, true) / sum) / sum;
    }
    dscores.add_(dparts);
  }

  static void add_z_gradient(const at::Tensor& dlogits, const at::Tensor& dloss_B1, const at::Tensor& logits) {
    const at::Tensor z = logits.logsumexp(1, true).mul_(of_rows(dloss_B1, logits.size(0))).mul_(2);
    dlogits.add_(logits.softmax(1).mul_(z));
  }
};

}  // namespace

at::Tensor largest_of_rows(const at::Tensor& scores_NE, int64_t k, const at::Tensor& bias_E) {
  const int64_t N = scores_NE.size(0), E = scores_NE.size(1);
  const at::Tensor out = at::empty({N, k}, scores_NE.options().dtype(at::kLong));
  const float* scores = scores_NE.const_data_ptr<float>();
  const float* bias = bias_E.defined() ? bias_E.const_data_ptr<float>() : nullptr;
  int64_t* chosen = out.mutable_data_ptr<int64_t>();
  at::parallel_for(0, N, kRowsOfThread, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      const float* row = scores + n * E;
      const auto score = [&](int64_t e) { return bias == nullptr ? row[e] : row[e] + bias[e]; };
      int64_t* taken = chosen + n * k;
      for (int64_t j = 0; j < k; ++j) {
        int64_t best = -1;
        for (int64_t e = 0; e < E; ++e) {
          if (std::find(taken, taken + j, e) != taken + j) continue;
          if (best < 0 || score(e) > score(best)) best = e;  // also takes NaN, whose loss stops the run
        }
        taken[j] = best;
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
              const at::Tensor& chosen_Nk) {
  const variable_list out =
      RouteFunction::apply(x_BTD, weight_ED.value(), &weight_ED, static_cast<int64_t>(style.kind), style.top_k,
                           style.normalize_weights, style.with_losses, style.capacity_factor, &bias_E, &chosen_Nk);
  return {out[0], out[1], style.with_losses ? out[2] : at::Tensor()};
}

}  // namespace herd::nn
