// Defines what a worker and a server send each other. A request is a Request and, in a push, its payload. The server
// answers each with a Reply, and then weights or the text of an error. A worker sends further requests meanwhile. Each
// has a number of its own; the answer's tags are made of it, since pulls are answered once weights are fresh enough,
// in any order. Threads: plain data.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "herd/base/buffer.h"
#include "herd/base/error.h"
#include "herd/comm/connection.h"

namespace herd::param_server {

enum class RequestKind : uint32_t { kHello, kPush, kPushRows, kPushEncoded, kPull, kLeave, kReport };

struct Request {
  RequestKind kind = RequestKind::kHello;
  uint32_t wants_stop = 0;  // kReport
  int64_t index = 0;        // kReport: steps
  // kPush, kPull: elements of the server's piece; kPushRows: rows; kPushEncoded: bytes; kReport: its count
  int64_t count = 0;
  double rate = std::numeric_limits<double>::quiet_NaN();  // kReport: its sum
  int64_t deadline_ms = 0;                                 // kPull: how long other workers have; kReport: its staleness
  uint64_t fingerprint = 0;                                // kHello: of the worker's key table
  int64_t keys = 0;                                        // kReport: its meetings
  int64_t elements = 0;
  int64_t number = 0;  // of the worker's requests so far
};
static_assert(sizeof(Request) == 72);

struct Reply {
  static constexpr int32_t kOk = -1;
  int32_t code = kOk;      // else a herd::Code
  int32_t text_bytes = 0;  // of the error
  int64_t version = 0;     // of the weights that follow
  int64_t count = 0;       // elements that follow
  int64_t staleness = 0;   // of the weights that follow (Snapshot)
};

enum Tag : int { kRequestTag = 1, kRequestPayloadTag };
enum class Answer : int { kReply, kPayload, kText };
// Returns the tag of a part of the answer to a request. Numbers come again after 2^28 requests.
constexpr int tag_of(Answer part, int64_t number) {
  return 4 * (1 + static_cast<int>(number & 0xfffffff)) + static_cast<int>(part);
}

template <typename T>
Buffer bytes_of(T& message) {
  return {const_cast<std::remove_const_t<T>*>(&message), static_cast<int64_t>(sizeof message), DType::kU8};
}
inline Buffer bytes_of(std::string_view text) {
  return {const_cast<char*>(text.data()), static_cast<int64_t>(text.size()), DType::kU8};
}
inline Buffer floats_of(const float* values, int64_t count) { return {const_cast<float*>(values), count, DType::kF32}; }

}  // namespace herd::param_server
