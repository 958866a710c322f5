#include "herd/net/secure_socket.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/net/pair.h"

namespace herd::net {
namespace {

using testing::HasSubstr;
using testing_support::Pair;
using testing_support::until;

std::vector<std::byte> counted(size_t bytes) {
  std::vector<std::byte> all(bytes);
  for (size_t i = 0; i < bytes; ++i) all[i] = static_cast<std::byte>(i * 7 + i / 256);
  return all;
}

// `bytes` of them from one end to the other.
std::vector<std::byte> carried(SecureSocket& from, SecureSocket& to, const std::vector<std::byte>& bytes) {
  std::vector<std::byte> arrived(bytes.size());
  size_t sent = 0, got = 0;
  until([&] { return got == bytes.size(); },
        [&] {
          while (const size_t more = from.write(std::span(bytes).subspan(sent))) sent += more;
          while (const size_t more = to.read(std::span(arrived).subspan(got))) got += more;
        });
  arrived.resize(got);
  return arrived;
}

TEST(SecureSocket, CarriesBytesBothWays_AndKnowsWhoConnected) {
  Pair pair;
  pair.meet();
  ASSERT_NE(pair.server, nullptr);
  EXPECT_EQ(pair.server->peer_name(), "rank 3");
  for (const size_t bytes : {size_t{1}, size_t{16384}, size_t{16385}, size_t{3'000'001}}) {
    EXPECT_EQ(carried(*pair.client, *pair.server, counted(bytes)), counted(bytes));
    EXPECT_EQ(carried(*pair.server, *pair.client, counted(bytes)), counted(bytes));
  }
}

TEST(SecureSocket, AnotherKeyOpensNothing_AndBothEndsSayWhy) {
  Pair pair(std::string(32, 'k'), std::string(31, 'k') + "j");
  pair.meet();
  until([&] { return pair.listener.refused() > 0; }, [&] { pair.listener.accept(); });
  EXPECT_EQ(pair.server, nullptr);
  EXPECT_FALSE(pair.client->is_open());
  EXPECT_THAT(pair.client->end_reason(), HasSubstr("no handshake with this job's token"));
  EXPECT_EQ(pair.listener.refused(), 1);
  EXPECT_THAT(pair.listener.last_refusal(), HasSubstr("no handshake with this job's token"));
}

TEST(SecureSocket, ThePeersEndIsSaid_AndWritingToItRaisesNoSignal) {
  Pair pair;
  pair.meet();
  ASSERT_NE(pair.server, nullptr);
  pair.server.reset();
  const std::vector<std::byte> bytes = counted(1 << 20);
  until([&] { return !pair.client->end_reason().empty(); }, [&] { pair.client->write(bytes); });
  EXPECT_NE(pair.client->end_reason(), "");
  EXPECT_EQ(pair.client->write(bytes), 0u);
}

TEST(SecureSocket, NothingReadableIsOnTheWire) {
  Pair pair;
  pair.meet();
  ASSERT_NE(pair.server, nullptr);
  // What the kernel holds for the other end is what an eavesdropper sees.
  const std::string secret = "the weights of the model, forty bytes...";
  pair.client->write(std::as_bytes(std::span(secret)));
  std::string seen(4096, '\0');
  ssize_t got = 0;
  until([&] { return (got = recv(pair.server->descriptor(), seen.data(), seen.size(), MSG_PEEK | MSG_DONTWAIT)) > 0; },
        [] {});
  ASSERT_GT(got, static_cast<ssize_t>(secret.size()));
  EXPECT_EQ(seen.find(secret.substr(0, 8)), std::string::npos);
  std::string arrived(secret.size(), '\0');
  until([&] { return pair.server->read(std::as_writable_bytes(std::span(arrived))) == secret.size(); }, [] {});
  EXPECT_EQ(arrived, secret);
}

}  // namespace
}  // namespace herd::net
