#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <numeric>

#include "herd/bridge/tensor_buffer.h"
#include "herd/comm/communicator.h"
#include "herd/nn/row_transfer_internal.h"

namespace herd::nn {
namespace {

// Returns where each part begins, and the end of the last.
std::vector<int64_t> begins_of(const std::vector<int64_t>& counts) {
  std::vector<int64_t> out = {0};
  for (const int64_t count : counts) out.push_back(out.back() + count);
  return out;
}

template <typename T>
at::Tensor as_tensor(const std::vector<T>& numbers) {
  return at::from_blob(const_cast<T*>(numbers.data()), {static_cast<int64_t>(numbers.size())},
                       at::TensorOptions(c10::CppTypeToScalarType<T>::value));
}

// Lists the tokens, of N, that have rows for ranks of a host, ascending, the first of these rows of each, and of each
// of these rows, by rank, the index of its token among them.
struct TokensOfHost {
  std::vector<int64_t> tokens, rows;
  std::vector<int32_t> indices;
};

TokensOfHost tokens_of_host(const RowOrder& order, std::span<const int> hosts_P, int host) {
  const auto held = (order.begins.numel() - 1) / static_cast<int64_t>(hosts_P.size());
  const int64_t *begins = order.begins.const_data_ptr<int64_t>(), *tokens = order.tokens_P.const_data_ptr<int64_t>();
  const auto N = static_cast<size_t>(order.rows_Nk.size(0));
  std::vector<int64_t> first_rows(N, -1);
  std::vector<int32_t> index(N, -1);
  const auto for_each_row = [&](const auto& work) {
    for (int64_t rank = 0; rank < static_cast<int64_t>(hosts_P.size()); ++rank) {
      if (hosts_P[static_cast<size_t>(rank)] != host) continue;
      for (int64_t row = begins[rank * held]; row < begins[(rank + 1) * held]; ++row)
        work(row, static_cast<size_t>(tokens[row]));
    }
  };
  TokensOfHost out;
  for_each_row([&](int64_t row, size_t token) {
    if (first_rows[token] < 0) first_rows[token] = row;
  });
  for (size_t token = 0; token < N; ++token) {
    if (first_rows[token] < 0) continue;
    index[token] = static_cast<int32_t>(out.tokens.size());
    out.tokens.push_back(static_cast<int64_t>(token));
    out.rows.push_back(first_rows[token]);
  }
  for_each_row([&](int64_t, size_t token) { out.indices.push_back(index[token]); });
  return out;
}

}  // namespace

RowTransfer::RowTransfer(const RowOrder& order, std::span<const int> hosts_P, comm::Communicator& ranks)
    : ranks_(&ranks), steps_(row_steps(ranks.size(), ranks.rank())) {
  const int64_t* begins = order.begins.const_data_ptr<int64_t>();
  const auto P = static_cast<size_t>(ranks.size()), E = static_cast<size_t>(order.begins.numel()) - 1;
  const size_t H = hosts_P.empty() ? 0 : static_cast<size_t>(*std::ranges::max_element(hosts_P)) + 1;
  std::vector<int64_t> own(E + H), all(P * (E + H)), counts_PE, tokens_PH;
  for (size_t e = 0; e < E; ++e) own[e] = begins[e + 1] - begins[e];
  std::vector<std::vector<int32_t>> indices;
  for (size_t host = 0; host < H; ++host) {
    if (static_cast<int>(host) == hosts_P[static_cast<size_t>(ranks.rank())]) continue;
    TokensOfHost of_host = tokens_of_host(order, hosts_P, static_cast<int>(host));
    own[E + host] = static_cast<int64_t>(of_host.tokens.size());
    sent_tokens_.push_back(std::move(of_host.tokens));
    sent_rows_.push_back(std::move(of_host.rows));
    indices.push_back(std::move(of_host.indices));
  }
  ranks.all_gather(own, all, {.name = "rows of experts"});
  sent_bytes_ = static_cast<int64_t>((P - 1) * own.size() * sizeof(int64_t));
  for (size_t rank = 0; rank < P; ++rank) {
    const auto numbers = std::span(all).subspan(rank * own.size(), own.size());
    counts_PE.insert(counts_PE.end(), numbers.begin(), numbers.begin() + static_cast<long>(E));
    tokens_PH.insert(tokens_PH.end(), numbers.begin() + static_cast<long>(E), numbers.end());
  }
  exchange_ = expert_exchange(counts_PE, ranks.size(), ranks.rank());
  if (H == 0) return;
  hosts_ = host_exchange(counts_PE, tokens_PH, hosts_P, ranks.rank());
  tell_relays(indices);
}

void RowTransfer::tell_relays(const std::vector<std::vector<int32_t>>& indices_of_hosts) {
  const int tag = ranks_->size();  // that of parcels
  const OpOptions options{.name = "tokens of rows"};
  std::vector<Work> works;
  relayed_indices_.resize(hosts_.relayed.size());
  for (size_t i = 0; i < hosts_.relayed.size(); ++i) {
    const TokenParcel& parcel = hosts_.relayed[i];
    relayed_indices_[i].resize(static_cast<size_t>(begins_of(parcel.rows).back()));
    if (parcel.tokens > 0) works.push_back(ranks_->receive_async(relayed_indices_[i], parcel.source, tag, options));
  }
  for (size_t i = 0; i < hosts_.sent.size(); ++i) {
    const TokenParcel& parcel = hosts_.sent[i];
    if (parcel.tokens == 0) continue;
    works.push_back(ranks_->send_async(indices_of_hosts[i], parcel.relay, tag, options));
    sent_bytes_ += static_cast<int64_t>(indices_of_hosts[i].size() * sizeof(int32_t));
  }
  for (Work& work : works) work.wait();
}

at::Tensor RowTransfer::move(const at::Tensor& rows_PD, const std::vector<int64_t>& to,
                             const std::vector<int64_t>& from, std::string_view name) const {
  const int64_t incoming_rows = std::accumulate(from.begin(), from.end(), int64_t{0});
  const at::Tensor rows = rows_PD.contiguous(), out = at::empty({incoming_rows, rows.size(1)}, rows.options());
  std::vector<Work> works;
  for (const RowStep& step : steps_) {
    const at::Tensor incoming = out.narrow(0, step.receive_begin.value(to, from), step.receive_rows.value(to, from));
    const at::Tensor outgoing = rows.narrow(0, step.send_begin.value(to, from), step.send_rows.value(to, from));
    if (step.target == ranks_->rank()) {
      at::Tensor(incoming).copy_(outgoing);
      continue;
    }
    if (incoming.size(0) > 0) works.push_back(ranks_->receive_async(incoming, step.source, 0, {.name = name}));
    if (outgoing.size(0) == 0) continue;
    works.push_back(ranks_->send_async(outgoing, step.target, 0, {.name = name}));
    count_sent(outgoing);
  }
  for (Work& work : works) work.wait();
  return out;
}

at::Tensor RowTransfer::bring_back(const at::Tensor& rows_PD, std::string_view name) const {
  return move(rows_PD, exchange_.received, exchange_.sent, name);
}

// Parcels, and the weights of their rows after them, have the tag after those of the ranks; rows have that of their
// source.
class RowTransfer::Dispatch {
 public:
  Dispatch(const RowTransfer& transfer, const at::Tensor& rows_PD, const at::Tensor& weights_P, std::string_view name)
      : transfer_(transfer),
        ranks_(*transfer.ranks_),
        rows_(rows_PD.contiguous()),
        weights_P_(weights_P),
        options_{.name = name},
        sent_begins_(begins_of(transfer.exchange_.sent)),
        received_begins_(begins_of(transfer.exchange_.received)),
        out_(at::empty({received_begins_.back(), rows_.size(1)}, rows_.options())) {}

  void receive() {
    for (const TokenParcel& parcel : transfer_.hosts_.relayed) {
      tokens_.push_back(at::empty({parcel.tokens, rows_.size(1)}, rows_.options()));
      weights_.push_back(weights_P_.defined() ? at::empty({begins_of(parcel.rows).back()}, weights_P_.options())
                                              : at::Tensor());
      std::vector<Work>& works = parcels_.emplace_back();
      if (parcel.tokens == 0) continue;
      works.push_back(ranks_.receive_async(tokens_.back(), parcel.source, parcel_tag(), options_));
      if (weights_P_.defined())
        works.push_back(ranks_.receive_async(weights_.back(), parcel.source, parcel_tag(), options_));
    }
    for (int source = 0; source < ranks_.size(); ++source) {
      const int from = transfer_.hosts_.from[static_cast<size_t>(source)];
      const at::Tensor part = received_from(source);
      if (from != ranks_.rank() && part.size(0) > 0)
        works_.push_back(ranks_.receive_async(part, from, source, options_));
    }
  }

  void send_tokens(const at::Tensor& values_ND) {
    for (size_t i = 0; i < transfer_.hosts_.sent.size(); ++i) {
      const TokenParcel& parcel = transfer_.hosts_.sent[i];
      if (parcel.tokens == 0) continue;
      const at::Tensor tokens = values_ND.defined() ? values_ND.index_select(0, as_tensor(transfer_.sent_tokens_[i]))
                                                    : rows_.index_select(0, as_tensor(transfer_.sent_rows_[i]));
      works_.push_back(ranks_.send_async(tokens, parcel.relay, parcel_tag(), options_));
      transfer_.count_sent(tokens);
      if (!weights_P_.defined()) continue;
      std::vector<at::Tensor> parts;
      for (const int rank : parcel.ranks) parts.push_back(sent_to(weights_P_, rank));
      const at::Tensor weights = at::cat(parts);
      works_.push_back(ranks_.send_async(weights, parcel.relay, parcel_tag(), options_));
      transfer_.count_sent(weights);
    }
  }

  void send_rows_to_neighbors() {
    for (const int rank : transfer_.hosts_.neighbors) give(sent_to(rows_, rank), rank, ranks_.rank());
  }

  void hand_on() {
    for (size_t i = 0; i < tokens_.size(); ++i) {
      const TokenParcel& parcel = transfer_.hosts_.relayed[i];
      if (parcel.tokens == 0) continue;
      for (Work& work : parcels_[i]) work.wait();
      at::Tensor rows = tokens_[i].index_select(0, as_tensor(transfer_.relayed_indices_[i]));
      tokens_[i].reset();
      if (weights_P_.defined()) rows = rows.to(at::kFloat).mul(weights_[i].unsqueeze(1)).to(rows_.scalar_type());
      const std::vector<int64_t> begins = begins_of(parcel.rows);
      for (size_t j = 0; j < parcel.ranks.size(); ++j)
        give(rows.narrow(0, begins[j], parcel.rows[j]), parcel.ranks[j], parcel.source);
    }
  }

  at::Tensor finish() {
    for (Work& work : works_) work.wait();
    return out_;
  }

 private:
  int parcel_tag() const { return ranks_.size(); }
  at::Tensor sent_to(const at::Tensor& of_rows, int rank) const {
    const auto at = static_cast<size_t>(rank);
    return of_rows.narrow(0, sent_begins_[at], transfer_.exchange_.sent[at]);
  }
  at::Tensor received_from(int source) const {
    const auto at = static_cast<size_t>(source);
    return out_.narrow(0, received_begins_[at], transfer_.exchange_.received[at]);
  }
  void give(const at::Tensor& rows, int rank, int source) {
    if (rows.size(0) == 0) return;
    if (rank == ranks_.rank()) {
      received_from(source).copy_(rows);
      return;
    }
    works_.push_back(ranks_.send_async(rows, rank, source, options_));
    transfer_.count_sent(rows);
  }

  const RowTransfer& transfer_;
  comm::Communicator& ranks_;
  const at::Tensor rows_, weights_P_;
  const OpOptions options_;
  const std::vector<int64_t> sent_begins_, received_begins_;  // by rank
  const at::Tensor out_;
  // Of the parcels that this rank relays: what they hold, and the receives of it.
  std::vector<at::Tensor> tokens_, weights_;
  std::vector<std::vector<Work>> parcels_;
  std::vector<Work> works_;
};

at::Tensor RowTransfer::dispatch(const at::Tensor& rows_PD, const at::Tensor& values_ND, const at::Tensor& weights_P,
                                 std::string_view name) const {
  if (hosts_.from.empty()) return move(rows_PD, exchange_.sent, exchange_.received, name);
  Dispatch dispatch(*this, rows_PD, weights_P, name);
  dispatch.receive();
  dispatch.send_tokens(values_ND);
  dispatch.send_rows_to_neighbors();
  dispatch.hand_on();
  return dispatch.finish();
}

}  // namespace herd::nn
