// Carries lists of buffers as one message of one collective.
#include <string>
#include <utility>
#include <vector>

#include "herd/base/error.h"
#include "herd/comm/collective_call.h"
#include "herd/comm/fingerprint.h"
#include "herd/comm/short_list.h"

namespace herd::comm {
namespace {

// Holds the message of a list. It is the buffers' own memory where they lie side by side, else memory of the packing.
struct ListMessage {
  Buffer buffer;
  std::shared_ptr<Packing> packing;  // null where they lie side by side
  uint64_t shape = 1;                // a hash of the counts, so that [3, 5] is not [5, 3]
  std::string shape_text = {};
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

std::string shape_text_of(BufferList xs) {
  std::vector<int64_t> sizes;
  for (const Buffer& x : xs) sizes.push_back(x.count);
  return "list of " + short_list(sizes, kShownList);
}

// Makes the message of a list. With `loads` it gets what the buffers hold, with `stores` they get the result.
ListMessage message_of(BufferList xs, double factor, bool loads, bool stores) {
  ListMessage message;
  message.shape = shape_of(xs);
  message.shape_text = shape_text_of(xs);
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

CollectiveCall with_message(CollectiveCall call, ListMessage message) {
  call.packing = std::move(message.packing);
  call.shape = message.shape;
  call.shape_text = std::move(message.shape_text);
  call.ordinary = true;
  return call;
}

// Returns the options of the call on the message, which already holds the factor.
OpOptions without_factor(OpOptions options, DType dtype) {
  check_supported(options.op, dtype);
  if (options.op != ReduceOp::kPremultipliedSum) return options;
  options.op = ReduceOp::kSum;
  options.factor = 1;
  return options;
}

// Checks that each buffer of `wholes` is num_ranks times as long as the one of `parts`.
void check_columns(BufferList parts, BufferList wholes, int num_ranks, std::string_view what) {
  check_list(parts, what);
  check_list(wholes, what);
  const auto refuse = [&](const std::string& rule) { throw Error(Code::kBadConfig, std::string(what) + ": " + rule); };
  if (parts.size() != wholes.size()) {
    refuse("lists of " + std::to_string(parts.size()) + " parts and " + std::to_string(wholes.size()) + " wholes");
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    if (wholes[i].dtype == parts[i].dtype && wholes[i].count == parts[i].count * num_ranks) continue;
    refuse("buffer " + std::to_string(i) + " has a part of " + std::to_string(parts[i].count) + " and a whole of " +
           std::to_string(wholes[i].count) + " elements, which is not " + std::to_string(num_ranks) +
           " times as many of the same dtype");
  }
}

// Holds the message of a list whose buffers have parts: rank by rank, that rank's parts of all buffers.
class Columns {
 public:
  // Reserves `wholes` messages, of which the first holds this rank's part. `parts` tell their size.
  Columns(BufferList parts, Rank self, int num_ranks, double factor = 1, int wholes = 1)
      : num_ranks_(num_ranks), shape_(shape_of(parts)), shape_text_(shape_text_of(parts)) {
    if (!parts.empty()) part_.dtype = parts.front().dtype;
    for (const Buffer& part : parts) part_.count += part.count;
    packing_ = std::make_shared<Packing>(part_.dtype, factor);
    whole_ = part_;
    whole_.count *= num_ranks;
    memory_ = packing_->reserve(wholes * whole_.bytes());
    whole_.ptr = memory_;
    part_.ptr = memory_ + self * part_.bytes();
  }

  const Buffer& part() const { return part_; }
  Buffer whole(int which = 0) const {
    Buffer whole = whole_;
    whole.ptr = memory_ + which * whole_.bytes();
    return whole;
  }

  void load_parts(BufferList from) {
    auto* at = static_cast<std::byte*>(part_.ptr);
    for (const Buffer& x : from) packing_->load(x.ptr, std::exchange(at, at + x.bytes()), x.bytes());
  }
  void store_parts(BufferList to) {
    const auto* at = static_cast<const std::byte*>(part_.ptr);
    for (const Buffer& x : to) packing_->store(std::exchange(at, at + x.bytes()), x.ptr, x.bytes());
  }
  void load_wholes(BufferList from) {
    each_part(from, whole(), [&](std::byte* mine, std::byte* in, int64_t bytes) { packing_->load(mine, in, bytes); });
  }
  void store_wholes(BufferList to, int which = 0) {
    each_part(to, whole(which),
              [&](std::byte* mine, std::byte* in, int64_t bytes) { packing_->store(in, mine, bytes); });
  }

  CollectiveCall carry(CollectiveCall call) const {
    ListMessage message;
    message.packing = packing_;
    message.shape = shape_;
    message.shape_text = shape_text_;
    return with_message(std::move(call), std::move(message));
  }

 private:
  // Calls body(a rank's part of a buffer, its place in the message, bytes).
  template <typename Body>
  void each_part(BufferList wholes, const Buffer& message, const Body& body) const {
    auto* at = static_cast<std::byte*>(message.ptr);
    for (Rank rank = 0; rank < num_ranks_; ++rank) {
      for (const Buffer& x : wholes) {
        const int64_t bytes = x.bytes() / num_ranks_;
        if (bytes > 0) body(static_cast<std::byte*>(x.ptr) + rank * bytes, at, bytes);
        at += bytes;
      }
    }
  }

  int num_ranks_;
  uint64_t shape_;
  std::string shape_text_;
  Buffer part_, whole_;
  std::byte* memory_ = nullptr;
  std::shared_ptr<Packing> packing_;
};

}  // namespace

CollectiveCall all_reduce_list_call(BufferList xs, const OpOptions& options) {
  check_list(xs, "all_reduce_list");
  ListMessage message = message_of(xs, options.factor, true, true);
  return with_message(all_reduce_call(message.buffer, without_factor(options, message.buffer.dtype)),
                      std::move(message));
}

CollectiveCall broadcast_list_call(BufferList xs, Rank root, Rank self, int num_ranks, const OpOptions& options) {
  check_list(xs, "broadcast_list");
  ListMessage message = message_of(xs, 1, self == root, self != root);
  return with_message(broadcast_call(message.buffer, root, num_ranks, options), std::move(message));
}

CollectiveCall reduce_list_call(BufferList xs, Rank root, Rank self, int num_ranks, const OpOptions& options) {
  check_list(xs, "reduce_list");
  ListMessage message = message_of(xs, options.factor, true, self == root);
  return with_message(reduce_call(message.buffer, root, self, num_ranks, without_factor(options, message.buffer.dtype)),
                      std::move(message));
}

CollectiveCall all_gather_list_call(BufferList ins, BufferList outs, Rank self, int num_ranks,
                                    const OpOptions& options) {
  check_columns(ins, outs, num_ranks, "all_gather_list");
  Columns columns(ins, self, num_ranks);
  columns.load_parts(ins);
  columns.store_wholes(outs);
  return columns.carry(all_gather_call(columns.part(), columns.whole(), self, num_ranks, options));
}

CollectiveCall reduce_scatter_list_call(BufferList ins, BufferList outs, Rank self, int num_ranks,
                                        const OpOptions& options) {
  check_columns(outs, ins, num_ranks, "reduce_scatter_list");
  Columns columns(outs, self, num_ranks, options.factor);
  columns.load_wholes(ins);
  columns.store_parts(outs);
  return columns.carry(reduce_scatter_call(columns.whole(), columns.part(), self, num_ranks,
                                           without_factor(options, columns.part().dtype)));
}

CollectiveCall gather_list_call(BufferList ins, BufferList outs, Rank root, Rank self, int num_ranks,
                                const OpOptions& options) {
  check_rank(root, num_ranks, "gather_list: root");
  if (self != root) {
    check_list(ins, "gather_list");
    ListMessage message = message_of(ins, 1, true, false);
    return with_message(gather_call(message.buffer, {}, root, self, num_ranks, options), std::move(message));
  }
  check_columns(ins, outs, num_ranks, "gather_list");
  Columns columns(ins, self, num_ranks);
  columns.load_parts(ins);
  columns.store_wholes(outs);
  return columns.carry(gather_call(columns.part(), columns.whole(), root, self, num_ranks, options));
}

CollectiveCall scatter_list_call(BufferList ins, BufferList outs, Rank root, Rank self, int num_ranks,
                                 const OpOptions& options) {
  check_rank(root, num_ranks, "scatter_list: root");
  if (self != root) {
    check_list(outs, "scatter_list");
    ListMessage message = message_of(outs, 1, false, true);
    return with_message(scatter_call({}, message.buffer, root, self, num_ranks, options), std::move(message));
  }
  check_columns(outs, ins, num_ranks, "scatter_list");
  Columns columns(outs, self, num_ranks);
  columns.load_wholes(ins);
  columns.store_parts(outs);
  return columns.carry(scatter_call(columns.whole(), columns.part(), root, self, num_ranks, options));
}

CollectiveCall all_to_all_list_call(BufferList ins, BufferList outs, Rank self, int num_ranks,
                                    const OpOptions& options) {
  std::vector<Buffer> blocks(ins.begin(), ins.end());
  for (Buffer& block : blocks) block.count /= num_ranks;
  check_columns(blocks, ins, num_ranks, "all_to_all_list");
  check_columns(blocks, outs, num_ranks, "all_to_all_list");
  Columns columns(blocks, self, num_ranks, 1, 2);
  columns.load_wholes(ins);
  columns.store_wholes(outs, 1);
  return columns.carry(all_to_all_call(columns.whole(), columns.whole(1), self, num_ranks, options));
}

}  // namespace herd::comm
