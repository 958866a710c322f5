#include "herd/comm/collective_call.h"

#include <string>

#include "herd/base/error.h"
#include "herd/schedule/names.h"
#include "herd/schedule/parts.h"

namespace herd::comm {
namespace {

CollectiveCall call_of(Collective collective, int64_t elements, DType dtype, const OpOptions& options) {
  CollectiveCall call;
  call.request.collective = collective;
  call.request.elements = elements;
  call.request.dtype = dtype;
  call.op = options.op;
  call.name = options.name;
  call.algorithm = options.algorithm;
  call.deadline = options.deadline;
  call.where = options.where;
  return call;
}

CollectiveCall in_place_call(Collective collective, const Buffer& x, const OpOptions& options) {
  check_buffer(x, collective_name(collective));
  CollectiveCall call = call_of(collective, x.count, x.dtype, options);
  call.request.in_place = true;
  call.output = static_cast<std::byte*>(x.ptr);
  call.output_bytes = x.bytes();
  return call;
}

void check_reduces(CollectiveCall& call, DType dtype) {
  check_supported(call.op, dtype);
  call.reduces = true;
}

// `part` is rank self's part of `whole`: its size has to be right, and where they share memory, its place.
bool check_part(Collective collective, const Buffer& part, const Buffer& whole, Rank self, int num_ranks) {
  const std::string what(collective_name(collective));
  check_buffer(part, what);
  check_buffer(whole, what);
  const Range range = part_of(whole.count, num_ranks, self);
  if (part.dtype != whole.dtype || part.count != range.size()) {
    throw Error(Code::kBadConfig, what + ": the whole is " + std::string(dtype_name(whole.dtype)) + " x " +
                                      std::to_string(whole.count) + ", so the part of rank " + std::to_string(self) +
                                      " of " + std::to_string(num_ranks) + " is " + std::to_string(range.size()) +
                                      " of them, but it is given " + std::string(dtype_name(part.dtype)) + " x " +
                                      std::to_string(part.count));
  }
  const auto* first = static_cast<const std::byte*>(whole.ptr);
  const auto* mine = static_cast<const std::byte*>(part.ptr);
  const auto* place = first + range.begin * size_of(whole.dtype);
  if (range.size() == 0) return mine != nullptr && mine >= first && mine <= first + whole.bytes();
  if (mine == place) return true;
  if (mine + part.bytes() <= first || mine >= first + whole.bytes()) return false;
  throw Error(Code::kBadConfig, what + ": the part of rank " + std::to_string(self) + " overlaps the whole at byte " +
                                    std::to_string(mine - first) + "\n  fix: in place it starts at byte " +
                                    std::to_string(place - first) + "; otherwise it lies outside");
}

}  // namespace

void check_buffer(const Buffer& buffer, std::string_view what) {
  if (buffer.device.kind != DeviceKind::kCpu) {
    throw Error(Code::kBadConfig, std::string(what) +
                                      ": the buffer is in device memory, and this transport moves host memory"
                                      "\n  fix: copy it to the host first");
  }
  if (buffer.count > 0 && buffer.ptr == nullptr) {
    throw Error(Code::kBadConfig,
                std::string(what) + ": the buffer has " + std::to_string(buffer.count) + " elements and no memory");
  }
}

void check_rank(Rank rank, int num_ranks, std::string_view what) {
  if (rank >= 0 && rank < num_ranks) return;
  throw Error(Code::kBadConfig, std::string(what) + " " + std::to_string(rank) +
                                    " is not in the group: its ranks are 0 .. " + std::to_string(num_ranks - 1));
}

CollectiveCall all_reduce_call(const Buffer& x, const OpOptions& options) {
  CollectiveCall call = in_place_call(Collective::kAllReduce, x, options);
  check_reduces(call, x.dtype);
  return call;
}

CollectiveCall broadcast_call(const Buffer& x, Rank root, int num_ranks, const OpOptions& options) {
  check_rank(root, num_ranks, "broadcast: root");
  CollectiveCall call = in_place_call(Collective::kBroadcast, x, options);
  call.request.root = root;
  return call;
}

CollectiveCall reduce_call(const Buffer& x, Rank root, int num_ranks, const OpOptions& options) {
  check_rank(root, num_ranks, "reduce: root");
  CollectiveCall call = in_place_call(Collective::kReduce, x, options);
  call.request.root = root;
  check_reduces(call, x.dtype);
  return call;
}

CollectiveCall all_gather_call(const Buffer& in, const Buffer& out, Rank self, int num_ranks,
                               const OpOptions& options) {
  CollectiveCall call = call_of(Collective::kAllGather, out.count, out.dtype, options);
  call.request.in_place = check_part(Collective::kAllGather, in, out, self, num_ranks);
  call.output = static_cast<std::byte*>(out.ptr);
  call.output_bytes = out.bytes();
  if (call.request.in_place) return call;
  call.input = static_cast<std::byte*>(in.ptr);
  call.input_bytes = in.bytes();
  return call;
}

CollectiveCall reduce_scatter_call(const Buffer& in, const Buffer& out, Rank self, int num_ranks,
                                   const OpOptions& options) {
  CollectiveCall call = call_of(Collective::kReduceScatter, in.count, in.dtype, options);
  check_reduces(call, in.dtype);
  call.request.in_place = check_part(Collective::kReduceScatter, out, in, self, num_ranks);
  if (call.request.in_place) {
    call.output = static_cast<std::byte*>(in.ptr);
    call.output_bytes = in.bytes();
    return call;
  }
  call.input = static_cast<std::byte*>(in.ptr);
  call.input_bytes = in.bytes();
  call.output = static_cast<std::byte*>(out.ptr);
  call.output_bytes = out.bytes();
  return call;
}

CollectiveCall barrier_call(const OpOptions& options) { return call_of(Collective::kBarrier, 0, DType::kU8, options); }

}  // namespace herd::comm
