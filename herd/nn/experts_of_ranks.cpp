#include "herd/nn/experts_of_ranks.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "herd/base/check.h"
#include "herd/comm/communicator.h"
#include "herd/nn/expert_rows_internal.h"
#include "herd/nn/row_transfer_internal.h"
#include "herd/topology/topology_text.h"

namespace herd::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Makes a row of each token and expert, in the order of experts.
struct RowsOfTokens : torch::autograd::Function<RowsOfTokens> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x_ND, const RowOrder& order) {
    context->save_for_backward({order.rows_Nk});
    return x_ND.index_select(0, order.tokens_P);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    return {sum_of_tokens(gradients[0].contiguous(), context->get_saved_variables()[0], {}), at::Tensor()};
  }
};

struct CombineFunction : torch::autograd::Function<CombineFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& outputs_PD, const at::Tensor& weights_Nk,
                            const RowOrder& order) {
    context->save_for_backward({outputs_PD, weights_Nk, order.rows_Nk, order.tokens_P});
    return sum_of_tokens(outputs_PD, order.rows_Nk, weights_Nk);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor dy_ND = gradients[0].contiguous();
    auto [drows, dweights] = dy_ND.is_cpu() ? gradients_of_sum(dy_ND, saved[0], saved[1], saved[2])
                                            : gradients_on_device(dy_ND, saved[0], saved[1], saved[2], saved[3]);
    return {drows, dweights, at::Tensor()};
  }

 private:
  // By operators of torch, which every device has.
  static std::pair<at::Tensor, at::Tensor> gradients_on_device(const at::Tensor& dy_ND, const at::Tensor& rows_PD,
                                                               const at::Tensor& weights_Nk, const at::Tensor& rows_Nk,
                                                               const at::Tensor& tokens_P) {
    const at::Tensor dy_PD = dy_ND.index_select(0, tokens_P).to(at::kFloat);
    const at::Tensor dweights_P = (rows_PD * dy_PD).sum(1);
    const at::Tensor weights_P = by_rows(weights_Nk, rows_Nk, tokens_P.numel());
    return {dy_PD.mul(weights_P.unsqueeze(1)).to(rows_PD.scalar_type()), by_choices(dweights_P, rows_Nk)};
  }

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

const KeptRouting& routing_of(const Context& context) {
  HERD_CHECK(context.routing != nullptr && context.routing->order != nullptr, "rows that no router has chosen");
  return *context.routing;
}

const RowTransfer& transfer_of(const KeptRouting& routing) {
  HERD_CHECK(routing.transfer != nullptr, "counts of rows that no rank has told");
  return *routing.transfer;
}

}  // namespace

RouteRows::RouteRows(std::string name, GroupList of_layer, const std::string& prefix, const MixtureShape& shape)
    : Block(std::move(name), std::move(of_layer)), router_(groups(), prefix, shape) {}

Tuple RouteRows::forward(const Tuple& n_SD, const Context& context) {
  HERD_CHECK(context.routing != nullptr, "a pass that keeps what it chooses");
  const at::Tensor& n = n_SD.at(0);
  KeptRouting& kept = *context.routing;
  const Routing routing = router_.route(n, context, kept);
  if (kept.order == nullptr) {
    kept.order = std::make_shared<RowOrder>(order_rows(kept.experts_Nk, router_.shape().experts).on(n.device()));
    kept.weights_P = by_rows(routing.weights_Nk.detach(), kept.order->rows_Nk, kept.order->tokens_P.numel());
  }
  std::vector<int64_t> sizes = n.sizes().vec();
  sizes.back() = routing.weights_Nk.size(1);
  Tuple out = {RowsOfTokens::apply(n.reshape({-1, n.size(-1)}), *kept.order), routing.weights_Nk.view(sizes)};
  if (router_.has_shared()) out.push_back(router_.shared(n));
  if (routing.losses_B2.defined()) out.push_back(summed_losses(n_SD, routing.losses_B2));
  return out;
}

OwnExperts::OwnExperts(std::string name, GroupList of_layer, const std::string& prefix)
    : Block(std::move(name), std::move(of_layer)), experts_(find_experts(groups(), prefix)) {}

Tuple OwnExperts::forward(const Tuple& rows_QD, const Context& context) {
  const std::vector<int64_t>& of_rows = transfer_of(routing_of(context)).experts();
  const auto count = static_cast<int64_t>(of_rows.size());
  const at::Tensor ones = at::ones({count, 1}, rows_QD.at(0).options().dtype(at::kFloat));
  const Routing to_own = {ones, at::empty({count, 1}, at::kLong), {}};
  std::ranges::copy(of_rows, to_own.experts_Nk.mutable_data_ptr<int64_t>());
  return {experts(rows_QD.at(0), to_own, experts_)};
}

CombineRows::CombineRows(std::string name, GroupList of_layer) : Block(std::move(name), std::move(of_layer)) {}

Tuple CombineRows::forward(const Tuple& outputs_PD, const Context& context) {
  const at::Tensor &outputs = outputs_PD.at(0), &weights = outputs_PD.at(1);
  std::vector<int64_t> sizes = weights.sizes().vec();
  sizes.back() = outputs.size(1);
  const at::Tensor y =
      CombineFunction::apply(outputs, weights.reshape({-1, weights.size(-1)}), *routing_of(context).order).view(sizes);
  return {outputs_PD.size() > 2 ? y + outputs_PD[2] : y};
}

void tell_counts(KeptRouting& routing, std::span<const int> hosts_P, comm::Communicator& ranks) {
  HERD_CHECK(routing.order != nullptr, "rows that no router has chosen");
  const int64_t experts = routing.order->begins.numel() - 1;
  // A token of one expert goes nowhere twice, nor does any where each host has one expert.
  const bool sends_once =
      routing.experts_Nk.size(1) > 1 && experts > std::ssize(std::set<int>(hosts_P.begin(), hosts_P.end()));
  routing.transfer =
      std::make_shared<RowTransfer>(*routing.order, sends_once ? hosts_P : std::span<const int>(), ranks);
}

at::Tensor give_rows(const KeptRouting& routing, const at::Tensor& rows_PD, const at::Tensor& of_tokens_ND) {
  if (of_tokens_ND.defined())
    return transfer_of(routing).dispatch(rows_PD, of_tokens_ND, routing.weights_P, "gradients of experts' outputs");
  return transfer_of(routing).dispatch(rows_PD, {}, {}, "rows of tokens");
}

at::Tensor bring_back_rows(const KeptRouting& routing, const at::Tensor& rows_QD) {
  return transfer_of(routing).bring_back(rows_QD, "rows of experts");
}

int64_t sent_bytes(const KeptRouting& routing) { return transfer_of(routing).sent_bytes(); }

std::vector<int> hosts_of_ranks(const comm::Communicator& ranks) {
  std::vector<int> hosts = parse_topology(ranks.topology()).host_of_ranks();
  std::map<int, int> numbers;  // a group may have ranks of some hosts of its topology alone
  for (int& host : hosts) host = numbers.emplace(host, static_cast<int>(numbers.size())).first->second;
  if (numbers.size() == 1) hosts.clear();
  return hosts;
}

}  // namespace herd::nn
