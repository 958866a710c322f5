// Moves rows of tokens between ranks that hold parts of the experts: to the ranks of their experts, and back, as
// expert_exchange.h says. It keeps the counts of one routing.
//   P ranks, E experts, N tokens of this rank, width D; rows of this rank are those of a RowOrder.
// Where ranks are on several hosts, dispatch() sends a token once to each other host that has experts of it, and with
// it the weights of its rows; of a row that stays inside the host, and of outputs that come back, it sends each.
// Threads: one at a time. All functions but experts() are collective over the ranks.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "herd/nn/expert_exchange.h"
#include "herd/nn/expert_rows_internal.h"
#include "herd/nn/host_steps.h"
#include "herd/nn/row_steps.h"

namespace herd::comm {
class Communicator;
}

namespace herd::nn {

class RowTransfer {
 public:
  // Tells all ranks how many rows each has for each expert: (P-1) * 8E bytes. `hosts_P` has the host of each rank;
  // empty = each row goes to its rank straight. Then they also tell each other how many tokens each has for a host, and
  // relays learn the token of each row, of 4 bytes.
  RowTransfer(const RowOrder& order, std::span<const int> hosts_P, comm::Communicator& ranks);

  // Returns which of this rank's experts each row that comes is for, in their order.
  const std::vector<int64_t>& experts() const { return exchange_.experts; }
  int64_t sent_bytes() const { return sent_bytes_; }  // by this rank so far, to other ranks
  // Sends rows_PD of this rank, and returns those that come. Each row must be its token's among values_ND, times the
  // row's weight in fp32 where weights_P is defined. Without values_ND all rows of a token are equal.
  at::Tensor dispatch(const at::Tensor& rows_PD, const at::Tensor& values_ND, const at::Tensor& weights_P,
                      std::string_view name) const;
  at::Tensor bring_back(const at::Tensor& rows_PD, std::string_view name) const;

 private:
  class Dispatch;  // one that is under way between hosts
  void tell_relays(const std::vector<std::vector<int32_t>>& indices_of_hosts);
  at::Tensor move(const at::Tensor& rows_PD, const std::vector<int64_t>& to, const std::vector<int64_t>& from,
                  std::string_view name) const;

  void count_sent(const at::Tensor& sent) const { sent_bytes_ += static_cast<int64_t>(sent.nbytes()); }

  comm::Communicator* ranks_;
  mutable int64_t sent_bytes_ = 0;
  const std::vector<RowStep> steps_;  // of every exchange
  ExpertExchange exchange_;
  HostExchange hosts_;                // empty where each row goes straight
  std::vector<HostStep> host_steps_;  // of dispatch() between hosts
  // By hosts_.sent: its tokens, ascending, and of each a row that goes there.
  std::vector<std::vector<int64_t>> sent_tokens_, sent_rows_;
  std::vector<std::vector<int32_t>> relayed_indices_;  // by hosts_.relayed: of each of its rows, by rank
};

}  // namespace herd::nn
