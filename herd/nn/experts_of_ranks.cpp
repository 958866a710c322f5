#include "herd/nn/experts_of_ranks.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "herd/comm/communicator.h"
#include "herd/nn/expert_rows_internal.h"
#include "herd/nn/row_transfer_internal.h"
#include "herd/topology/topology_text.h"

namespace herd::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

using TransferPtr = std::shared_ptr<const RowTransfer>;

// Keeps a transfer from forward to backward.
struct SavedTransfer final : torch::CustomClassHolder {
  explicit SavedTransfer(TransferPtr of_rows) : transfer(std::move(of_rows)) {}
  const TransferPtr transfer;
};

void save(AutogradContext* context, const TransferPtr& transfer) {
  context->saved_data["transfer"] = c10::IValue::make_capsule(c10::make_intrusive<SavedTransfer>(transfer));
}
TransferPtr saved_transfer(AutogradContext* context) {
  return c10::static_intrusive_pointer_cast<SavedTransfer>(context->saved_data["transfer"].toCapsule())->transfer;
}

struct DispatchFunction : torch::autograd::Function<DispatchFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x_ND, const RowOrder& order,
                            const TransferPtr& transfer) {
    context->save_for_backward({order.rows_Nk});
    save(context, transfer);
    return transfer->dispatch(x_ND.index_select(0, order.tokens_P), x_ND, {}, "dispatch of rows");
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const at::Tensor drows = saved_transfer(context)->bring_back(gradients[0], "gradients of rows");
    return {sum_of_tokens(drows, context->get_saved_variables()[0], {}), at::Tensor(), at::Tensor()};
  }
};

struct CombineFunction : torch::autograd::Function<CombineFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& outputs, const at::Tensor& weights_Nk,
                            const RowOrder& order, const TransferPtr& transfer) {
    const at::Tensor rows_PD = transfer->bring_back(outputs, "outputs of experts");
    context->save_for_backward({rows_PD, weights_Nk, order.rows_Nk});
    save(context, transfer);
    return sum_of_tokens(rows_PD, order.rows_Nk, weights_Nk);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor dy = gradients[0].contiguous();
    auto [drows, dweights] = gradients_of_sum(dy, saved[0], saved[1], saved[2]);
    if (context->needs_input_grad(0))
      drows = saved_transfer(context)->dispatch(drows, dy, by_rows(saved[1], saved[2], drows.size(0)),
                                                "gradients of experts' outputs");
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

}  // namespace

at::Tensor experts_of_ranks(const at::Tensor& x, const Routing& routing, const ExpertParameters& own, int64_t experts,
                            comm::Communicator& ranks, std::span<const int> hosts_P,
                            std::shared_ptr<const RowTransfer>* kept) {
  const at::Tensor x_ND = x.reshape({-1, x.size(-1)});
  const RowOrder order = order_rows(routing.experts_Nk, experts);
  // A token of one expert goes nowhere twice, nor does any where each host has one expert.
  const bool sends_once =
      routing.experts_Nk.size(1) > 1 && experts > std::ssize(std::set<int>(hosts_P.begin(), hosts_P.end()));
  TransferPtr transfer = kept != nullptr ? *kept : nullptr;
  if (transfer == nullptr)
    transfer = std::make_shared<RowTransfer>(order, sends_once ? hosts_P : std::span<const int>(), ranks);
  if (kept != nullptr) *kept = transfer;
  const at::Tensor rows = DispatchFunction::apply(x_ND, order, transfer);
  const Routing to_own = {at::ones({rows.size(0), 1}, routing.weights_Nk.options()),
                          at::empty({rows.size(0), 1}, routing.experts_Nk.options()),
                          {}};
  std::ranges::copy(transfer->experts(), to_own.experts_Nk.mutable_data_ptr<int64_t>());
  const at::Tensor outputs = nn::experts(rows, to_own, own);
  return CombineFunction::apply(outputs, routing.weights_Nk, order, transfer).view(x.sizes());
}

std::vector<int> hosts_of_ranks(const comm::Communicator& ranks) {
  std::vector<int> hosts = parse_topology(ranks.topology()).host_of_ranks();
  std::map<int, int> numbers;  // a group may have ranks of some hosts of its topology alone
  for (int& host : hosts) host = numbers.emplace(host, static_cast<int>(numbers.size())).first->second;
  if (numbers.size() == 1) hosts.clear();
  return hosts;
}

}  // namespace herd::nn
