// Control-plane frames: any bytes, before and after a hello, leave the store consistent and answer in the grammar.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "accepted.h"
#include "herd/launch/store_table.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace herd::launch;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto now = std::chrono::steady_clock::now();
  StoreTable table;
  const auto feed = [&](std::string_view frame) {
    for (const auto& answer : table.handle("stranger", frame, now)) {
      const auto again = decode(encode(answer.message));
      if (!again || again->value != answer.message.value || again->key != answer.message.key) std::abort();
    }
  };
  feed(bytes);
  if (const auto message = decode(bytes); message && encode(*message) != bytes) std::abort();
  if (decode(bytes)) ++num_accepted;
  if (bytes.size() >= kHeaderBytes) {
    const auto length = frame_bytes(bytes);
    if (decode(bytes) && length != bytes.size()) std::abort();
  }
  // A second life: the input as a row of frames of a client that is known, each as long as its header says.
  table.handle("stranger", encode({Verb::kHello, 1, 0, "0/2", "process 1 on a host"}), now);
  for (size_t at = 0; at + kHeaderBytes <= size;) {
    uint64_t lengths = 0;
    for (size_t i = 0; i < 4; ++i)
      lengths += (uint64_t{data[at + 20 + i]} << (8 * i)) + (uint64_t{data[at + 24 + i]} << (8 * i));
    const size_t length = static_cast<size_t>(std::min<uint64_t>(kHeaderBytes + lengths, size - at));
    feed(bytes.substr(at, length));
    at += length;
  }
  table.fail(0, {herd::Code::kPeerLost, "a rank died"});
  table.summary(0, now);
  return 0;
}
