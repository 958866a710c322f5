// Experts that ranks hold together give what one rank with all of them gives: outputs, and the gradients of inputs, of
// weights and of the experts, whatever the routing; and they send the rows that leave a rank, nothing else. Between
// hosts they send each token once, and give the same bits.
#include "herd/nn/experts_of_ranks.h"

#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <tuple>

#include "herd/comm/inproc_world.h"
#include "herd/nn/run_block.h"
#include "test_tensors_internal.h"

namespace herd::nn {
namespace {

constexpr int64_t kAllExperts = 8, kRowWidth = 6, kHiddenWidth = 7, kSharedWidth = 5;

// The parameters of a mixture of which a rank holds the experts [first, first + held).
struct HeldExperts {
  HeldExperts(int64_t first, int64_t held)
      : router({{"router.weight", {kAllExperts, kRowWidth}, true, Init::kNormal, 0.7},
                {"shared.gate.weight", {kSharedWidth, kRowWidth}, true, Init::kNormal, 0.7},
                {"shared.up.weight", {kSharedWidth, kRowWidth}, true, Init::kNormal, 0.7},
                {"shared.down.weight", {kRowWidth, kSharedWidth}, true, Init::kNormal, 0.7}}),
        experts({of("gate", {kAllExperts, kHiddenWidth, kRowWidth}, first, held),
                 of("up", {kAllExperts, kHiddenWidth, kRowWidth}, first, held),
                 of("down", {kAllExperts, kRowWidth, kHiddenWidth}, first, held)}) {}
  static ParameterSpec of(const char* name, std::vector<int64_t> sizes, int64_t first, int64_t held) {
    return cut({std::string("experts.") + name + ".weight", std::move(sizes), true, Init::kNormal, 0.7}, 0,
               {{first, first + held}});
  }
  GroupList all() const { return {router.group, experts.group}; }
  at::Tensor gradient_of(const char* name) const { return experts.group->find(name).gradient(); }
  OwnedGroup router, experts;
};

// The tokens and choices of each rank.
struct RoutedTokens {
  std::string name;
  std::vector<at::Tensor> experts_Nk;
};

struct RanksResults {
  std::vector<at::Tensor> y, dx, router;  // by rank; the gradients of the router and the shared experts
  std::vector<at::Tensor> gate, up, down;
  std::vector<uint64_t> sent;
};

at::Tensor rows_of(const at::Tensor& experts_Nk, size_t rank) {
  return wave({experts_Nk.size(0), kRowWidth}, 0.9 + 0.1 * static_cast<double>(rank));
}
at::Tensor output_gradient_of(const at::Tensor& experts_Nk, size_t rank) {
  return wave({experts_Nk.size(0), kRowWidth}, 1.3 + 0.1 * static_cast<double>(rank));
}

MixtureShape mixture_of(const at::Tensor& experts_Nk) {
  return {
      .experts = kAllExperts, .ffn = kHiddenWidth, .shared_ffn = kSharedWidth, .router = {.top_k = experts_Nk.size(1)}};
}

// Runs a forward and a backward of one rank whose experts are on several, as the ops of a step do.
std::pair<at::Tensor, at::Tensor> run_parts(const HeldExperts& layer, const at::Tensor& chosen, size_t rank,
                                            const std::vector<int>& hosts, Communicator& comm, KeptRouting& routing) {
  RouteRows route("route", {layer.router.group}, "", mixture_of(chosen));
  OwnExperts own("experts", {layer.experts.group}, "");
  CombineRows combine("combine", {});
  const Context context{.tokens = chosen.size(0), .routing = &routing};
  const auto forward = [&](Block& block, Graph& graph, const Tuple& x) {
    graph = run_forward(block, x, context);
    return take_outputs(graph);
  };
  Graph routes, runs, combines;
  const Tuple routed = forward(route, routes, {rows_of(chosen, rank)});
  if (routing.transfer == nullptr) tell_counts(routing, hosts, comm);
  const Tuple outputs = forward(own, runs, {give_rows(routing, routed[0], {})});
  const at::Tensor back = bring_back_rows(routing, outputs[0]), dy = output_gradient_of(chosen, rank);
  const at::Tensor y = forward(combine, combines, {back, routed[1], routed[2]})[0];
  const Tuple of_combined = run_backward(std::move(combines), {dy});
  const at::Tensor drows = run_backward(std::move(runs), {give_rows(routing, of_combined[0], dy)})[0];
  const Tuple dx = run_backward(std::move(routes), {bring_back_rows(routing, drows), of_combined[1], of_combined[2]});
  return {y, dx[0]};
}

std::pair<at::Tensor, at::Tensor> run_whole(const HeldExperts& layer, const at::Tensor& chosen, size_t rank) {
  RoutedExperts experts("experts", layer.all(), "", mixture_of(chosen));
  KeptRouting routing{.experts_Nk = chosen};
  Graph graph = run_forward(experts, {rows_of(chosen, rank)}, {.tokens = chosen.size(0), .routing = &routing});
  const at::Tensor y = take_outputs(graph)[0];
  return {y, run_backward(std::move(graph), {output_gradient_of(chosen, rank)})[0]};
}

// Runs the tokens of all ranks: each on a rank of its own that holds part of the experts, or one after the other on one
// that holds all. `hosts` has the host of each rank; empty = they share one.
RanksResults run_tokens(const RoutedTokens& routed, bool together, const std::vector<int>& hosts = {}) {
  const size_t P = routed.experts_Nk.size();
  RanksResults out;
  for (auto* list : {&out.y, &out.dx, &out.router, &out.gate, &out.up, &out.down}) list->resize(P);
  out.sent.resize(P);
  const auto keep = [&](size_t rank, const HeldExperts& layer) {
    out.router[rank] = layer.router.gradient.clone();
    out.gate[rank] = layer.gradient_of("experts.gate.weight").clone();
    out.up[rank] = layer.gradient_of("experts.up.weight").clone();
    out.down[rank] = layer.gradient_of("experts.down.weight").clone();
  };
  if (!together) {
    HeldExperts layer(0, kAllExperts);
    for (size_t rank = 0; rank < P; ++rank)
      std::tie(out.y[rank], out.dx[rank]) = run_whole(layer, routed.experts_Nk[rank], rank);
    keep(0, layer);
    return out;
  }
  const auto held = kAllExperts / static_cast<int64_t>(P);
  const auto body = [&](Communicator& comm) {
    EXPECT_EQ(hosts_of_ranks(comm), hosts);
    const auto rank = static_cast<size_t>(comm.rank());
    HeldExperts layer(held * comm.rank(), held);
    KeptRouting routing{.experts_Nk = routed.experts_Nk[rank]};
    const uint64_t before = comm.bytes_moved();
    std::tie(out.y[rank], out.dx[rank]) = run_parts(layer, routed.experts_Nk[rank], rank, hosts, comm, routing);
    out.sent[rank] = comm.bytes_moved() - before;
    keep(rank, layer);
    comm.barrier();
  };
  run_inproc(static_cast<int>(P), body, hosts);
  return out;
}

double relative_difference(const at::Tensor& a, const at::Tensor& b) {
  EXPECT_EQ(a.sizes(), b.sizes());
  return a.numel() == 0 ? 0 : (a - b).abs().max().item<double>() / std::max(1e-3, b.abs().max().item<double>());
}

std::vector<RoutedTokens> routed_tokens(int P) {
  const auto ranks = static_cast<size_t>(P);
  std::vector<RoutedTokens> out = {
      {"mixed", {}}, {"all to one", {}}, {"a rank without tokens", {}}, {"few tokens", {}}};
  for (size_t rank = 0; rank < ranks; ++rank) {
    const auto shift = static_cast<int64_t>(rank);
    const at::Tensor ids = at::arange(11 + shift, at::kLong);
    const auto pairs = [&](int64_t count) {
      return at::stack({ids.slice(0, 0, count).mul(3).add(shift).remainder(kAllExperts),
                        ids.slice(0, 0, count).mul(3).add(shift + 5).remainder(kAllExperts)},
                       1);
    };
    out[0].experts_Nk.push_back(pairs(11 + shift));
    out[1].experts_Nk.push_back(at::full({5, 1}, 3, at::kLong));
    out[2].experts_Nk.push_back(pairs(rank == 0 ? 0 : 6));
    out[3].experts_Nk.push_back(pairs(rank + 1 == ranks ? 1 : 0));
  }
  return out;
}

TEST(ExpertsOfRanks, GivesWhatOneRankWithAllExpertsGives) {
  for (const int P : {1, 2, 4, 8}) {
    for (const RoutedTokens& routed : routed_tokens(P)) {
      const RanksResults one = run_tokens(routed, false), many = run_tokens(routed, true);
      const std::string what = routed.name + " on " + std::to_string(P) + " ranks";
      for (size_t rank = 0; rank < many.y.size(); ++rank) {
        EXPECT_LE(relative_difference(many.y[rank], one.y[rank]), 2e-6) << what << " y";
        EXPECT_LE(relative_difference(many.dx[rank], one.dx[rank]), 2e-6) << what << " dx";
      }
      EXPECT_LE(relative_difference(at::stack(many.router).sum(0), one.router[0]), 4e-6) << what << " router";
      EXPECT_LE(relative_difference(at::cat(many.gate), one.gate[0]), 2e-6) << what << " gate";
      EXPECT_LE(relative_difference(at::cat(many.up), one.up[0]), 2e-6) << what << " up";
      EXPECT_LE(relative_difference(at::cat(many.down), one.down[0]), 2e-6) << what << " down";
    }
  }
}

TEST(ExpertsOfRanks, GivesTheSameBitsInEveryRun) {
  const RoutedTokens routed = routed_tokens(4)[0];
  const RanksResults first = run_tokens(routed, true), again = run_tokens(routed, true);
  for (size_t rank = 0; rank < 4; ++rank) {
    EXPECT_TRUE(first.y[rank].equal(again.y[rank]));
    EXPECT_TRUE(first.dx[rank].equal(again.dx[rank]));
    EXPECT_TRUE(first.router[rank].equal(again.router[rank]));
    EXPECT_TRUE(first.down[rank].equal(again.down[rank]));
  }
}

// 4 bytes an element, and 4 times the width for each row that leaves its rank. The counts are gathered beside.
TEST(ExpertsOfRanks, SendsTheRowsThatLeaveARank) {
  for (const int P : {2, 4}) {
    for (const RoutedTokens& routed : routed_tokens(P)) {
      const RanksResults many = run_tokens(routed, true);
      const int64_t held = kAllExperts / P;
      uint64_t rows = 0, sent = 0;
      for (size_t rank = 0; rank < many.sent.size(); ++rank) {
        const at::Tensor owner = routed.experts_Nk[rank].div(held, "floor");
        rows += static_cast<uint64_t>(owner.ne(static_cast<int64_t>(rank)).sum().item<int64_t>());
        sent += many.sent[rank];
      }
      const auto ranks = static_cast<uint64_t>(P), counts = ranks * (ranks - 1) * 8 * kAllExperts;
      EXPECT_EQ(sent, 4 * kRowWidth * 4 * rows + counts) << routed.name << " on " << P << " ranks";
    }
  }
}

TEST(ExpertsOfRanks, GivesTheSameBitsOnSeveralHosts) {
  for (const std::vector<int>& hosts : std::vector<std::vector<int>>{
           {0, 1}, {0, 0, 1, 1}, {0, 1, 0, 1}, {0, 0, 0, 1}, {0, 1, 2, 3}, {0, 0, 1, 1, 2, 2, 2, 3}}) {
    for (const RoutedTokens& routed : routed_tokens(static_cast<int>(hosts.size()))) {
      const RanksResults one = run_tokens(routed, true), several = run_tokens(routed, true, hosts);
      const std::string what = routed.name + " on " + std::to_string(hosts.back() + 1) + " hosts";
      for (size_t rank = 0; rank < hosts.size(); ++rank) {
        EXPECT_TRUE(several.y[rank].equal(one.y[rank])) << what << " y";
        EXPECT_TRUE(several.dx[rank].equal(one.dx[rank])) << what << " dx";
        EXPECT_TRUE(several.router[rank].equal(one.router[rank])) << what << " router";
        EXPECT_TRUE(several.gate[rank].equal(one.gate[rank])) << what << " gate";
        EXPECT_TRUE(several.up[rank].equal(one.up[rank])) << what << " up";
        EXPECT_TRUE(several.down[rank].equal(one.down[rank])) << what << " down";
      }
    }
  }
}

// A pass that is computed again takes over what the first has chosen, and counts are not told again.
TEST(ExpertsOfRanks, TakesOverWhatWasChosen) {
  const at::Tensor choices = routed_tokens(2)[0].experts_Nk[0];
  run_inproc(2, [&](Communicator& comm) {
    KeptRouting routing{.experts_Nk = choices};
    std::vector<at::Tensor> y;
    std::vector<uint64_t> moved = {comm.bytes_moved()};
    for (int pass = 0; pass < 2; ++pass) {
      const HeldExperts layer(4 * comm.rank(), 4);
      y.push_back(run_parts(layer, choices, 0, {}, comm, routing).first);
      moved.push_back(comm.bytes_moved());
    }
    EXPECT_TRUE(y[1].equal(y[0]));
    EXPECT_EQ(moved[1] - moved[0], moved[2] - moved[1] + 8 * kAllExperts);
    comm.barrier();
  });
}

}  // namespace
}  // namespace herd::nn
