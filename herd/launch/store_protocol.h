// Defines the messages between the store and its clients; grammar in docs/formats/control_plane.md. A connection
// carries frames, one for each message. A scope is one attempt of the job's ranks, by its restart count. Keys and
// failures of one scope are unknown to another.
// Threads: pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "herd/base/error.h"

namespace herd::launch {

enum class Verb : uint8_t {
  // A client sends these:
  kHello = 1,  // key: "rank/size"; value: the client's host and process; the first message of every client
  kBye,        // the client leaves on purpose
  kBeat,       // key: sequence number of the status; value: its text; sent every 200 ms
  kSet,
  kGet,  // is answered when the key exists, or when the scope failed
  kAdd,  // value: the integer in decimal; the answer is the sum
  kErase,
  // Withdraws the get of the same id, unless that has its answer already. The answer has key "cancelled" and a value
  // with what the store knows about the ranks.
  kCancel,
  kFail,  // the scope failed. key: name of the code; value: reason
  // The store sends these:
  kOk = 64,  // value: the answer
  kRefused,  // value: the rule that the request breaks
  kFailed,   // key: name of the code; value: reason; id 0 when it answers no request
};

struct Message {
  Verb verb = Verb::kOk;
  uint64_t id = 0;     // the client chooses it, and the answer repeats it
  uint32_t scope = 0;  // the job's restart count, or kLaunchers
  std::string key, value;
};

inline constexpr uint32_t kLaunchers = 0xffffffff;  // the scope in which launchers of several nodes talk
// Key of the answer refused to a client whose hello this store never had: another store listened here before.
inline constexpr std::string_view kUnknownClient = "unknown client";
inline constexpr size_t kMaxKeyBytes = 1024;
inline constexpr size_t kMaxValueBytes = 64u << 20;
inline constexpr size_t kHeaderBytes = 32;

Code parse_code(std::string_view name);  // returns kAborted where the name is unknown

// Returns the bytes of the frame that begins with `head`; nothing where no frame begins so. REQUIRES kHeaderBytes of
// it.
std::optional<size_t> frame_bytes(std::string_view head);
// Throws kBadConfig where key or value is longer than the limits.
std::string encode(const Message& message);
// Returns nothing where the frame breaks the grammar; never throws, and never reads outside the frame.
std::optional<Message> decode(std::string_view frame);

}  // namespace herd::launch
