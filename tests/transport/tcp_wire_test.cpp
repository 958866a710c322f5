#include "herd/transport/tcp_wire.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <random>

#include "herd/base/error.h"
#include "herd/net/address.h"
#include "herd/net/secure_socket.h"
#include "tests/net/pair.h"

namespace herd::transport {
namespace {

using testing::HasSubstr;
using testing_support::dial;
using testing_support::until;

const std::string kKey(32, 'k');

struct Arrived {
  FrameHeader header;
  std::vector<std::byte> payload;
};

struct Wires {
  explicit Wires(int size) {
    std::vector<std::string> addresses;
    arrived.resize(static_cast<size_t>(size));
    for (Rank rank = 0; rank < size; ++rank) {
      wires.push_back(open_tcp({.rank = rank, .size = size, .interfaces = "lo", .key = kKey}));
      addresses.push_back(wires.back()->address());
    }
    for (size_t i = 0; i < wires.size(); ++i) {
      wires[i]->set_handler([this, i](const FrameHeader& header, std::span<const std::byte> payload) {
        EXPECT_EQ(reinterpret_cast<uintptr_t>(payload.data()) % 16, 0u);
        arrived[i].push_back({header, {payload.begin(), payload.end()}});
      });
      wires[i]->connect(addresses);
    }
  }
  bool turn_until(const std::function<bool()>& done) {
    return until(done, [&] {
      for (int i = 0; i < 100; ++i) {
        for (auto& wire : wires) {
          if (wire) wire->progress();
        }
      }
    });
  }
  int port(size_t rank) const { return std::stoi(wires[rank]->address()); }

  std::vector<std::unique_ptr<Wire>> wires;
  std::vector<std::vector<Arrived>> arrived;
};

FrameHeader header_from(Rank rank, uint64_t tag) {
  FrameHeader header;
  header.from = rank;
  header.envelope.tag = tag;
  return header;
}

TEST(TcpWire, FramesOfAllSizesArriveWholeAndInOrder_WhoeverSpeaksFirst) {
  Wires world(3);
  std::mt19937 random(7);
  std::vector<std::vector<std::byte>> sent;
  for (const int64_t bytes : {int64_t{0}, int64_t{1}, int64_t{15}, int64_t{4096}, Wire::kCopyBytes, Wire::kPieceBytes,
                              int64_t{16304}, int64_t{16305}, int64_t{31}}) {
    std::vector<std::byte> payload(static_cast<size_t>(bytes));
    for (std::byte& one : payload) one = static_cast<std::byte>(random());
    sent.push_back(payload);
  }
  const auto in_flight = std::make_shared<int>(0);
  for (int round = 0; round < 20; ++round) {
    for (size_t i = 0; i < sent.size(); ++i) {
      for (const auto& [from, to] : {std::pair{2, 0}, {0, 2}, {1, 0}, {1, 2}}) {
        const FrameHeader header = header_from(from, static_cast<uint64_t>(round) * 100 + i);
        auto& wire = *world.wires[static_cast<size_t>(from)];
        if (static_cast<int64_t>(sent[i].size()) <= Wire::kCopyBytes && round % 2 == 0)
          wire.send_copy(to, header, sent[i]);
        else
          wire.send(to, header, sent[i], in_flight);
      }
    }
  }
  const size_t all = 20 * sent.size();
  ASSERT_TRUE(world.turn_until(
      [&] { return world.arrived[0].size() == 2 * all && world.arrived[2].size() == 2 * all && *in_flight == 0; }));
  for (const size_t to : {size_t{0}, size_t{2}}) {
    std::map<Rank, size_t> next;
    for (const Arrived& frame : world.arrived[to]) {
      const size_t at = next[frame.header.from]++;
      EXPECT_EQ(frame.header.envelope.tag, at / sent.size() * 100 + at % sent.size());
      EXPECT_EQ(frame.payload, sent[at % sent.size()]);
    }
  }
}

TEST(TcpWire, APeerThatEndsIsLost_AndWhatIsSentToItVanishes) {
  Wires world(2);
  world.wires[0]->send_copy(1, header_from(0, 1), {});
  world.wires[1]->send_copy(0, header_from(1, 2), {});
  ASSERT_TRUE(world.turn_until([&] { return !world.arrived[0].empty() && !world.arrived[1].empty(); }));
  EXPECT_EQ(world.wires[0]->lost(1), "");
  world.wires[1].reset();
  ASSERT_TRUE(world.turn_until([&] { return world.wires[0]->lost(1) != ""; }));
  const std::vector<std::byte> piece(1000);
  const auto in_flight = std::make_shared<int>(0);
  world.wires[0]->send(1, header_from(0, 3), piece, in_flight);
  EXPECT_EQ(*in_flight, 0);
}

TEST(TcpWire, StrangersEndNothing) {
  Wires world(2);
  // What UCX says first when it connects, what a browser says, and noise.
  std::mt19937 random(3);
  std::vector<Descriptor> strangers;
  for (int i = 0; i < 300; ++i) {
    strangers.push_back(dial(world.port(static_cast<size_t>(i % 2))));
    std::string said(1 + random() % 600, '\0');
    for (char& one : said) one = static_cast<char>(random());
    if (i % 3 == 0) said = "GET / HTTP/1.1\r\n\r\n";
    if (i % 3 == 1) said = "\x16\x03\x01" + said;
    send(strangers.back().fd, said.data(), said.size(), MSG_NOSIGNAL);
    world.wires[static_cast<size_t>(i % 2)]->send_copy((i + 1) % 2, header_from(i % 2, static_cast<uint64_t>(i)), {});
    for (auto& wire : world.wires) wire->progress();
  }
  EXPECT_TRUE(world.turn_until([&] { return world.arrived[0].size() == 150 && world.arrived[1].size() == 150; }));
  EXPECT_EQ(world.wires[0]->lost(1) + world.wires[1]->lost(0), "");
}

// Passes the bytes of one connection on to a port, and no more than `room` of those that its dialler sends.
class Relay {
 public:
  explicit Relay(int port) : port_(port), listener_(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)) {
    const net::SocketAddress any = net::numeric_address("127.0.0.1", 0);
    EXPECT_EQ(bind(listener_.fd, any.get(), any.size()), 0);
    EXPECT_EQ(listen(listener_.fd, 1), 0);
  }
  std::string address() const { return std::to_string(net::bound_port(listener_.fd)) + " 127.0.0.1"; }
  void turn() {
    if (near_.fd < 0) {
      near_ = Descriptor(accept4(listener_.fd, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (near_.fd < 0) return;
      far_ = dial(port_);
    }
    room -= pass(near_.fd, far_.fd, room);
    pass(far_.fd, near_.fd, kNoLimit);
  }
  static constexpr int64_t kNoLimit = 1 << 30;
  int64_t room = kNoLimit;

 private:
  static int64_t pass(int from, int to, int64_t at_most) {
    std::array<char, 4096> bytes{};
    pollfd ready = {to, POLLOUT, 0};
    if (poll(&ready, 1, 0) != 1) return 0;
    const ssize_t got = recv(from, bytes.data(), std::min<size_t>(bytes.size(), static_cast<size_t>(at_most)), 0);
    return got <= 0 ? 0 : send(to, bytes.data(), static_cast<size_t>(got), MSG_NOSIGNAL);
  }

  int port_;
  Descriptor listener_, near_, far_;
};

// Else a rank that waits for a slow network would poll all the while.
TEST(TcpWire, HasNothingToDo_WhileTheRestOfARecordIsOnItsWay) {
  const auto from = open_tcp({.rank = 0, .size = 2, .interfaces = "lo", .key = kKey});
  const auto to = open_tcp({.rank = 1, .size = 2, .interfaces = "lo", .key = kKey});
  Relay relay(std::stoi(to->address()));
  int arrived = 0;
  to->set_handler([&](const FrameHeader&, std::span<const std::byte>) { ++arrived; });
  from->connect({from->address(), relay.address()});
  const auto turn = [&] {
    from->progress();
    relay.turn();
    to->progress();
  };
  from->send_copy(1, header_from(0, 1), {});
  ASSERT_TRUE(until([&] { return arrived == 1; }, turn));
  relay.room = 5000;
  from->send_copy(1, header_from(0, 2), std::vector<std::byte>(10000));
  ASSERT_TRUE(until([&] { return relay.room == 0; }, turn));
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(to->progress());
  EXPECT_TRUE(to->arm());
  relay.room = Relay::kNoLimit;
  EXPECT_TRUE(until([&] { return arrived == 2; }, turn));
}

bool refuses_connections(int port) {
  const Descriptor stranger = dial(port);
  pollfd shown = {stranger.fd, POLLOUT, 0};
  poll(&shown, 1, 1000);
  int why = 0;
  socklen_t size = sizeof why;
  getsockopt(stranger.fd, SOL_SOCKET, SO_ERROR, &why, &size);
  return why == ECONNREFUSED;
}

TEST(TcpWire, NobodyCanConnect_OnceAllPeersHave) {
  Wires world(2);
  world.wires[0]->send_copy(1, header_from(0, 1), {});
  world.wires[1]->send_copy(0, header_from(1, 2), {});
  ASSERT_TRUE(world.turn_until([&] { return !world.arrived[0].empty() && !world.arrived[1].empty(); }));
  EXPECT_FALSE(refuses_connections(world.port(0)));
  for (auto& wire : world.wires) wire->stop_listening();
  EXPECT_TRUE(refuses_connections(world.port(0)));
  world.wires[0]->send_copy(1, header_from(0, 3), {});
  world.wires[1]->send_copy(0, header_from(1, 4), {});
  EXPECT_TRUE(world.turn_until([&] { return world.arrived[0].size() == 2 && world.arrived[1].size() == 2; }));
  EXPECT_EQ(world.wires[0]->lost(1) + world.wires[1]->lost(0), "");
}

// What holds the token, and is no herd.
TEST(TcpWire, NonsenseFromAHolderOfTheKeyEndsItsConnection_AndNoOther) {
  Wires world(3);
  const net::SecureContext context(kKey);
  for (const uint32_t length : {~uint32_t{0}, static_cast<uint32_t>(Wire::kPieceBytes + 1), uint32_t{0}}) {
    auto socket = net::SecureSocket::connect(context, dial(world.port(0)), length == 0 ? "2" : "1");
    ASSERT_TRUE(world.turn_until([&] { return socket->shake_hands(); }));
    std::array<std::byte, 80> frame{};
    std::memcpy(frame.data(), &length, sizeof length);
    const FrameHeader header = header_from(0, 0);  // not who connected
    std::memcpy(frame.data() + 16, &header, sizeof header);
    socket->write(frame);
    const Rank blamed = length == 0 ? 2 : 1;
    EXPECT_TRUE(world.turn_until([&] { return world.wires[0]->lost(blamed) != ""; }));
    EXPECT_THAT(world.wires[0]->lost(blamed), HasSubstr("what no herd sends"));
  }
  EXPECT_TRUE(world.arrived[0].empty());
}

TEST(TcpWire, NamesAnInterfaceThatIsNotThere_AndThoseThatAre) {
  try {
    open_tcp({.interfaces = "eth77", .key = kKey});
    FAIL() << "opened";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kBadConfig);
    EXPECT_THAT(error.message(), HasSubstr("\"eth77\""));
    EXPECT_THAT(error.message(), HasSubstr("have: lo"));
    EXPECT_THAT(error.message(), HasSubstr("fix: HERD_NETWORK=NAME"));
  }
}

TEST(TcpWire, GivesEachNamedInterfaceItsPartOfTheConnections) {
  const std::vector<std::string> own = {"10.0.0.1", "10.1.0.1", "10.2.0.1"};
  std::map<std::string, int> connections;
  for (const Rank self : {0, 1, 2}) {
    for (const Rank peer : {3, 4, 5}) {
      const auto order = addresses_to_try(own, self, peer);
      EXPECT_THAT(order, testing::UnorderedElementsAreArray(own)) << "the others stand by";
      ++connections[order[0]];
    }
  }
  for (const std::string& address : own) EXPECT_EQ(connections[address], 3) << address;
  EXPECT_EQ(addresses_to_try({"10.0.0.1"}, 5, 7), std::vector<std::string>{"10.0.0.1"});
  EXPECT_TRUE(addresses_to_try({}, 0, 1).empty());
}

}  // namespace
}  // namespace herd::transport
