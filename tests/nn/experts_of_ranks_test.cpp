// Experts that ranks hold together give what one rank with all of them gives: outputs, and the gradients of inputs, of
// weights and of the experts, whatever the routing; and they send the rows that leave a rank, nothing else. Between
// hosts they send each token once, and give the same bits.
#include "herd/nn/experts_of_ranks.h"

#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <mutex>

#include "herd/comm/inproc_world.h"
#include "test_tensors_internal.h"

namespace herd::nn {
namespace {

constexpr int64_t kAllExperts = 8, kRowWidth = 6, kHiddenWidth = 7;

struct HeldExperts {
  HeldExperts(int64_t first, int64_t held)
      : owned({of("gate", {kAllExperts, kHiddenWidth, kRowWidth}, first, held),
               of("up", {kAllExperts, kHiddenWidth, kRowWidth}, first, held),
               of("down", {kAllExperts, kRowWidth, kHiddenWidth}, first, held)}),
        parameters{owned.group->find("gate"), owned.group->find("up"), owned.group->find("down")} {}
  static ParameterSpec of(const char* name, std::vector<int64_t> sizes, int64_t first, int64_t held) {
    return cut({name, std::move(sizes), true, Init::kNormal, 0.7}, 0, {{first, first + held}});
  }
  OwnedGroup owned;
  ExpertParameters parameters;
};

// The tokens and choices of each rank.
struct RoutedTokens {
  std::string name;
  std::vector<at::Tensor> experts_Nk;
};

struct RanksResults {
  std::vector<at::Tensor> y, dx, dw;  // by rank
  std::vector<at::Tensor> gate, up, down;
  std::vector<uint64_t> sent;
};

at::Tensor rows_of(const at::Tensor& experts_Nk, size_t rank) {
  return wave({experts_Nk.size(0), kRowWidth}, 0.9 + 0.1 * static_cast<double>(rank));
}
at::Tensor shares_of(const at::Tensor& experts_Nk, size_t rank) {
  return wave(experts_Nk.sizes(), 0.4 + 0.1 * static_cast<double>(rank)).abs().add(0.1);
}
at::Tensor output_gradient_of(const at::Tensor& experts_Nk, size_t rank) {
  return wave({experts_Nk.size(0), kRowWidth}, 1.3 + 0.1 * static_cast<double>(rank));
}

// Runs the tokens of all ranks: each on a rank of its own that holds part of the experts, or one after the other on one
// that holds all. `hosts` has the host of each rank; empty = they share one.
RanksResults run_tokens(const RoutedTokens& routed, bool together, const std::vector<int>& hosts = {}) {
  const size_t P = routed.experts_Nk.size();
  RanksResults out;
  for (auto* list : {&out.y, &out.dx, &out.dw, &out.gate, &out.up, &out.down}) list->resize(P);
  out.sent.resize(P);
  const auto pass = [&](size_t rank, HeldExperts& layer, Communicator* comm) {
    const at::AutoGradMode with_grad(true);
    const at::Tensor& chosen = routed.experts_Nk[rank];
    const at::Tensor x = rows_of(chosen, rank).requires_grad_(), w = shares_of(chosen, rank).requires_grad_();
    const Routing routing{w, chosen, {}};
    const at::Tensor y = comm == nullptr ? experts(x, routing, layer.parameters)
                                         : experts_of_ranks(x, routing, layer.parameters, kAllExperts, *comm, hosts);
    const auto gradients = torch::autograd::grad({y}, {x, w, layer.parameters.gate.value()},
                                                 {output_gradient_of(chosen, rank)}, false, false, true);
    out.y[rank] = y.detach(), out.dx[rank] = gradients[0], out.dw[rank] = gradients[1];
  };
  const auto keep = [&](size_t rank, const HeldExperts& layer) {
    out.gate[rank] = layer.parameters.gate.gradient().clone();
    out.up[rank] = layer.parameters.up.gradient().clone();
    out.down[rank] = layer.parameters.down.gradient().clone();
  };
  if (!together) {
    HeldExperts layer(0, kAllExperts);
    for (size_t rank = 0; rank < P; ++rank) pass(rank, layer, nullptr);
    keep(0, layer);
    return out;
  }
  const auto held = kAllExperts / static_cast<int64_t>(P);
  const auto body = [&](Communicator& comm) {
    EXPECT_EQ(hosts_of_ranks(comm), hosts);
    const auto rank = static_cast<size_t>(comm.rank());
    HeldExperts layer(held * comm.rank(), held);
    const uint64_t before = comm.bytes_moved();
    pass(rank, layer, &comm);
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
        EXPECT_LE(relative_difference(many.dw[rank], one.dw[rank]), 2e-6) << what << " dw";
      }
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
        EXPECT_TRUE(several.dw[rank].equal(one.dw[rank])) << what << " dw";
        EXPECT_TRUE(several.gate[rank].equal(one.gate[rank])) << what << " gate";
        EXPECT_TRUE(several.up[rank].equal(one.up[rank])) << what << " up";
        EXPECT_TRUE(several.down[rank].equal(one.down[rank])) << what << " down";
      }
    }
  }
}

// Passes over the same choices tell the counts once.
TEST(ExpertsOfRanks, TellCountsOnce) {
  const at::Tensor choices = routed_tokens(2)[0].experts_Nk[0];
  run_inproc(2, [&](Communicator& comm) {
    HeldExperts layer(4 * comm.rank(), 4);
    std::shared_ptr<const RowTransfer> kept;
    const Routing routing{shares_of(choices, 0), choices, {}};
    std::vector<at::Tensor> y;
    std::vector<uint64_t> moved = {comm.bytes_moved()};
    for (int pass = 0; pass < 2; ++pass) {
      y.push_back(experts_of_ranks(rows_of(choices, 0), routing, layer.parameters, kAllExperts, comm, {}, &kept));
      moved.push_back(comm.bytes_moved());
    }
    EXPECT_TRUE(y[1].equal(y[0]));
    EXPECT_EQ(moved[1] - moved[0], moved[2] - moved[1] + 8 * kAllExperts);
    comm.barrier();
  });
}

}  // namespace
}  // namespace herd::nn
