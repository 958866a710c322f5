// Rows that go to the ranks of their experts by way of another host's ranks are those that go straight, to the bit, in
// 32 bits and in 16, with weights and without; and between hosts each token goes once.
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <numeric>
#include <random>
#include <set>
#include <sstream>

#include "herd/comm/inproc_world.h"
#include "herd/nn/row_transfer_internal.h"
#include "test_tensors_internal.h"

namespace herd::nn {
namespace {

// The tokens of one rank, of which each chooses two experts at random, dispatched with and without weights.
struct DispatchOfRanks {
  std::vector<std::vector<at::Tensor>> rows, weighted;  // by type, by rank: those that come
  uint64_t sent = 0;                                    // by all ranks, of fp32 without weights
  uint64_t counted = 0, all_sent = 0;                   // by all ranks in all of it: as the transfers say, as it moved
};

constexpr int64_t kDrawnTokens = 500, kDrawnWidth = 64, kDrawnExperts = 8;

at::Tensor drawn_choices(int rank) {
  std::mt19937_64 random(static_cast<uint64_t>(rank) + 1);
  std::vector<int64_t> all(kDrawnExperts), chosen;
  std::iota(all.begin(), all.end(), 0);
  for (int64_t n = 0; n < kDrawnTokens; ++n) {
    std::shuffle(all.begin(), all.end(), random);
    chosen.insert(chosen.end(), all.begin(), all.begin() + 2);
  }
  return at::tensor(chosen, at::kLong).view({kDrawnTokens, 2});
}

DispatchOfRanks dispatch_drawn(const std::vector<int>& hosts, bool once) {
  DispatchOfRanks out{std::vector(2, std::vector<at::Tensor>(hosts.size())), {}, 0};
  out.weighted = out.rows;
  std::mutex mutex;
  run_inproc(
      static_cast<int>(hosts.size()),
      [&](Communicator& comm) {
        const at::Tensor choices = drawn_choices(comm.rank());
        const RowOrder order = order_rows(choices, kDrawnExperts);
        const uint64_t begin = comm.bytes_moved();
        const RowTransfer transfer(order, once ? std::span<const int>(hosts) : std::span<const int>(), comm);
        const at::Tensor weights = wave({2 * kDrawnTokens}, 0.3 + comm.rank());
        const auto rank = static_cast<size_t>(comm.rank());
        for (const size_t type : {0, 1}) {
          const at::Tensor values =
              wave({kDrawnTokens, kDrawnWidth}, 0.7 + comm.rank()).to(type == 0 ? at::kFloat : at::kBFloat16);
          const at::Tensor rows = values.index_select(0, order.tokens_P);
          const uint64_t before = comm.bytes_moved();
          out.rows[type][rank] = transfer.dispatch(rows, values, {}, "rows");
          const uint64_t sent = comm.bytes_moved() - before;
          const at::Tensor weighted = rows.to(at::kFloat).mul(weights.unsqueeze(1)).to(rows.scalar_type());
          out.weighted[type][rank] = transfer.dispatch(weighted, values, weights, "weighted rows");
          const std::lock_guard lock(mutex);
          if (type == 0) out.sent += sent;
        }
        transfer.bring_back(out.rows[0][rank], "outputs");
        {
          const std::lock_guard lock(mutex);
          out.counted += static_cast<uint64_t>(transfer.sent_bytes());
          out.all_sent += comm.bytes_moved() - begin;
        }
        comm.barrier();
      },
      hosts);
  return out;
}

// Says how many elements differ, and where and by how much at first.
std::string differences(const at::Tensor& got, const at::Tensor& expected) {
  const at::Tensor where = got.ne(expected).nonzero();
  std::ostringstream text;
  text << where.size(0) << " of " << got.numel() << " elements";
  if (where.size(0) == 0) return text.str();
  const int64_t row = where[0][0].item<int64_t>(), column = where[0][1].item<int64_t>();
  text << ", first of row " << row << ", column " << column << ": " << got[row][column].item<float>() << ", not "
       << expected[row][column].item<float>() << "; last of row " << where[-1][0].item<int64_t>();
  return text.str();
}

// Two hosts of two ranks under a uniform router: of 8 experts a token chooses 2, of which one or both are on the other
// host with 1 - 6/28 = 0.786.
TEST(RowTransfer, SendsTokensOnceBetweenHosts) {
  const std::vector<int> hosts = {0, 0, 1, 1};
  const DispatchOfRanks straight = dispatch_drawn(hosts, false), once = dispatch_drawn(hosts, true);
  for (const size_t type : {0, 1}) {
    for (size_t rank = 0; rank < hosts.size(); ++rank) {
      EXPECT_TRUE(once.rows[type][rank].equal(straight.rows[type][rank]));
      EXPECT_TRUE(once.weighted[type][rank].equal(straight.weighted[type][rank]))
          << "type " << type << ", rank " << rank << ": "
          << differences(once.weighted[type][rank], straight.weighted[type][rank]);
    }
  }
  EXPECT_EQ(straight.counted, straight.all_sent);
  EXPECT_EQ(once.counted, once.all_sent);
  uint64_t tokens = 0, rows = 0, in_host = 0, handed_on = 0;  // the first two are those between hosts
  for (int source = 0; source < 4; ++source) {
    const at::Tensor choices = drawn_choices(source);
    for (int64_t n = 0; n < kDrawnTokens; ++n) {
      std::set<int> reached;  // ranks of the other host
      for (const int64_t j : {0, 1}) {
        const int target = static_cast<int>(choices[n][j].item<int64_t>() / 2);
        if (hosts[static_cast<size_t>(target)] == hosts[static_cast<size_t>(source)]) {
          if (target != source) ++in_host;
          continue;
        }
        ++rows, reached.insert(target);
        if (target % 2 != source % 2) ++handed_on;  // a relay has its source's place on the host
      }
      tokens += reached.empty() ? 0 : 1;
    }
  }
  EXPECT_EQ(straight.sent, 4 * kDrawnWidth * (rows + in_host));
  EXPECT_EQ(once.sent, 4 * kDrawnWidth * (tokens + in_host + handed_on));
  const double bytes = 4.0 * kDrawnWidth * static_cast<double>(tokens) + 4.0 * static_cast<double>(rows);
  EXPECT_LE(bytes / (4.0 * kDrawnWidth * static_cast<double>(rows)), 0.81);
  EXPECT_LE(static_cast<double>(tokens), 0.80 * static_cast<double>(rows));
}

}  // namespace
}  // namespace herd::nn
