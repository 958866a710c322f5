#include "herd/nn/ring_attention.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/logaddexp.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>

#include "herd/base/check.h"
#include "herd/bridge/flash_attention.h"
#include "herd/bridge/tensor_buffer.h"
#include "herd/comm/communicator.h"
#include "herd/nn/dropout.h"
#include "herd/nn/ring_steps.h"

namespace herd::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int kKeysTag = 0, kGradientsTag = 1;

// Holds what the passes over the ring need.
struct Ring {
  AttentionShape shape;
  Context context;
  bool is_packed() const { return !context.document_begins.empty(); }
  std::vector<RingStep> steps(int64_t B) const {
    return is_packed() ? ring_steps_of_documents(context.cut, shape.causal, context.document_begins, B)
                       : ring_steps(context.cut, shape.causal);
  }
  bool drops() const { return shape.dropout > 0 && context.training; }

  // Drops attention weights (B, H, queries, keys) of such pairs, or their gradients.
  at::Tensor drop(const at::Tensor& weights, const RingPairs& pairs, int owner) const {
    const auto positions = [](const TokenCut& cut, int64_t from, int64_t count) {
      std::vector<TokenSpan> out;
      int64_t at = 0;
      for (const auto& [begin, size] : cut.spans()) {
        const int64_t first = std::max(from, at), last = std::min(from + count, at + size);
        if (first < last) out.push_back({begin + first - at, last - first});
        at += size;
      }
      return out;
    };
    Context of_rows = context;
    if (pairs.row >= 0) of_rows.samples = {context.samples.at(static_cast<size_t>(pairs.row))};
    return dropout_pairs(weights, shape.dropout, DropoutSite::kAttention, of_rows, shape.first_head,
                         positions(context.cut, pairs.query, pairs.queries),
                         positions(cut_of(context.cut, owner), pairs.key, pairs.keys));
  }
};

// Starts what passes around in one step: to the next rank, and from the one before.
std::vector<Work> pass_on(Communicator& comm, const at::Tensor& own, const at::Tensor& received, int tag) {
  const int P = comm.size(), next = (comm.rank() + 1) % P, previous = (comm.rank() + P - 1) % P;
  std::vector<Work> works;
  works.push_back(comm.receive_async(received, previous, tag, {.name = "ring"}));
  works.push_back(comm.send_async(own, next, tag, {.name = "ring"}));
  return works;
}

void wait_for(std::vector<Work>& works) {
  for (Work& work : works) work.wait();
  works.clear();
}

// Returns the heads of (B, tokens, ..), from column `first` on, as (B, heads, tokens, d).
at::Tensor heads_of(const at::Tensor& x, int64_t first, int64_t heads, int64_t d) {
  return x.narrow(2, first, heads * d).view({x.size(0), x.size(1), heads, d}).transpose(1, 2);
}

at::Tensor times_shared_keys(const at::Tensor& x, const at::Tensor& matrices) {
  const int64_t B = x.size(0), H = x.size(1), S = x.size(2), K = matrices.size(1);
  return at::matmul(x.reshape({B, K, H / K * S, x.size(3)}), matrices).view({B, H, S, matrices.size(3)});
}

at::Tensor scores_of(const at::Tensor& q, const at::Tensor& k, bool causal) {
  at::Tensor scores = times_shared_keys(q * (1 / std::sqrt(static_cast<double>(q.size(3)))), k.transpose(-2, -1));
  if (causal) scores = scores + at::full({q.size(2), k.size(2)}, -INFINITY, scores.options()).triu_(1);
  return scores;
}

AttendedRows attend_part(const Ring& ring, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                         const RingPairs& pairs, int owner) {
  if (!ring.drops()) return flash_attention(q, k, v, pairs.causal);
  const at::Tensor scores = scores_of(q, k, pairs.causal), log_sum = scores.logsumexp(-1);
  const at::Tensor weights = ring.drop((scores - log_sum.unsqueeze(-1)).exp_(), pairs, owner);
  return {times_shared_keys(weights, v), log_sum};
}

AttentionGradients attend_backward(const Ring& ring, const at::Tensor& dy, const at::Tensor& q, const at::Tensor& k,
                                   const at::Tensor& v, const AttendedRows& rows, const RingPairs& pairs, int owner) {
  if (!ring.drops()) return flash_attention_backward(dy, q, k, v, rows, pairs.causal);
  const double scale = 1 / std::sqrt(static_cast<double>(q.size(3)));
  const int64_t B = q.size(0), H = q.size(1), Q = q.size(2), K = k.size(1), L = k.size(2);
  const auto by_keys = [&](const at::Tensor& x) { return x.reshape({B, K, H / K * Q, x.size(3)}); };
  const at::Tensor weights = (scores_of(q, k, pairs.causal) - rows.log_sum.unsqueeze(-1)).exp_();
  const at::Tensor dv = at::matmul(by_keys(ring.drop(weights, pairs, owner)).transpose(-2, -1), by_keys(dy));
  const at::Tensor dweights = ring.drop(times_shared_keys(dy, v.transpose(-2, -1)), pairs, owner);
  const at::Tensor mean = (dy * rows.out).sum(-1, true);
  const at::Tensor dscores = weights * (dweights - mean) * scale;
  const at::Tensor dk = at::matmul(by_keys(dscores).transpose(-2, -1), by_keys(q));
  HERD_CHECK_EQ(dk.size(2), L);
  return {times_shared_keys(dscores, k), dk, dv};
}

// Returns the queries, or the keys, of such pairs.
at::Tensor queries_of(const at::Tensor& x, const RingPairs& pairs) {
  return (pairs.row < 0 ? x : x.narrow(0, pairs.row, 1)).narrow(2, pairs.query, pairs.queries);
}
at::Tensor keys_of(const at::Tensor& x, const RingPairs& pairs) {
  return (pairs.row < 0 ? x : x.narrow(0, pairs.row, 1)).narrow(2, pairs.key, pairs.keys);
}

// Adds a part of some rows to what they have so far.
void merge(AttendedRows& so_far, const AttendedRows& part, const RingPairs& pairs) {
  at::Tensor out = queries_of(so_far.out, pairs), sum = queries_of(so_far.log_sum, pairs);
  const at::Tensor both = at::logaddexp(sum, part.log_sum);
  out.mul_((sum - both).exp_().unsqueeze(-1))
      .add_(part.out.to(out.scalar_type()) * (part.log_sum - both).exp_().unsqueeze(-1));
  sum.copy_(both);
}

// fp16 is multiplied in fp32 on CPUs, as linear.h does.
at::ScalarType type_to_multiply(const at::Tensor& x) {
  return x.is_cpu() && x.scalar_type() == at::kHalf ? at::kFloat : x.scalar_type();
}
at::ScalarType type_to_sum(const at::Tensor& x) { return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat; }

struct RingFunction : torch::autograd::Function<RingFunction> {
  static at::Tensor forward(AutogradContext* saved, const at::Tensor& x, const Ring& ring) {
    const int64_t B = x.size(0), S = x.size(1), H = ring.shape.heads, K = ring.shape.kv_heads;
    const int64_t d = x.size(2) / (H + 2 * K);
    const auto type = ring.drops() ? type_to_sum(x) : type_to_multiply(x);
    const at::Tensor q = heads_of(x, 0, H, d).to(type);
    at::Tensor keys = x.narrow(2, H * d, 2 * K * d).contiguous(), next = keys;
    AttendedRows rows;
    if (ring.is_packed()) {
      const auto as = x.options().dtype(type_to_sum(x));
      rows = {at::zeros({B, S, H, d}, as).transpose(1, 2), at::full({B, H, S}, -INFINITY, as)};
    }
    std::vector<Work> passing;
    for (const RingStep& step : ring.steps(B)) {
      if (step.passes_keys) {
        next = at::empty_like(keys);
        passing = pass_on(*ring.context.tensor_ranks, keys, next, kKeysTag);
      }
      const at::Tensor k = heads_of(keys, 0, K, d).to(type), v = heads_of(keys, K * d, K, d).to(type);
      for (const RingPairs& pairs : step.pairs) {
        AttendedRows part =
            attend_part(ring, queries_of(q, pairs), keys_of(k, pairs), keys_of(v, pairs), pairs, step.owner);
        if (rows.out.defined())
          merge(rows, part, pairs);
        else
          rows = {part.out.to(type_to_sum(x)), part.log_sum};
      }
      wait_for(passing);
      keys = next;
    }
    const at::Tensor y = rows.out.transpose(1, 2).reshape({B, S, H * d}).to(x.scalar_type());
    saved->save_for_backward({x, y, rows.log_sum});
    save(saved, ring);
    return y;
  }

  static variable_list backward(AutogradContext* saved, const variable_list& gradients) {
    const Ring ring = restored(saved);
    const variable_list kept = saved->get_saved_variables();
    const at::Tensor &x = kept[0], &y = kept[1], &log_sum = kept[2];
    const int64_t H = ring.shape.heads, K = ring.shape.kv_heads, d = x.size(2) / (H + 2 * K);
    const auto sum_type = type_to_sum(x), type = ring.drops() ? sum_type : type_to_multiply(x);
    const at::Tensor q = heads_of(x, 0, H, d).to(type), out = heads_of(y, 0, H, d).to(type);
    const at::Tensor dy = heads_of(gradients[0].contiguous(), 0, H, d).to(type);
    const at::Tensor dx = at::zeros(x.sizes(), x.options().dtype(sum_type));
    const at::Tensor dq = heads_of(dx, 0, H, d);
    at::Tensor keys = x.narrow(2, H * d, 2 * K * d).contiguous(), next = keys;
    at::Tensor dkeys;   // the sum of gradients of the step's keys and values
    at::Tensor passed;  // the one before, until the next rank has it: peak memory does not depend on when that is
    std::vector<Work> passing, passing_sums;
    for (const RingStep& step : ring.steps(x.size(0))) {
      if (step.passes_keys) {
        next = at::empty_like(keys);
        passing = pass_on(*ring.context.tensor_ranks, keys, next, kKeysTag);
      }
      const at::Tensor k = heads_of(keys, 0, K, d).to(type), v = heads_of(keys, K * d, K, d).to(type);
      const at::Tensor own = at::zeros(keys.sizes(), keys.options().dtype(sum_type));
      const at::Tensor dk = heads_of(own, 0, K, d), dv = heads_of(own, K * d, K, d);
      for (const RingPairs& pairs : step.pairs) {
        const auto of_queries = [&](const at::Tensor& t) { return queries_of(t, pairs); };
        const auto of_keys = [&](const at::Tensor& t) { return keys_of(t, pairs); };
        const AttentionGradients part = attend_backward(ring, of_queries(dy), of_queries(q), of_keys(k), of_keys(v),
                                                        {of_queries(out), of_queries(log_sum)}, pairs, step.owner);
        of_queries(dq).add_(part.dq);
        of_keys(dk).add_(part.dk);
        of_keys(dv).add_(part.dv);
      }
      wait_for(passing_sums);
      passed = at::Tensor();
      dkeys = dkeys.defined() ? dkeys.add_(own) : own;
      if (step.passes_gradients) {
        const at::Tensor received = at::empty_like(dkeys);
        passing_sums = pass_on(*ring.context.tensor_ranks, dkeys, received, kGradientsTag);
        passed = dkeys;
        dkeys = received;
      }
      wait_for(passing);
      keys = next;
    }
    wait_for(passing_sums);
    passed = at::Tensor();
    dx.narrow(2, H * d, 2 * K * d).copy_(dkeys);
    return {dx.to(x.scalar_type()), at::Tensor()};
  }

 private:
  static void save(AutogradContext* saved, const Ring& ring) {
    const AttentionShape& shape = ring.shape;
    const Context& context = ring.context;
    saved->saved_data["shape"] = std::vector<int64_t>{shape.heads, shape.kv_heads, shape.causal, shape.first_head};
    saved->saved_data["dropout"] = ring.drops() ? shape.dropout : 0.0;
    saved->saved_data["random"] = std::vector<int64_t>{static_cast<int64_t>(context.seed), context.step, context.layer};
    saved->saved_data["samples"] = context.samples;
    saved->saved_data["documents"] = context.document_begins;
    saved->saved_data["cut"] = std::vector<int64_t>{context.cut.tokens, context.cut.place, context.cut.parts};
    saved->saved_data["ranks"] = reinterpret_cast<int64_t>(context.tensor_ranks);
  }

  static Ring restored(AutogradContext* saved) {
    const std::vector<int64_t> shape = saved->saved_data["shape"].toIntVector(),
                               random = saved->saved_data["random"].toIntVector(),
                               cut = saved->saved_data["cut"].toIntVector();
    Ring ring;
    ring.shape = {.heads = shape[0],
                  .kv_heads = shape[1],
                  .causal = shape[2] != 0,
                  .dropout = saved->saved_data["dropout"].toDouble(),
                  .first_head = shape[3]};
    ring.context = {
        .training = true,
        .seed = static_cast<uint64_t>(random[0]),
        .step = random[1],
        .samples = saved->saved_data["samples"].toIntVector(),
        .layer = static_cast<int>(random[2]),
        .document_begins = saved->saved_data["documents"].toIntVector(),
        .cut = {.tokens = cut[0], .place = static_cast<int>(cut[1]), .parts = static_cast<int>(cut[2]), .zigzag = true},
        .tensor_ranks = reinterpret_cast<Communicator*>(saved->saved_data["ranks"].toInt())};
    return ring;
  }
};

}  // namespace

at::Tensor ring_attention(const at::Tensor& x_BSW, const AttentionShape& shape, const Context& context) {
  HERD_CHECK(context.cut.zigzag, "a ring of attention takes a zigzag of tokens");
  HERD_CHECK(context.cut.parts == 1 || context.tensor_ranks != nullptr, "a ring has ranks that pass keys around");
  return RingFunction::apply(x_BSW, Ring{shape, context});
}

}  // namespace herd::nn
