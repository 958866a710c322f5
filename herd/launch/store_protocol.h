// Messages between the store and its clients: grammar in docs/formats/control_plane.md. A connection carries frames,
// one for each message.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "herd/base/error.h"

namespace herd::launch {

enum class Verb : uint8_t {
  // from a client
  kHello = 1,  // key "rank/size", value where the client is; the first message of every client
  kBye,        // the client leaves on purpose
  kBeat,       // key status sequence, value status text: sent every 200 ms
  kSet,
  kGet,  // answered when the key exists, or when the scope failed
  kAdd,  // value: the integer in decimal; answered with the sum
  kErase,
  kCancel,  // withdraws the get of the same id: answered (key "cancelled", value what the store knows about the ranks)
            // unless that get has its answer already
  kFail,    // key code name, value reason: the scope failed
  // from the store
  kOk = 64,  // value: the answer
  kRefused,  // value: the rule that the request breaks
  kFailed,   // key code name, value reason; id 0 when it answers no request
};

struct Message {
  Verb verb = Verb::kOk;
  uint64_t id = 0;     // chosen by the client, repeated in the answer
  uint32_t scope = 0;  // the job's restart count, or kLaunchers
  std::string key, value;
};

inline constexpr uint32_t kLaunchers = 0xffffffff;  // the scope in which launchers of several nodes talk
inline constexpr size_t kMaxKeyBytes = 1024;
inline constexpr size_t kMaxValueBytes = 64u << 20;
inline constexpr size_t kHeaderBytes = 32;

Code parse_code(std::string_view name);  // kAborted where the name is unknown

// How long the frame is that begins so; nothing where no frame does. REQUIRES kHeaderBytes of it.
std::optional<size_t> frame_bytes(std::string_view head);
// Throws kBadConfig where key or value is longer than the limits.
std::string encode(const Message& message);
// Nothing where the frame breaks the grammar; never throws and never reads outside the frame.
std::optional<Message> decode(std::string_view frame);

}  // namespace herd::launch
