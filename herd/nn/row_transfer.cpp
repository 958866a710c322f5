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

// Returns the numbers where an operator reads them: on the host it borrows them.
template <typename T>
at::Tensor as_tensor(const std::vector<T>& numbers, at::Device device) {
  return at::from_blob(const_cast<T*>(numbers.data()), {static_cast<int64_t>(numbers.size())},
                       at::TensorOptions(c10::CppTypeToScalarType<T>::value))
      .to(device);
}

// Lists the tokens, of N, that have rows for these of P ranks, ascending, the first of these rows of each, and of each
// of these rows, by rank, the index of its token among them.
struct TokensOfHost {
  std::vector<int64_t> tokens, rows;
  std::vector<int32_t> indices;
};

// REQUIRES an order on the host.
TokensOfHost tokens_of_host(const RowOrder& order, std::span<const int> ranks, int64_t P) {
  const auto held = (order.begins.numel() - 1) / P;
  const int64_t *begins = order.begins.const_data_ptr<int64_t>(), *tokens = order.tokens_P.const_data_ptr<int64_t>();
  const auto N = static_cast<size_t>(order.rows_Nk.size(0));
  std::vector<int64_t> first_rows(N, -1);
  std::vector<int32_t> index(N, -1);
  const auto for_each_row = [&](const auto& work) {
    for (const int64_t rank : ranks) {
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
  if (H > 0) hosts_ = host_routes(hosts_P, ranks.rank());
  const RowOrder on_host = H > 0 ? order.on(at::kCPU) : RowOrder{};
  for (const TokenParcel& parcel : hosts_.sent) {
    TokensOfHost of_host = tokens_of_host(on_host, parcel.ranks, ranks.size());
    own[E + static_cast<size_t>(hosts_P[static_cast<size_t>(parcel.relay)])] =
        static_cast<int64_t>(of_host.tokens.size());
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
  hosts_ = host_exchange(std::move(hosts_), counts_PE, tokens_PH, hosts_P);
  host_steps_ = host_steps(hosts_, ranks.size(), ranks.rank());
  tell_relays(indices);
}

void RowTransfer::tell_relays(const std::vector<std::vector<int32_t>>& indices_of_hosts) {
  const OpOptions options{.name = "tokens of rows"};
  std::vector<Work> works;
  relayed_indices_.resize(hosts_.relayed.size());
  for (const HostStep& step : host_steps_) {
    const auto i = static_cast<size_t>(step.parcel);
    if (step.kind == HostStep::Kind::kReceiveParcel) {
      const TokenParcel& parcel = hosts_.relayed[i];
      relayed_indices_[i].resize(static_cast<size_t>(begins_of(parcel.rows).back()));
      if (parcel.tokens > 0) works.push_back(ranks_->receive_async(relayed_indices_[i], step.rank, step.tag, options));
    } else if (step.kind == HostStep::Kind::kSendParcel && hosts_.sent[i].tokens > 0) {
      works.push_back(ranks_->send_async(indices_of_hosts[i], step.rank, step.tag, options));
      sent_bytes_ += static_cast<int64_t>(indices_of_hosts[i].size() * sizeof(int32_t));
    }
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

// One dispatch between hosts, step by step.
class RowTransfer::Dispatch {
 public:
  Dispatch(const RowTransfer& transfer, const at::Tensor& rows_PD, const at::Tensor& values_ND,
           const at::Tensor& weights_P, std::string_view name)
      : transfer_(transfer),
        ranks_(*transfer.ranks_),
        rows_(rows_PD.contiguous()),
        values_ND_(values_ND),
        weights_P_(weights_P),
        options_{.name = name},
        sent_begins_(begins_of(transfer.exchange_.sent)),
        received_begins_(begins_of(transfer.exchange_.received)),
        out_(at::empty({received_begins_.back(), rows_.size(1)}, rows_.options())),
        relayed_(transfer.hosts_.relayed.size()) {}

  void run(const HostStep& step) {
    switch (step.kind) {
      case HostStep::Kind::kReceiveParcel:
        return receive_parcel(step);
      case HostStep::Kind::kReceiveRows:
        return receive_rows(step);
      case HostStep::Kind::kSendParcel:
        return send_parcel(step);
      case HostStep::Kind::kSendRows:
        return give(sent_to(rows_, step.part), step);
      case HostStep::Kind::kOpenParcel:
        return open_parcel(step);
      case HostStep::Kind::kHandOn:
        return hand_on(step);
    }
  }

  at::Tensor finish() {
    for (Work& work : works_) work.wait();
    return out_;
  }

 private:
  // What a relayed parcel holds, and the receives of it; then its rows.
  struct Relayed {
    at::Tensor tokens = {}, weights = {}, rows = {};
    std::vector<Work> works = {};
  };

  const TokenParcel& relayed_parcel(const HostStep& step) const {
    return transfer_.hosts_.relayed[static_cast<size_t>(step.parcel)];
  }
  Relayed& relayed(const HostStep& step) { return relayed_[static_cast<size_t>(step.parcel)]; }

  void receive_parcel(const HostStep& step) {
    const TokenParcel& parcel = relayed_parcel(step);
    if (parcel.tokens == 0) return;
    Relayed& into = relayed(step);
    into.tokens = at::empty({parcel.tokens, rows_.size(1)}, rows_.options());
    into.works.push_back(ranks_.receive_async(into.tokens, step.rank, step.tag, options_));
    if (!weights_P_.defined()) return;
    into.weights = at::empty({begins_of(parcel.rows).back()}, weights_P_.options());
    into.works.push_back(ranks_.receive_async(into.weights, step.rank, step.tag, options_));
  }

  void receive_rows(const HostStep& step) {
    const at::Tensor part = received_from(step.source);
    if (part.size(0) > 0) works_.push_back(ranks_.receive_async(part, step.rank, step.tag, options_));
  }

  void send_parcel(const HostStep& step) {
    const auto i = static_cast<size_t>(step.parcel);
    const TokenParcel& parcel = transfer_.hosts_.sent[i];
    if (parcel.tokens == 0) return;
    const at::Tensor tokens = values_ND_.defined()
                                  ? values_ND_.index_select(0, as_tensor(transfer_.sent_tokens_[i], rows_.device()))
                                  : rows_.index_select(0, as_tensor(transfer_.sent_rows_[i], rows_.device()));
    send(tokens, step);
    if (!weights_P_.defined()) return;
    std::vector<at::Tensor> parts;
    for (const int rank : parcel.ranks) parts.push_back(sent_to(weights_P_, rank));
    send(at::cat(parts), step);
  }

  void open_parcel(const HostStep& step) {
    Relayed& parcel = relayed(step);
    if (!parcel.tokens.defined()) return;
    for (Work& work : parcel.works) work.wait();
    const auto& indices = transfer_.relayed_indices_[static_cast<size_t>(step.parcel)];
    parcel.rows = parcel.tokens.index_select(0, as_tensor(indices, rows_.device()));
    parcel.tokens.reset();
    if (weights_P_.defined())
      parcel.rows = parcel.rows.to(at::kFloat).mul(parcel.weights.unsqueeze(1)).to(rows_.scalar_type());
  }

  void hand_on(const HostStep& step) {
    const TokenParcel& parcel = relayed_parcel(step);
    if (parcel.tokens == 0) return;
    const auto part = static_cast<size_t>(step.part);
    const auto begin = std::accumulate(parcel.rows.begin(), parcel.rows.begin() + step.part, int64_t{0});
    Relayed& from = relayed(step);
    give(from.rows.narrow(0, begin, parcel.rows[part]), step);
    if (part + 1 == parcel.ranks.size()) from.rows.reset();
  }

  at::Tensor sent_to(const at::Tensor& of_rows, int rank) const {
    const auto at = static_cast<size_t>(rank);
    return of_rows.narrow(0, sent_begins_[at], transfer_.exchange_.sent[at]);
  }
  at::Tensor received_from(int source) const {
    const auto at = static_cast<size_t>(source);
    return out_.narrow(0, received_begins_[at], transfer_.exchange_.received[at]);
  }
  void give(const at::Tensor& rows, const HostStep& step) {
    if (rows.size(0) == 0) return;
    if (step.rank == ranks_.rank())
      received_from(step.source).copy_(rows);
    else
      send(rows, step);
  }
  void send(const at::Tensor& values, const HostStep& step) {
    works_.push_back(ranks_.send_async(values, step.rank, step.tag, options_));
    transfer_.count_sent(values);
  }

  const RowTransfer& transfer_;
  comm::Communicator& ranks_;
  const at::Tensor rows_, values_ND_, weights_P_;
  const OpOptions options_;
  const std::vector<int64_t> sent_begins_, received_begins_;  // by rank
  const at::Tensor out_;
  std::vector<Relayed> relayed_;
  std::vector<Work> works_;
};

at::Tensor RowTransfer::dispatch(const at::Tensor& rows_PD, const at::Tensor& values_ND, const at::Tensor& weights_P,
                                 std::string_view name) const {
  if (hosts_.from.empty()) return move(rows_PD, exchange_.sent, exchange_.received, name);
  Dispatch dispatch(*this, rows_PD, values_ND, weights_P, name);
  for (const HostStep& step : host_steps_) dispatch.run(step);
  return dispatch.finish();
}

}  // namespace herd::nn
