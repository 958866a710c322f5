// Sums of encoded arrays: the same bits on all ranks, within the bounds of the codec, at the bytes of the equation; and
// what is lost in one sum comes with the next.
#include "herd/comm/encoded_sum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>

#include "herd/comm/inproc_world.h"
#include "tests/comm/require.h"
#include "tests/kernels/codec_inputs.h"
#include "tests/support/sample.h"

namespace herd::comm {
namespace {

using kernels::CodecKind;
using kernels::CodecRow;
using kernels::CodecSettings;
using kernels::ElementRange;
using kernels::EncodedParts;
using kernels::heavy_tailed;
using testing_support::require;

struct Sum {
  Sum(const CodecSettings& codec, int64_t elements, Communicator& comm, std::vector<ElementRange> exact_ranges = {})
      : parts{codec, elements, comm.size()},
        residual(static_cast<size_t>(parts.residual_elements())),
        message(parts.is_sparse() ? 0 : static_cast<size_t>(parts.message_bytes())),
        incoming(static_cast<size_t>(parts.incoming_bytes())) {
    int64_t num_exact = 0;
    for (const ElementRange& range : exact_ranges) num_exact += range.size();
    exact.resize(static_cast<size_t>(num_exact));
    sum.emplace(parts, std::move(exact_ranges), comm.rank(), EncodedSum::Memory{residual, message, incoming, exact});
  }
  std::vector<float> of(const std::vector<float>& terms, Communicator& comm) {
    std::vector<float> sums(terms.size(), 7.0f);
    sum->encode(terms);
    sum->exchange(comm);
    sum->decode(sums);
    return sums;
  }

  EncodedParts parts;
  std::vector<float> residual;
  std::vector<uint8_t> message, incoming;
  std::vector<float> exact;
  std::optional<EncodedSum> sum;
};

// Sums in double precision of what ranks 0..n-1 hold.
std::vector<double> exact_sums(int n, int64_t elements) {
  std::vector<double> sums(static_cast<size_t>(elements));
  for (int rank = 0; rank < n; ++rank) {
    const std::vector<float> terms = heavy_tailed(elements, static_cast<uint32_t>(rank));
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += terms[i];
  }
  return sums;
}

std::vector<std::vector<float>> sums_of_all_ranks(int n, const std::function<std::vector<float>(Communicator&)>& body) {
  std::vector<std::vector<float>> results(static_cast<size_t>(n));
  run_inproc(n, [&](Communicator& comm) { results[static_cast<size_t>(comm.rank())] = body(comm); });
  return results;
}

class EncodedSumOfRanks : public testing::TestWithParam<int> {};

TEST_P(EncodedSumOfRanks, HasTheSameBitsOnAllRanksAndInEveryRun_WithinTheCodecsBound) {
  const int n = GetParam();
  for (const CodecRow& row : kernels::codecs()) {
    for (const int64_t elements : {int64_t{0}, int64_t{1}, int64_t{n - 1}, int64_t{n}, int64_t{255}, int64_t{257},
                                   int64_t{256 * n}, int64_t{256 * n + 1}, int64_t{5001}}) {
      const CodecSettings codec{.kind = row.kind, .ratio = 0.1};
      const auto body = [&](Communicator& comm) {
        std::vector<float> values = heavy_tailed(elements, static_cast<uint32_t>(comm.rank()));
        all_reduce_encoded(comm, values, codec);
        return values;
      };
      const auto results = sums_of_all_ranks(n, body);
      for (const auto& other : results) ASSERT_EQ(other, results[0]) << row.name << " " << elements;
      ASSERT_EQ(sums_of_all_ranks(n, body)[0], results[0]) << row.name;
      if (row.kind == CodecKind::kTopK) continue;
      // Each term is off by its own error, and the sum by that of its own encoding.
      double amax = 0, amax_of_sum = 0;
      const std::vector<double> expected = exact_sums(n, elements);
      for (int rank = 0; rank < n; ++rank)
        for (const float x : heavy_tailed(elements, static_cast<uint32_t>(rank)))
          amax = std::max(amax, std::abs(double{x}));
      for (const double x : expected) amax_of_sum = std::max(amax_of_sum, std::abs(x));
      const double relative = std::max(row.bound.of_block_max, row.bound.of_value);
      const double bound = relative * (n * amax + (amax_of_sum + relative * n * amax)) + 1e-5 * amax_of_sum;
      for (size_t i = 0; i < expected.size(); ++i)
        ASSERT_NEAR(results[0][i], expected[i], bound) << row.name << " " << elements << " " << i;
    }
  }
}

TEST_P(EncodedSumOfRanks, OfListsIsTheSumOfTheirUnion) {
  const int n = GetParam();
  const int64_t elements = 1000;
  const auto results = sums_of_all_ranks(n, [&](Communicator& comm) {
    std::vector<float> values(static_cast<size_t>(elements), 0.25f);
    values[static_cast<size_t>(comm.rank())] = 8;       // of its own
    values[500] = static_cast<float>(4 + comm.rank());  // of all ranks
    all_reduce_encoded(comm, values, {.kind = CodecKind::kTopK, .ratio = 0.002});
    return values;
  });
  std::vector<float> expected(static_cast<size_t>(elements));
  for (int rank = 0; rank < n; ++rank)
    expected[static_cast<size_t>(rank)] += 8, expected[500] += static_cast<float>(4 + rank);
  for (const auto& result : results) EXPECT_EQ(result, expected);
}

TEST_P(EncodedSumOfRanks, SendsTheBytesOfTheEquation) {
  const int n = GetParam();
  std::vector<int> hosts(static_cast<size_t>(n));
  std::iota(hosts.begin(), hosts.end(), 0);
  for (const CodecRow& row : kernels::codecs()) {
    for (const int64_t elements : {int64_t{256 * n}, int64_t{200001}}) {
      run_inproc(
          n,
          [&](Communicator& comm) {
            Sum sum({.kind = row.kind}, elements, comm);
            sum.sum->encode(heavy_tailed(elements));
            const uint64_t before = comm.bytes_moved();
            sum.sum->exchange(comm);
            const auto mine = static_cast<int64_t>(comm.bytes_moved() - before);
            std::vector<int64_t> all(static_cast<size_t>(n));
            comm.all_gather(std::vector<int64_t>{mine}, all);
            int64_t expected = 0;
            for (int rank = 0; rank < n; ++rank) expected += sum.parts.sent_bytes(rank);
            const int64_t total = std::accumulate(all.begin(), all.end(), int64_t{0});
            // The group chooses the gather by the speeds it measured: one of fewer rounds sends more than the equation.
            require(total >= expected && total <= 2 * expected,
                    std::string(row.name) + " of " + std::to_string(elements) + ": " + std::to_string(total) +
                        " bytes, the equation has " + std::to_string(expected));
          },
          hosts);
    }
  }
}

// With feedback the mean of many sums of the same terms goes to the exact sum, at least as 1/steps.
TEST_P(EncodedSumOfRanks, BringsWhatItLosesWithLaterSums) {
  const int n = GetParam(), steps = 80;
  const int64_t elements = 600;
  for (const CodecKind kind : {CodecKind::kInt8, CodecKind::kInt4, CodecKind::kInt4Quantiles, CodecKind::kTopK}) {
    const std::vector<double> expected = exact_sums(n, elements);
    run_inproc(n, [&](Communicator& comm) {
      Sum sum({.kind = kind, .ratio = 0.05}, elements, comm);
      const std::vector<float> terms = heavy_tailed(elements, static_cast<uint32_t>(comm.rank()));
      std::vector<double> mean(expected.size());
      for (int step = 0; step < steps; ++step) {
        const std::vector<float> sums = sum.of(terms, comm);
        for (size_t i = 0; i < mean.size(); ++i) mean[i] += sums[i] / double{steps};
      }
      double error = 0, all = 0;
      for (size_t i = 0; i < mean.size(); ++i) {
        error += (mean[i] - expected[i]) * (mean[i] - expected[i]);
        all += expected[i] * expected[i];
      }
      require(error < 0.01 * all, std::string(kernels::codec_row(kind).name) + ": " + std::to_string(error / all));
    });
  }
}

TEST_P(EncodedSumOfRanks, SumsExactElementsInFp32) {
  const int n = GetParam();
  const int64_t elements = 600;
  for (const CodecRow& row : kernels::codecs()) {
    run_inproc(n, [&](Communicator& comm) {
      Sum sum({.kind = row.kind, .ratio = 0.01}, elements, comm, {{0, 3}, {256, 300}});
      std::vector<float> terms(static_cast<size_t>(elements), 1000.0f);
      for (const ElementRange range : {ElementRange{0, 3}, ElementRange{256, 300}})
        std::fill(terms.begin() + range.begin, terms.begin() + range.end, 0.125f);
      for (int step = 0; step < 2; ++step) {
        const std::vector<float> sums = sum.of(terms, comm);
        for (const ElementRange range : {ElementRange{0, 3}, ElementRange{256, 300}})
          for (int64_t i = range.begin; i < range.end; ++i) {
            require(sums[static_cast<size_t>(i)] == 0.125f * static_cast<float>(n), "an exact sum");
            require(sum.residual[static_cast<size_t>(i)] == 0, "an exact element has no error");
          }
      }
    });
  }
}

TEST_P(EncodedSumOfRanks, KeepsWhatIsNotFinite) {
  const int n = GetParam();
  for (const CodecRow& row : kernels::codecs()) {
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      const auto results = sums_of_all_ranks(n, [&](Communicator& comm) {
        std::vector<float> values = heavy_tailed(1000, static_cast<uint32_t>(comm.rank()));
        if (comm.rank() == n - 1) values[777] = bad;
        all_reduce_encoded(comm, values, {.kind = row.kind});
        return values;
      });
      for (const auto& result : results) EXPECT_FALSE(std::isfinite(result[777])) << row.name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, EncodedSumOfRanks,
                         testing::ValuesIn(one_in(2, 2) > 1 ? std::vector<int>{1, 2, 3, 5}
                                                            : std::vector<int>{1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 17}));

}  // namespace
}  // namespace herd::comm
