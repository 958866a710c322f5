#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <vector>

#include "herd/base/error.h"
#include "herd/transport/wire.h"

namespace {
size_t longest_asked = 0;  // of all calls of recv() in this process
}

// Takes the place of libc's, for UCX too.
extern "C" ssize_t recv(int socket, void* buffer, size_t bytes, int flags) {
  longest_asked = std::max(longest_asked, bytes);
  return recvfrom(socket, buffer, bytes, flags, nullptr, nullptr);
}

namespace herd::transport {
namespace {

using std::chrono::steady_clock;
class UcxWire : public testing::Test {
 protected:
  void SetUp() override {
    if (ucx_version().empty()) GTEST_SKIP() << "this build has no UCX";
  }
};

TEST_F(UcxWire, ReceivesAWholePieceInOneBuffer) {
  std::vector<std::unique_ptr<Wire>> wires;
  for (Rank rank : {0, 1}) wires.push_back(open_ucx({.rank = rank, .size = 2, .interfaces = "lo"}));
  std::vector<std::byte> piece(Wire::kPieceBytes, std::byte{7}), arrived;
  for (auto& wire : wires) {
    wire->set_handler([&](const FrameHeader& header, std::span<const std::byte> payload) {
      if (header.kind == FrameKind::kData) arrived.assign(payload.begin(), payload.end());
    });
    wire->connect({wires[0]->address(), wires[1]->address()});
  }
  const auto in_flight = std::make_shared<int>(0);
  FrameHeader header;
  header.kind = FrameKind::kData;
  wires[0]->send(1, header, piece, in_flight);
  const auto deadline = steady_clock::now() + std::chrono::seconds(10);
  while ((arrived.empty() || *in_flight > 0) && steady_clock::now() < deadline) {
    for (auto& wire : wires) wire->progress();
  }
  EXPECT_EQ(arrived, piece);
  // Else UCX cuts the piece and puts it together again: by a copy, in memory that it allocates for each.
  EXPECT_GE(longest_asked, Wire::kPieceBytes + sizeof(FrameHeader));
}

}  // namespace
}  // namespace herd::transport
