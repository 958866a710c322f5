// Defines what a worker and a server send each other. A request is a Request and, in a push, its payload. The server
// answers each with a Reply, and its payload: weights, or the text of an error. A worker has one request to a server at
// a time. Threads: plain data.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "herd/base/buffer.h"
#include "herd/base/error.h"
#include "herd/comm/connection.h"

namespace herd::param_server {

enum class RequestKind : uint32_t { kHello, kPush, kPushRows, kPull, kLeave, kReport };

struct Request {
  RequestKind kind = RequestKind::kHello;
  uint32_t wants_stop = 0;  // kReport
  int64_t index = 0;        // kReport: steps
  int64_t count = 0;        // kPush, kPull: elements of the server's piece; kPushRows: rows; kReport: its count
  double rate = std::numeric_limits<double>::quiet_NaN();  // kReport: its sum
  int64_t deadline_ms = 0;                                 // kPull: how long other workers have; kReport: its staleness
  uint64_t fingerprint = 0;                                // kHello: of the worker's key table
  int64_t keys = 0, elements = 0;
};
static_assert(sizeof(Request) == 64);

struct Reply {
  static constexpr int32_t kOk = -1;
  int32_t code = kOk;      // else a herd::Code
  int32_t text_bytes = 0;  // of the error
  int64_t version = 0;     // of the weights that follow
  int64_t count = 0;       // elements that follow
  int64_t staleness = 0;   // of the weights that follow (Snapshot)
};

enum Tag : int { kRequestTag = 1, kRequestPayloadTag, kReplyTag, kReplyPayloadTag };

template <typename T>
Buffer bytes_of(T& message) {
  return {const_cast<std::remove_const_t<T>*>(&message), static_cast<int64_t>(sizeof message), DType::kU8};
}
inline Buffer bytes_of(std::string_view text) {
  return {const_cast<char*>(text.data()), static_cast<int64_t>(text.size()), DType::kU8};
}
inline Buffer floats_of(const float* values, int64_t count) { return {const_cast<float*>(values), count, DType::kF32}; }

}  // namespace herd::param_server
