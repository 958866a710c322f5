// The steps of a dispatch between hosts are right for any counts, on hosts of any sizes; routes and steps with a relay,
// a rank, a tag or an order changed are not.
#include "herd/nn/host_steps.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>

namespace herd::nn {
namespace {

using Kind = HostStep::Kind;

struct HostDispatch {
  std::vector<HostExchange> routes = {};
  std::vector<std::vector<HostStep>> steps = {};
  bool operator==(const HostDispatch&) const = default;
};

// The steps follow the routes, those of a mutant too.
void take_steps(HostDispatch& dispatch) {
  const auto P = static_cast<int>(dispatch.routes.size());
  dispatch.steps.clear();
  for (int rank = 0; rank < P; ++rank)
    dispatch.steps.push_back(host_steps(dispatch.routes[static_cast<size_t>(rank)], P, rank));
}

HostDispatch dispatch_of(const std::vector<int>& hosts) {
  HostDispatch out;
  for (int rank = 0; rank < static_cast<int>(hosts.size()); ++rank) out.routes.push_back(host_routes(hosts, rank));
  take_steps(out);
  return out;
}

TEST(HostSteps, AreProvedForAllCounts_OnHostsOfAnySizes) {
  for (const std::vector<int>& hosts :
       std::vector<std::vector<int>>{{0}, {0, 0, 0}, {0, 1}, {0, 0, 1, 1}, {0, 1, 2}, {0, 0, 0, 0, 0, 0, 1}}) {
    const HostDispatch dispatch = dispatch_of(hosts);
    EXPECT_EQ(unproved(dispatch.routes, dispatch.steps), "");
  }
  std::mt19937_64 random(1);
  for (int draw = 0; draw < 60; ++draw) {
    std::vector<int> hosts(1 + random() % 16);
    for (int& host : hosts) host = static_cast<int>(random() % 3);
    const HostDispatch dispatch = dispatch_of(hosts);
    EXPECT_EQ(unproved(dispatch.routes, dispatch.steps), "") << testing::PrintToString(hosts);
  }
}

TEST(HostSteps, MutantsAreFound) {
  const std::vector<int> hosts = {0, 0, 1, 1, 1, 2};
  const HostDispatch dispatch = dispatch_of(hosts);
  const auto expect_found = [&](const char* what, int fewest,
                                const std::function<void(HostDispatch&, size_t rank, size_t i)>& change) {
    int mutants = 0;
    for (size_t rank = 0; rank < hosts.size(); ++rank) {
      for (size_t i = 0; i < dispatch.steps[rank].size(); ++i) {
        HostDispatch mutant = dispatch;
        change(mutant, rank, i);
        if (mutant == dispatch) continue;
        ++mutants;
        EXPECT_NE(unproved(mutant.routes, mutant.steps), "") << what << " on rank " << rank << " at " << i;
      }
    }
    EXPECT_GE(mutants, fewest) << what;
  };
  using Parcels = std::vector<TokenParcel>;
  const auto of_parcels = [&](Parcels HostExchange::*parcels, const std::function<void(Parcels&, size_t)>& change) {
    return [parcels, change](HostDispatch& m, size_t rank, size_t i) {
      Parcels& of_rank = m.routes[rank].*parcels;
      if (i >= of_rank.size()) return;
      change(of_rank, i);
      take_steps(m);
    };
  };
  const auto leave_out = [](Parcels& parcels, size_t i) { parcels.erase(parcels.begin() + static_cast<long>(i)); };
  const auto swap_ranks = [](Parcels& parcels, size_t i) {
    std::swap(parcels[i].ranks.front(), parcels[i].ranks.back());
  };
  expect_found("a relay is left out", 6, of_parcels(&HostExchange::relayed, leave_out));
  expect_found("a parcel is left out", 6, of_parcels(&HostExchange::sent, leave_out));
  expect_found("rows of two ranks are swapped at a relay", 4, of_parcels(&HostExchange::relayed, swap_ranks));
  expect_found("rows of two ranks are swapped in a parcel", 4, of_parcels(&HostExchange::sent, swap_ranks));
  expect_found("a parcel goes to another relay", 6, of_parcels(&HostExchange::sent, [](Parcels& parcels, size_t i) {
                 parcels[i].relay = (parcels[i].relay + 1) % 6;
               }));
  expect_found("a neighbor twice", 6, [](HostDispatch& m, size_t rank, size_t i) {
    if (i >= m.routes[rank].neighbors.size()) return;
    m.routes[rank].neighbors.push_back(m.routes[rank].neighbors[i]);
    take_steps(m);
  });
  expect_found("rows go both straight and by the relay", 12, [&](HostDispatch& m, size_t rank, size_t i) {
    if (i >= hosts.size() || hosts[i] == hosts[rank]) return;
    m.routes[rank].neighbors.push_back(static_cast<int>(i));
    take_steps(m);
  });
  expect_found("rows are taken from another rank", 12, [&](HostDispatch& m, size_t rank, size_t i) {
    if (i >= hosts.size()) return;
    m.routes[rank].from[i] = (m.routes[rank].from[i] + 1) % 6;
    take_steps(m);
  });

  const auto of_step = [](const std::function<void(HostStep&)>& change) {
    return [change](HostDispatch& m, size_t rank, size_t i) { change(m.steps[rank][i]); };
  };
  const auto is_copy = [&](const HostDispatch& m, size_t rank, size_t i) {  // which has no message
    const HostStep& step = m.steps[rank][i];
    return step.rank == static_cast<int>(rank) || step.kind == Kind::kOpenParcel;
  };
  expect_found("another tag", 30, [&](HostDispatch& m, size_t rank, size_t i) {
    if (!is_copy(m, rank, i)) ++m.steps[rank][i].tag;
  });
  expect_found("the rank at the other end is another", 30, [&](HostDispatch& m, size_t rank, size_t i) {
    if (m.steps[rank][i].kind != Kind::kOpenParcel) m.steps[rank][i].rank = (m.steps[rank][i].rank + 1) % 6;
  });
  expect_found("other rows", 20, of_step([](HostStep& step) {
                 if (step.kind == Kind::kSendRows || step.kind == Kind::kHandOn) ++step.part;
               }));
  expect_found("another source", 15, of_step([](HostStep& step) {
                 if (step.kind == Kind::kReceiveRows) step.source = (step.source + 1) % 6;
               }));
  expect_found("a step twice", 30, [](HostDispatch& m, size_t rank, size_t i) {
    if (m.steps[rank][i].kind != Kind::kOpenParcel) m.steps[rank].push_back(m.steps[rank][i]);
  });
  expect_found("a step left out", 30, [](HostDispatch& m, size_t rank, size_t i) {
    m.steps[rank].erase(m.steps[rank].begin() + static_cast<long>(i));
  });
  expect_found("rows are handed on before they have come", 6, [](HostDispatch& m, size_t rank, size_t i) {
    if (m.steps[rank][i].kind == Kind::kOpenParcel) std::swap(m.steps[rank][i], m.steps[rank][i + 1]);
  });
}

TEST(HostSteps, RanksThatWaitForEachOtherBeforeTheySendAreFound) {
  HostDispatch dispatch = dispatch_of({0, 1});
  for (std::vector<HostStep>& steps : dispatch.steps) {
    const auto send = std::ranges::find(steps, Kind::kSendParcel, &HostStep::kind);
    const auto open = std::ranges::find(steps, Kind::kOpenParcel, &HostStep::kind);
    ASSERT_LT(send, open);
    std::rotate(send, send + 1, steps.end());
  }
  EXPECT_NE(unproved(dispatch.routes, dispatch.steps).find("waits for ever"), std::string::npos);
}

}  // namespace
}  // namespace herd::nn
