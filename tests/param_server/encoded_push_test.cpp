// Pushes in a codec: servers get the numbers that the codec makes of the whole key, however it is cut, in the bytes
// that are stated, and refuse what is no such message.
#include "herd/param_server/encoded_push.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <optional>
#include <vector>

#include "herd/comm/inproc_world.h"
#include "herd/param_server/parameter_server.h"
#include "herd/param_server/server_client.h"
#include "tests/kernels/codec_inputs.h"
#include "tests/support/expect_error.h"

namespace herd {
namespace {

using kernels::CodecKind;
using kernels::CodecRow;
using kernels::CodecSettings;
using kernels::ElementRange;
using kernels::heavy_tailed;

const std::vector<ElementRange> kExact = {{0, 3}, {2000, 2300}};

KeyTable keys_in(const CodecSettings& codec) {
  return KeyTable(std::vector<Key>{
      {.elements = 700, .codec = codec}, {.elements = 9000, .codec = codec, .exact = kExact}, {.elements = 5}});
}

// A worker's pushes of one key, with memory of its own.
struct Worker {
  Worker(const KeyTable& keys, int64_t index, int num_servers)
      : residual(static_cast<size_t>(keys.at(index).elements)),
        message(static_cast<size_t>(param_server::most_message_bytes(keys, index, num_servers))),
        push(keys, index, num_servers, {residual, message}) {}
  std::vector<float> residual;
  std::vector<std::byte> message;
  EncodedPush push;
};

// What the codec makes of a key's gradient, with its exact elements as they are.
std::vector<float> coded(const Key& key, std::vector<float> gradient) {
  const std::vector<float> plain = gradient;
  for (const ElementRange& range : key.exact)
    std::fill(&gradient[static_cast<size_t>(range.begin)], gradient.data() + range.end, 0.0f);
  std::vector<std::byte> encoded(static_cast<size_t>(encoded_bytes(*key.codec, key.elements)));
  kernels::encode(*key.codec, gradient.data(), key.elements, encoded.data());
  kernels::decode(*key.codec, encoded.data(), key.elements, gradient.data());
  for (const ElementRange& range : key.exact)
    std::copy(plain.begin() + range.begin, plain.begin() + range.end, gradient.begin() + range.begin);
  return gradient;
}

bool has_levels(CodecKind kind) { return kind == CodecKind::kInt8Quantiles || kind == CodecKind::kInt4Quantiles; }

TEST(EncodedPush, HasTheNumbersOfTheWholeKey_HoweverManyServersThereAre) {
  for (const CodecRow& row : kernels::codecs()) {
    const KeyTable keys = keys_in({.kind = row.kind, .ratio = 0.03});
    for (int64_t index : {0, 1}) {
      const Key& key = keys.at(index);
      const std::vector<float> gradient = heavy_tailed(key.elements), expected = coded(key, gradient);
      const float amax = std::abs(*std::ranges::max_element(gradient, {}, [](float x) { return std::abs(x); }));
      for (const int num_servers : {1, 2, 3, 7}) {
        Worker worker(keys, index, num_servers);
        worker.push.encode(gradient);
        std::vector<float> decoded(gradient.size(), 7.0f);
        size_t bytes = 0;
        for (int server = 0; server < num_servers; ++server) {
          const auto message = worker.push.messages()[static_cast<size_t>(server)];
          const ElementRange piece = keys.piece(index, server, num_servers);
          param_server::decode_message(key, piece, message, decoded.data() + piece.begin);
          bytes += message.size();
        }
        EXPECT_EQ(bytes, worker.message.size()) << row.name << ", " << num_servers << " servers";
        if (!has_levels(row.kind)) {
          ASSERT_EQ(decoded, expected) << row.name << ", " << num_servers << " servers";
          continue;
        }
        for (size_t i = 0; i < decoded.size(); ++i)  // each piece has levels of its own
          ASSERT_NEAR(decoded[i], gradient[i], row.bound.of_block_max * amax) << row.name << " " << i;
      }
    }
  }
}

TEST(EncodedPush, OfBf16IsCutFromTheWhole) {
  const KeyTable keys(std::vector<Key>{{.elements = 9000, .codec = CodecSettings{.kind = CodecKind::kBf16}}});
  const std::vector<float> gradient = heavy_tailed(9000);
  std::vector<std::byte> whole(2 * gradient.size());
  kernels::encode(*keys.at(0).codec, gradient.data(), 9000, whole.data());
  Worker worker(keys, 0, 3);
  worker.push.encode(gradient);
  const PushMessages cut = param_server::cut_message(keys, 0, 3, whole);
  ASSERT_EQ(cut.size(), 3u);
  for (size_t server = 0; server < 3; ++server)
    EXPECT_TRUE(std::ranges::equal(cut[server], worker.push.messages()[server])) << server;
}

// Two workers and servers of their own or in their processes. The servers add what they decode, in the order of
// workers.
TEST(EncodedPush, IsSummedByServers_WithWhatEarlierPushesHaveLost) {
  for (const CodecRow& row : kernels::codecs()) {
    const CodecSettings codec{.kind = row.kind, .ratio = 0.03};
    for (const bool colocated : {false, true}) {
      run_inproc(colocated ? 2 : 4, [&](Communicator& world) {
        const KeyTable keys = keys_in(codec);
        const ServerLayout layout = colocated ? colocated_servers(2, 2) : dedicated_servers(4, 2);
        const ServerOptions options{.optimizer = kernels::SgdHyper{.rate = 1}, .average = false};
        std::optional<ParameterServer> server;
        if (colocated || world.rank() >= 2) server.emplace(world, layout, keys, options);
        if (world.rank() >= 2) return server->wait();
        ServerClient client(world, layout, keys, server ? &*server : nullptr);
        Worker worker(keys, 1, 2);
        std::vector<float> weights(9000), expected(9000);
        std::vector<std::vector<float>> residuals(2, std::vector<float>(9000));
        for (int round = 1; round <= 3; ++round) {
          const auto gradient_of = [&](int rank) {
            return heavy_tailed(9000, static_cast<uint32_t>(2 * round + rank));
          };
          worker.push.encode(gradient_of(static_cast<int>(world.rank())));
          client.start_push_encoded(1, worker.push.messages()).wait();
          ASSERT_EQ(client.pull(1, weights), round);
          std::vector<std::vector<float>> terms;  // of both workers, what they have lost before included
          for (int rank = 0; rank < 2; ++rank) {
            std::vector<float> gradient = gradient_of(rank);
            auto& residual = residuals[static_cast<size_t>(rank)];
            for (size_t i = 0; i < gradient.size(); ++i) gradient[i] += residual[i];
            terms.push_back(coded(keys.at(1), gradient));
            for (size_t i = 0; i < gradient.size(); ++i) residual[i] = gradient[i] - terms.back()[i];
          }
          for (size_t i = 0; i < expected.size(); ++i) expected[i] -= terms[0][i] + terms[1][i];
          if (has_levels(row.kind)) continue;
          for (size_t i = 0; i < expected.size(); ++i)
            ASSERT_NEAR(weights[i], expected[i], 1e-5 * (1 + std::abs(expected[i]))) << row.name << " " << i;
        }
      });
    }
  }
}

TEST(EncodedPush, MixesWithPlainPushes) {
  run_inproc(2, [](Communicator& world) {
    const KeyTable keys = keys_in({.kind = CodecKind::kTopK, .ratio = 0.5});
    const ServerLayout layout = dedicated_servers(2, 1);
    if (world.rank() == 1)
      return ParameterServer(world, layout, keys, {.optimizer = kernels::SgdHyper{.rate = 1}}).wait();
    ServerClient client(world, layout, keys);
    Worker worker(keys, 0, 1);
    std::vector<float> gradient(700), weights(700);
    gradient[5] = 3;
    client.push(0, gradient);
    client.pull(0, weights);
    worker.push.encode(gradient);
    client.start_push_encoded(0, worker.push.messages()).wait();
    client.pull(0, weights);
    EXPECT_EQ(weights[5], -6);
    EXPECT_EQ(weights[4], 0);
  });
}

TEST(EncodedPush, RefusesWhatIsNoMessageOfTheKey_AndGoesOn) {
  run_inproc(2, [](Communicator& world) {
    const KeyTable keys = keys_in({.kind = CodecKind::kTopK, .ratio = 0.01});
    const ServerLayout layout = dedicated_servers(2, 1);
    if (world.rank() == 1)
      return ParameterServer(world, layout, keys, {.optimizer = kernels::SgdHyper{.rate = 1}}).wait();
    ServerClient client(world, layout, keys);
    std::vector<std::byte> bytes(64);
    const auto message = [&](size_t size) { return PushMessages{std::span<const std::byte>(bytes).first(size)}; };
    EXPECT_ERROR((void)client.start_push_encoded(0, message(60)), Code::kBadConfig, "has 60 bytes for 700 elements",
                 "takes 0 to 56 bytes in topk");
    EXPECT_ERROR((void)client.start_push_encoded(0, message(20)), Code::kBadConfig, "has 20 bytes");
    EXPECT_ERROR((void)client.start_push_encoded(2, message(0)), Code::kBadConfig, "takes no encoded pushes",
                 "fix: a codec in the key table");
    EXPECT_ERROR((void)client.start_push_encoded(3, message(0)), Code::kBadConfig, "key 3 is unknown");
    EXPECT_ERROR((void)client.start_push_encoded(0, {}), Code::kBadConfig, "messages for 0 servers, but there are 1");
    const uint32_t outside = 700;
    std::memcpy(bytes.data() + 4, &outside, sizeof(outside));
    EXPECT_ERROR(client.start_push_encoded(0, message(8)).wait(), Code::kBug, "server 0 (rank 1), in a push of key 0",
                 "names element 700 of 700");
    const uint32_t last = 699;
    std::memcpy(bytes.data() + 4, &last, sizeof(last));
    client.start_push_encoded(0, message(8)).wait();
    std::vector<float> weights(700);
    EXPECT_EQ(client.pull(0, weights), 1) << "what was refused is no push";
  });
}

TEST(EncodedPush, NeedsTheSameCodecOnAllRanks_AndKeysWithoutRows) {
  const CodecSettings int8{.kind = CodecKind::kInt8};
  const auto table = [](const Key& key) { return KeyTable(std::vector<Key>{key}); };
  const uint64_t plain = table({.elements = 512}).fingerprint(),
                 coded = table({.elements = 512, .codec = int8}).fingerprint();
  EXPECT_NE(plain, coded);
  EXPECT_NE(coded, table({.elements = 512, .codec = CodecSettings{.kind = CodecKind::kInt4}}).fingerprint());
  EXPECT_NE(coded, table({.elements = 512, .codec = int8, .exact = {{0, 1}}}).fingerprint());
  EXPECT_ERROR(table({.elements = 512, .row_elements = 2, .codec = int8}), Code::kBadConfig,
               "key 0 has rows of 2 elements and a codec");
}

TEST(EncodedPush, IsCutBetweenBlocks) {
  const KeyTable keys(std::vector<Key>{{.elements = 10'001, .codec = CodecSettings{.kind = CodecKind::kInt8}}});
  for (const int num_servers : {1, 2, 3, 5}) {
    int64_t begin = 0;
    for (int server = 0; server < num_servers; ++server) {
      const ElementRange piece = keys.piece(0, server, num_servers);
      EXPECT_EQ(piece.begin, begin);
      EXPECT_EQ(piece.begin % 256, 0);
      EXPECT_NEAR(static_cast<double>(piece.size()), 10'001.0 / num_servers, 256);
      begin = piece.end;
    }
    EXPECT_EQ(begin, 10'001);
  }
}

}  // namespace
}  // namespace herd
