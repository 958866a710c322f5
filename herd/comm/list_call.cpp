// Lists of buffers as one message.
#include <string>

#include "herd/base/error.h"
#include "herd/comm/collective_call.h"
#include "herd/comm/plan_cache.h"

namespace herd::comm {
namespace {

// The message that a list makes: one buffer where they lie side by side, else memory of the packing.
struct Message {
  Buffer buffer;
  std::shared_ptr<Packing> packing;  // null where they lie side by side
  uint64_t shape = 1;                // of the counts: [3, 5] is not [5, 3]
};

void check_list(BufferList xs, std::string_view what) {
  for (const Buffer& x : xs) {
    check_buffer(x, what);
    check_in_order(x, what);
    if (x.dtype == xs.front().dtype) continue;
    throw Error(Code::kBadConfig, std::string(what) + ": the list holds " + std::string(dtype_name(xs.front().dtype)) +
                                      " and " + std::string(dtype_name(x.dtype)) + "\n  fix: one list for each dtype");
  }
}

bool side_by_side(BufferList xs) {
  const std::byte* end = nullptr;
  for (const Buffer& x : xs) {
    if (x.count == 0) continue;
    if (end != nullptr && x.ptr != end) return false;
    end = static_cast<const std::byte*>(x.ptr) + x.bytes();
  }
  return true;
}

uint64_t shape_of(BufferList xs) {
  uint64_t shape = 1;
  for (const Buffer& x : xs) shape = mix(shape, static_cast<uint64_t>(x.count));
  return shape;
}

// `loads`, `stores`: whether this rank gives what the buffers hold, and takes the result.
Message message_of(BufferList xs, double factor, bool loads, bool stores) {
  Message message;
  message.shape = shape_of(xs);
  if (xs.empty()) return message;
  message.buffer.dtype = xs.front().dtype;
  for (const Buffer& x : xs) {
    if (message.buffer.ptr == nullptr && x.count > 0) message.buffer.ptr = x.ptr;
    message.buffer.count += x.count;
  }
  if (factor == 1 && side_by_side(xs)) return message;
  message.packing = std::make_shared<Packing>(message.buffer.dtype, factor);
  std::byte* at = message.packing->reserve(message.buffer.bytes());
  message.buffer.ptr = at;
  for (const Buffer& x : xs) {
    if (loads) message.packing->load(x.ptr, at, x.bytes());
    if (stores) message.packing->store(at, x.ptr, x.bytes());
    at += x.bytes();
  }
  return message;
}

CollectiveCall with(CollectiveCall call, Message message) {
  call.packing = std::move(message.packing);
  call.shape = message.shape;
  call.ordinary = true;
  return call;
}

// The options of the call underneath: the message already holds the factor.
OpOptions without_factor(OpOptions options, DType dtype) {
  check_supported(options.op, dtype);
  if (options.op != ReduceOp::kPremultipliedSum) return options;
  options.op = ReduceOp::kSum;
  options.factor = 1;
  return options;
}

// Each buffer of `wholes` is num_ranks parts, of which the one of this rank is the buffer of `parts`. The message holds
// for each rank its parts of all buffers.
struct Columns {
  std::shared_ptr<Packing> packing;
  Buffer whole, part;
};

Columns columns_of(BufferList parts, BufferList wholes, Rank self, int num_ranks, std::string_view what,
                   double factor) {
  check_list(parts, what);
  check_list(wholes, what);
  const auto refuse = [&](const std::string& rule) { throw Error(Code::kBadConfig, std::string(what) + ": " + rule); };
  if (parts.size() != wholes.size()) {
    refuse("lists of " + std::to_string(parts.size()) + " parts and " + std::to_string(wholes.size()) + " wholes");
  }
  Columns columns;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (wholes[i].dtype == parts[i].dtype && wholes[i].count == parts[i].count * num_ranks) {
      columns.part.count += parts[i].count;
      continue;
    }
    refuse("buffer " + std::to_string(i) + " has a part of " + std::to_string(parts[i].count) + " and a whole of " +
           std::to_string(wholes[i].count) + " elements, which is not " + std::to_string(num_ranks) +
           " times as many of the same dtype");
  }
  if (!parts.empty()) columns.part.dtype = parts.front().dtype;
  columns.whole = columns.part;
  columns.whole.count = columns.part.count * num_ranks;
  columns.packing = std::make_shared<Packing>(columns.part.dtype, factor);
  std::byte* memory = columns.packing->reserve(columns.whole.bytes());
  columns.whole.ptr = memory;
  columns.part.ptr = memory + self * columns.part.bytes();
  return columns;
}

}  // namespace

CollectiveCall all_reduce_list_call(BufferList xs, const OpOptions& options) {
  check_list(xs, "all_reduce_list");
  Message message = message_of(xs, options.factor, true, true);
  return with(all_reduce_call(message.buffer, without_factor(options, message.buffer.dtype)), std::move(message));
}

CollectiveCall broadcast_list_call(BufferList xs, Rank root, Rank self, int num_ranks, const OpOptions& options) {
  check_list(xs, "broadcast_list");
  Message message = message_of(xs, 1, self == root, self != root);
  return with(broadcast_call(message.buffer, root, num_ranks, options), std::move(message));
}

CollectiveCall reduce_list_call(BufferList xs, Rank root, Rank self, int num_ranks, const OpOptions& options) {
  check_list(xs, "reduce_list");
  Message message = message_of(xs, options.factor, true, self == root);
  return with(reduce_call(message.buffer, root, self, num_ranks, without_factor(options, message.buffer.dtype)),
              std::move(message));
}

CollectiveCall all_gather_list_call(BufferList ins, BufferList outs, Rank self, int num_ranks,
                                    const OpOptions& options) {
  Columns columns = columns_of(ins, outs, self, num_ranks, "all_gather_list", 1);
  CollectiveCall call = all_gather_call(columns.part, columns.whole, self, num_ranks, options);
  std::byte* at = static_cast<std::byte*>(columns.whole.ptr);
  std::byte* mine = static_cast<std::byte*>(columns.part.ptr);
  for (const Buffer& in : ins) {
    columns.packing->load(in.ptr, mine, in.bytes());
    mine += in.bytes();
  }
  for (Rank rank = 0; rank < num_ranks; ++rank) {
    for (size_t i = 0; i < ins.size(); ++i) {
      const int64_t bytes = ins[i].bytes();
      if (bytes > 0) columns.packing->store(at, static_cast<std::byte*>(outs[i].ptr) + rank * bytes, bytes);
      at += bytes;
    }
  }
  call.packing = std::move(columns.packing);
  call.shape = shape_of(ins);
  call.ordinary = true;
  return call;
}

CollectiveCall reduce_scatter_list_call(BufferList ins, BufferList outs, Rank self, int num_ranks,
                                        const OpOptions& options) {
  Columns columns = columns_of(outs, ins, self, num_ranks, "reduce_scatter_list", options.factor);
  CollectiveCall call =
      reduce_scatter_call(columns.whole, columns.part, self, num_ranks, without_factor(options, columns.part.dtype));
  std::byte* at = static_cast<std::byte*>(columns.whole.ptr);
  std::byte* mine = static_cast<std::byte*>(columns.part.ptr);
  for (Rank rank = 0; rank < num_ranks; ++rank) {
    for (size_t i = 0; i < ins.size(); ++i) {
      const int64_t bytes = outs[i].bytes();
      if (bytes > 0) columns.packing->load(static_cast<const std::byte*>(ins[i].ptr) + rank * bytes, at, bytes);
      at += bytes;
    }
  }
  for (const Buffer& out : outs) {
    columns.packing->store(mine, out.ptr, out.bytes());
    mine += out.bytes();
  }
  call.packing = std::move(columns.packing);
  call.shape = shape_of(outs);
  call.ordinary = true;
  return call;
}

}  // namespace herd::comm
