// Runs whose ranks push encoded gradients to parameter servers: losses are those of the same codec without servers,
// the wire carries the encoded bytes, and how many ranks serve changes no bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "herd/kernels/codec.h"
#include "tests/support/expect_error.h"
#include "trained_difference.h"

namespace herd::train {
namespace {

spec::RunFile coded_run(const std::string& sync, const std::string& codec, const std::string& more = "") {
  return tiny_run("clip = 0\n[strategy]\nsync = \"" + sync + "\"\ncompression = \"" + codec +
                  "\"\ncompression_ratio = 0.1\n" + more);
}

// An all-reduce of top-k adds the same lists in the same order. One in blocks encodes the sum once more, and in bf16
// rounds it; servers do not. All are near to what nobody encodes.
TEST(ServerCodec, TrainsAsAnAllReduceInTheSameCodec) {
  const int steps = 8;
  const Trained plain = train_in_threads(coded_run("server", "none"), 2, steps);
  for (const std::string codec : {"topk", "int8", "int4", "bf16"}) {
    const Trained served = train_in_threads(coded_run("server", codec), 2, steps),
                  reduced = train_in_threads(coded_run("all_reduce", codec), 2, steps);
    EXPECT_LE(most_apart(served, reduced), codec == "topk" ? 0 : 0.01) << codec;
    EXPECT_LE(most_apart(served, plain), 0.03) << codec;
    EXPECT_GT(most_apart(served, plain), 0) << codec << " changes nothing";
  }
}

TEST(ServerCodec, HasTheSameBits_HoweverManyRanksServe) {
  for (const std::string codec : {"topk", "int8", "bf16"}) {
    std::optional<Trained> first;
    for (const int servers : {1, 2, 3}) {
      spec::RunFile run = coded_run("server", codec);
      run.model.width = 48, run.model.heads = 4, run.model.head_width = 12, run.model.ffn = 144;
      run.model.kv_heads = 4;
      run.strategy.servers = servers;
      const Trained served = train_in_threads(run, 3, 3);
      if (!first) first = served;
      EXPECT_EQ(most_apart(served, *first), 0) << codec << ", " << servers << " servers";
    }
  }
}

// A list of all elements loses nothing.
TEST(ServerCodec, EqualsPlainPushes_WhereNothingIsLost) {
  spec::RunFile run = coded_run("server", "topk");
  run.strategy.compression_ratio = 1;
  EXPECT_EQ(most_apart(train_in_threads(run, 3, 6), train_in_threads(coded_run("server", "none"), 3, 6)), 0);
  run = coded_run("server", "int4");
  run.strategy.compression_exclude = "*";
  EXPECT_EQ(most_apart(train_in_threads(run, 2, 4), train_in_threads(coded_run("server", "none"), 2, 4)), 0);
}

TEST(ServerCodec, PushesGradientsAsTheyAre_InItsWarmup) {
  const Trained plain = train_in_threads(coded_run("server", "none"), 2, 6);
  for (const std::string codec : {"topk", "int8"}) {
    const Trained warmed = train_in_threads(coded_run("server", codec, "compression_warmup = 4\n"), 2, 6);
    for (size_t i = 0; i < 5; ++i) EXPECT_EQ(warmed.losses[i], plain.losses[i]) << codec << " step " << i;
    EXPECT_NE(warmed.losses[5], plain.losses[5]) << codec;
  }
}

// Of E encoded and M plain bytes a worker sends E and gets M; each of k servers gets n * E/k, and sends n * M/k; what a
// rank gives to itself moves nothing.
TEST(ServerCodec, SendsTheBytesOfItsEquation) {
  for (const std::string codec : {"int8", "topk"}) {
    spec::RunFile run = coded_run("server", codec);
    run.model.width = 64, run.model.heads = 4, run.model.head_width = 16, run.model.kv_heads = 4;
    run.health.check_finite = false;
    const spec::ModelTable table = spec::program_table(run, 1);
    const kernels::CodecSettings settings{.kind = kernels::find_codec(codec)->kind, .ratio = 0.1};
    double plain = 0, encoded = 0;
    for (const spec::ParameterGroupShape& group : table.groups) {
      int64_t elements = 0, exact = 0;
      for (const spec::ParameterShape& parameter : group.parameters) {
        elements += parameter.elements();
        if (parameter.sizes.size() == 1) exact += parameter.elements();
      }
      plain += 4.0 * static_cast<double>(elements);
      encoded += static_cast<double>((elements == exact ? 0 : encoded_bytes(settings, elements)) + 4 * exact);
    }
    ASSERT_LT(encoded, 0.4 * plain);
    for (const auto& [ranks, servers] : {std::pair{2, 1}, {3, 2}}) {
      run.strategy.servers = servers;
      const std::vector<int64_t> sent = train_in_threads(run, ranks, 3).sent;
      // Top-k chooses more of some parts than of others: servers together get what is stated.
      double all = 0;
      for (const int64_t bytes : sent) all += static_cast<double>(bytes);
      const double expected = (ranks - 1) * (encoded + plain);
      EXPECT_NEAR(all, expected, 0.02 * expected + 4096 * 4) << codec << " " << ranks << " ranks, " << servers;
      if (codec != "int8") continue;
      for (int rank = 0; rank < ranks; ++rank) {
        const double share = rank < servers ? 1.0 / servers : 0;
        const double of_rank = (1 - share) * encoded + (ranks - 1) * share * plain;
        EXPECT_NEAR(static_cast<double>(sent[static_cast<size_t>(rank)]), of_rank, 0.02 * of_rank + 4096 * 4)
            << "rank " << rank << " of " << ranks << ", " << servers << " servers";
      }
    }
  }
}

TEST(ServerCodec, StopsAtAGradientThatIsNotFinite) {
  for (const std::string codec : {"int8", "bf16"}) {
    spec::RunFile run = coded_run("server", codec);
    run.optimizer.lr = 1e30;
    EXPECT_ERROR(train_in_threads(run, 2, 8), Code::kBadConfig, "is not finite on rank", "fix: lower optimizer.lr");
  }
}

}  // namespace
}  // namespace herd::train
