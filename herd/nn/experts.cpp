#include "herd/nn/experts.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <array>
#include <optional>

#include "herd/nn/deferred_gradients.h"
#include "herd/nn/expert_rows_internal.h"
#include "herd/nn/half_products_internal.h"
#include "herd/nn/linear.h"

namespace herd::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Calls work(expert, first row, rows) for at most kExpertRows rows of one expert at a time, in order; once with no rows
// for an expert that has none.
template <typename Work>
void for_each_piece(const at::Tensor& begins, const Work& work) {
  const int64_t* begin = begins.const_data_ptr<int64_t>();
  for (int64_t e = 0; e + 1 < begins.numel(); ++e) {
    int64_t row = begin[e];
    do {
      const int64_t count = std::min(kExpertRows, begin[e + 1] - row);
      work(e, row, count);
      row += count;
    } while (row < begin[e + 1]);
  }
}

// out = x w, where fp16 is multiplied in fp32.
void multiply(const at::Tensor& out, const at::Tensor& x, const at::Tensor& w) {
  at::Tensor y = out;
  if (multiplies_in_fp32(x))
    y.copy_(at::mm(exact(x), exact(w)));
  else
    at::mm_out(y, x, w);
}

void add_multiplied(const at::Tensor& out, const at::Tensor& x, const at::Tensor& w) {
  at::Tensor y = out;
  if (multiplies_in_fp32(x))
    y.add_(at::mm(exact(x), exact(w)));
  else
    y.addmm_(x, w);
}

// Makes the gradients of the matrices of all experts, and leaves out those that are frozen.
class MatrixGradients {
 public:
  explicit MatrixGradients(const std::array<Parameter*, 3>& parameters) {
    for (size_t i = 0; i < parameters.size(); ++i) {
      if (parameters[i]->frozen()) continue;
      matrices_[i] = {parameters[i]->gradient(), parameters[i]->take_beta() == 0.0};
    }
  }

  // Adds dy^T x of rows of an expert to matrix `which` of it; `is_first` says whether they are its first ones.
  void add(size_t which, int64_t expert, bool is_first, const at::Tensor& dy, const at::Tensor& x) const {
    const auto& [gradient, overwrites] = matrices_[which];
    if (!gradient.defined()) return;
    const at::Tensor matrix = gradient.select(0, expert);
    if (dy.size(0) > 0)
      add_product(matrix, overwrites && is_first, dy, x);
    else if (overwrites)
      matrix.zero_();
  }

 private:
  struct Matrix {
    at::Tensor gradient;  // undefined where it is frozen
    bool overwrites = false;
  };
  std::array<Matrix, 3> matrices_;
};

enum Which : size_t { kGate, kUp, kDown };

struct ExpertsFunction : torch::autograd::Function<ExpertsFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weights_Nk,
                            const at::Tensor& experts_Nk, const at::Tensor& gate, const at::Tensor& up,
                            const at::Tensor& down, const ExpertParameters* parameters, bool keeps_graph) {
    const int64_t E = gate.size(0), F = gate.size(1), D = gate.size(2);
    const at::Tensor x_ND = x.reshape({-1, D});
    const RowOrder order = order_rows(experts_Nk, E).on(x.device());
    const int64_t P = order.tokens_P.numel();
    const int64_t kept_rows = keeps_graph ? P : std::min(kExpertRows, experts_Nk.size(0));
    const at::Tensor gates = at::empty({kept_rows, F}, x.options()), ups = at::empty_like(gates);
    const at::Tensor out_PD = at::empty({P, D}, x.options());
    for_each_piece(order.begins, [&](int64_t e, int64_t first, int64_t count) {
      if (count == 0) return;
      const at::Tensor rows = x_ND.index_select(0, order.tokens_P.narrow(0, first, count));
      const at::Tensor g = gates.narrow(0, keeps_graph ? first : 0, count);
      const at::Tensor u = ups.narrow(0, keeps_graph ? first : 0, count);
      multiply(g, rows, gate.select(0, e).t());
      multiply(u, rows, up.select(0, e).t());
      multiply(out_PD.narrow(0, first, count), at::silu(g).mul_(u), down.select(0, e).t());
    });
    if (keeps_graph) {
      context->save_for_backward(
          {x_ND, weights_Nk, order.tokens_P, order.rows_Nk, order.begins, gates, ups, gate, up, down});
      for (const auto& [name, parameter] :
           {std::pair("gate", &parameters->gate), {"up", &parameters->up}, {"down", &parameters->down}})
        context->saved_data[name] = reinterpret_cast<int64_t>(parameter);
    }
    return sum_of_tokens(out_PD, order.rows_Nk, weights_Nk).view(x.sizes());
  }

  // The gradients of gate's and up's outputs take the place of these. What down reads is made again, times the weights
  // of its rows, so that dy itself is the gradient of its output.
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor x_ND = saved[0].detach(), &weights_Nk = saved[1], &tokens_P = saved[2], &rows_Nk = saved[3];
    const at::Tensor &begins = saved[4], &gates = saved[5], &ups = saved[6];
    const at::Tensor &gate = saved[7], &up = saved[8], &down = saved[9];
    const at::Tensor dy_ND = gradients[0].reshape({-1, down.size(1)}).contiguous();
    const std::array<Parameter*, 3> parameters = {parameter_of(context, "gate"), parameter_of(context, "up"),
                                                  parameter_of(context, "down")};
    const int64_t P = tokens_P.numel(), F = gates.size(1), D = x_ND.size(1);
    DeferredGradients* later = DeferredGradients::current();
    const std::optional<MatrixGradients> matrices =
        later == nullptr ? std::optional<MatrixGradients>(parameters) : std::nullopt;
    const at::Tensor weights_P = by_rows(weights_Nk, rows_Nk, tokens_P.numel());
    const at::Tensor dweights_P = at::empty_like(weights_P);
    const at::Tensor dx_PD = context->needs_input_grad(0) ? at::empty({P, D}, x_ND.options()) : at::Tensor();
    const at::Tensor activated_PF = later == nullptr ? at::Tensor() : at::empty({P, F}, x_ND.options());
    for_each_piece(begins, [&](int64_t e, int64_t first, int64_t count) {
      const bool is_first = first == begins.const_data_ptr<int64_t>()[e];
      if (count == 0) {
        for (const size_t which : {kGate, kUp, kDown})
          if (matrices) matrices->add(which, e, true, gates.narrow(0, 0, 0), gates.narrow(0, 0, 0));
        return;
      }
      const at::Tensor tokens = tokens_P.narrow(0, first, count), w = weights_P.narrow(0, first, count).unsqueeze(1);
      const at::Tensor g = gates.narrow(0, first, count), u = ups.narrow(0, first, count);
      at::Tensor dy = dy_ND.index_select(0, tokens);
      {
        at::Tensor activated = later == nullptr ? at::empty_like(g) : activated_PF.narrow(0, first, count);
        backward_of_gate(g, u, dy, down.select(0, e), w, activated, dweights_P.narrow(0, first, count));
        if (matrices) matrices->add(kDown, e, is_first, dy, activated);
      }
      dy.reset();
      if (matrices) {
        const at::Tensor x = x_ND.index_select(0, tokens);
        matrices->add(kGate, e, is_first, g, x);
        matrices->add(kUp, e, is_first, u, x);
      }
      if (!dx_PD.defined()) return;
      multiply(dx_PD.narrow(0, first, count), g, gate.select(0, e));
      add_multiplied(dx_PD.narrow(0, first, count), u, up.select(0, e));
    });
    if (later != nullptr)
      later->add([=] { add_deferred(parameters, x_ND, dy_ND, tokens_P, begins, gates, ups, activated_PF); });
    at::Tensor dx, dweights;
    if (context->needs_input_grad(1)) dweights = by_choices(dweights_P, rows_Nk);
    if (dx_PD.defined()) dx = sum_of_tokens(dx_PD, rows_Nk, {}).view(gradients[0].sizes());
    return {dx, dweights, {}, {}, {}, {}, {}, {}};
  }

 private:
  static Parameter* parameter_of(AutogradContext* context, const char* name) {
    return reinterpret_cast<Parameter*>(context->saved_data[name].toInt());
  }

  // For rows of one expert: g and u, the outputs of gate and up, become their own gradients; `activated` becomes what
  // down reads, times w; dw becomes the gradient of the rows' weights w.
  static void backward_of_gate(const at::Tensor& g, const at::Tensor& u, const at::Tensor& dy, const at::Tensor& down,
                               const at::Tensor& w, at::Tensor& activated, const at::Tensor& dw) {
    const at::Tensor w_in_type = w.to(g.scalar_type());
    const at::Tensor da = at::empty_like(g);  // of what down reads
    multiply(da, dy, down);
    const at::Tensor silu = at::silu(g);
    at::mul_out(activated, silu, u);
    dw.copy_((activated * da).sum(1, false, at::kFloat));
    activated.mul_(w_in_type);
    da.mul_(w_in_type);
    silu.mul_(da);  // the gradient of up's output
    da.mul_(u);     // the gradient of the gate's silu
    u.copy_(silu);
    g.copy_(at::silu_backward(da, g));
  }

  static void add_deferred(const std::array<Parameter*, 3>& parameters, const at::Tensor& x_ND, const at::Tensor& dy_ND,
                           const at::Tensor& tokens_P, const at::Tensor& begins, const at::Tensor& dgates_PF,
                           const at::Tensor& dups_PF, const at::Tensor& activated_PF) {
    const MatrixGradients matrices(parameters);
    for_each_piece(begins, [&](int64_t e, int64_t first, int64_t count) {
      const bool is_first = first == begins.const_data_ptr<int64_t>()[e];
      const at::Tensor tokens = tokens_P.narrow(0, first, count);
      matrices.add(kDown, e, is_first, dy_ND.index_select(0, tokens), activated_PF.narrow(0, first, count));
      const at::Tensor x = x_ND.index_select(0, tokens);
      matrices.add(kGate, e, is_first, dgates_PF.narrow(0, first, count), x);
      matrices.add(kUp, e, is_first, dups_PF.narrow(0, first, count), x);
    });
  }
};

}  // namespace

ExpertParameters find_experts(const GroupList& groups, const std::string& prefix) {
  return {find(groups, prefix + "experts.gate.weight"), find(groups, prefix + "experts.up.weight"),
          find(groups, prefix + "experts.down.weight")};
}

at::Tensor experts(const at::Tensor& x, const Routing& routing, const ExpertParameters& parameters) {
  return ExpertsFunction::apply(x, routing.weights_Nk, routing.experts_Nk, parameters.gate.value(),
                                parameters.up.value(), parameters.down.value(), &parameters,
                                at::GradMode::is_enabled());
}

}  // namespace herd::nn
