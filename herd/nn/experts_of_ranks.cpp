#include "herd/nn/experts_of_ranks.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "herd/bridge/tensor_buffer.h"
#include "herd/comm/communicator.h"
#include "herd/nn/expert_exchange.h"
#include "herd/nn/expert_rows_internal.h"

namespace herd::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Moves rows between the ranks: to the ranks of their experts, and back.
struct RowTransfer {
  Communicator* ranks = nullptr;
  std::vector<int64_t> sent, received;  // as ExpertExchange has them

  at::Tensor dispatch(const at::Tensor& rows, std::string_view name) const { return move(rows, sent, received, name); }
  at::Tensor bring_back(const at::Tensor& rows, std::string_view name) const {
    return move(rows, received, sent, name);
  }

  void save(AutogradContext* context) const {
    context->saved_data["ranks"] = reinterpret_cast<int64_t>(ranks);
    context->saved_data["sent"] = sent;
    context->saved_data["received"] = received;
  }
  static RowTransfer restored(AutogradContext* context) {
    return {reinterpret_cast<Communicator*>(context->saved_data["ranks"].toInt()),
            context->saved_data["sent"].toIntVector(), context->saved_data["received"].toIntVector()};
  }

 private:
  // Rows for a rank lie together, in the order of ranks, and so do those from a rank.
  at::Tensor move(const at::Tensor& rows_PD, const std::vector<int64_t>& to, const std::vector<int64_t>& from,
                  std::string_view name) const {
    const int P = ranks->size(), self = ranks->rank();
    const auto begins = [](const std::vector<int64_t>& counts) {
      std::vector<int64_t> out = {0};
      for (const int64_t count : counts) out.push_back(out.back() + count);
      return out;
    };
    const std::vector<int64_t> to_begins = begins(to), from_begins = begins(from);
    const at::Tensor rows = rows_PD.contiguous(), out = at::empty({from_begins.back(), rows.size(1)}, rows.options());
    const auto part_to = [&](size_t rank) { return rows.narrow(0, to_begins[rank], to[rank]); };
    const auto part_from = [&](size_t rank) { return out.narrow(0, from_begins[rank], from[rank]); };
    std::vector<Work> works;
    for (int distance = 1; distance < P; ++distance) {
      const int target = (self + distance) % P, source = (self + P - distance) % P;
      const auto t = static_cast<size_t>(target), s = static_cast<size_t>(source);
      const at::Tensor incoming = part_from(s), outgoing = part_to(t);
      if (from[s] > 0) works.push_back(ranks->receive_async(incoming, source, 0, {.name = name}));
      if (to[t] > 0) works.push_back(ranks->send_async(outgoing, target, 0, {.name = name}));
    }
    part_from(static_cast<size_t>(self)).copy_(part_to(static_cast<size_t>(self)));
    for (Work& work : works) work.wait();
    return out;
  }
};

struct DispatchFunction : torch::autograd::Function<DispatchFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x_ND, const RowOrder& order,
                            const RowTransfer& transfer) {
    context->save_for_backward({order.rows_Nk});
    transfer.save(context);
    return transfer.dispatch(x_ND.index_select(0, order.tokens_P), "dispatch of rows");
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const at::Tensor drows = RowTransfer::restored(context).bring_back(gradients[0], "gradients of rows");
    return {sum_of_tokens(drows, context->get_saved_variables()[0], {}), at::Tensor(), at::Tensor()};
  }
};

struct CombineFunction : torch::autograd::Function<CombineFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& outputs, const at::Tensor& weights_Nk,
                            const RowOrder& order, const RowTransfer& transfer) {
    const at::Tensor rows_PD = transfer.bring_back(outputs, "outputs of experts");
    context->save_for_backward({rows_PD, weights_Nk, order.rows_Nk});
    transfer.save(context);
    return sum_of_tokens(rows_PD, order.rows_Nk, weights_Nk);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    auto [drows, dweights] = gradients_of_sum(gradients[0].contiguous(), saved[0], saved[1], saved[2]);
    if (context->needs_input_grad(0))
      drows = RowTransfer::restored(context).dispatch(drows, "gradients of experts' outputs");
    return {drows, dweights, at::Tensor(), at::Tensor()};
  }

 private:
  // Returns the gradients of the rows, w dy, and of their weights, the sum of row * dy in fp32.
  static std::pair<at::Tensor, at::Tensor> gradients_of_sum(const at::Tensor& dy_ND, const at::Tensor& rows_PD,
                                                            const at::Tensor& weights_Nk, const at::Tensor& rows_Nk) {
    const at::Tensor drows_PD = at::empty_like(rows_PD), dweights_Nk = at::empty_like(weights_Nk);
    const int64_t N = rows_Nk.size(0), k = rows_Nk.size(1), D = rows_PD.size(1);
    const int64_t* order = rows_Nk.const_data_ptr<int64_t>();
    const float* weights = weights_Nk.const_data_ptr<float>();
    float* dweights = dweights_Nk.mutable_data_ptr<float>();
    AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, rows_PD.scalar_type(), "gradients_of_sum", [&] {
      const scalar_t *dy = dy_ND.const_data_ptr<scalar_t>(), *rows = rows_PD.const_data_ptr<scalar_t>();
      scalar_t* drows = drows_PD.mutable_data_ptr<scalar_t>();
      at::parallel_for(0, N, kTokensOfThread, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin * k; i < end * k; ++i) {
          dweights[i] = 0;
          if (order[i] < 0) continue;
          const scalar_t *own = dy + i / k * D, *row = rows + order[i] * D;
          scalar_t* drow = drows + order[i] * D;
          float sum = 0;
          for (int64_t d = 0; d < D; ++d) {
            sum += static_cast<float>(row[d]) * static_cast<float>(own[d]);
            drow[d] = static_cast<scalar_t>(weights[i] * static_cast<float>(own[d]));
          }
          dweights[i] = sum;
        }
      });
    });
    return {drows_PD, dweights_Nk};
  }
};

// Returns how many rows each rank has for each expert.
std::vector<int64_t> counts_of_ranks(const RowOrder& order, Communicator& ranks) {
  const int64_t* begins = order.begins.const_data_ptr<int64_t>();
  std::vector<int64_t> own(static_cast<size_t>(order.begins.numel()) - 1);
  for (size_t e = 0; e < own.size(); ++e) own[e] = begins[e + 1] - begins[e];
  std::vector<int64_t> all(own.size() * static_cast<size_t>(ranks.size()));
  ranks.all_gather(own, all, {.name = "rows of experts"});
  return all;
}

}  // namespace

at::Tensor experts_of_ranks(const at::Tensor& x, const Routing& routing, const ExpertParameters& own, int64_t experts,
                            comm::Communicator& ranks) {
  const at::Tensor x_ND = x.reshape({-1, x.size(-1)});
  const RowOrder order = order_rows(routing.experts_Nk, experts);
  ExpertExchange exchange = expert_exchange(counts_of_ranks(order, ranks), ranks.size(), ranks.rank());
  const RowTransfer transfer{&ranks, std::move(exchange.sent), std::move(exchange.received)};
  const at::Tensor rows = DispatchFunction::apply(x_ND, order, transfer);
  const Routing to_own = {at::ones({rows.size(0), 1}, routing.weights_Nk.options()),
                          at::empty({rows.size(0), 1}, routing.experts_Nk.options()),
                          {}};
  std::copy(exchange.experts.begin(), exchange.experts.end(), to_own.experts_Nk.mutable_data_ptr<int64_t>());
  const at::Tensor outputs = nn::experts(rows, to_own, own);
  return CombineFunction::apply(outputs, routing.weights_Nk, order, transfer).view(x.sizes());
}

}  // namespace herd::nn
