#include "herd/comm/collective_call.h"

#include <string>

#include "herd/base/error.h"
#include "herd/comm/short_list.h"
#include "herd/schedule/message_layout.h"
#include "herd/schedule/schedule_names.h"

namespace herd::comm {
namespace {

CollectiveCall call_of(Collective collective, int64_t elements, DType dtype, const OpOptions& options) {
  if (options.segment_bytes < 0) {
    throw Error(Code::kBadConfig, std::string(collective_name(collective)) + ": segment_bytes >= 0, but it is " +
                                      std::to_string(options.segment_bytes));
  }
  CollectiveCall call;
  call.request.collective = collective;
  call.request.segment_bytes = options.segment_bytes;
  call.request.elements = elements;
  call.request.dtype = dtype;
  call.op = options.op;
  call.name = options.name;
  call.algorithm = options.algorithm;
  call.deadline = options.deadline;
  call.where = options.where;
  return call;
}

void set_input(CollectiveCall& call, const Buffer& in) {
  call.input = static_cast<std::byte*>(in.ptr);
  call.input_bytes = in.bytes();
}
void set_output(CollectiveCall& call, const Buffer& out) {
  call.output = static_cast<std::byte*>(out.ptr);
  call.output_bytes = out.bytes();
}

std::string buffer_text(const Buffer& x) { return std::string(dtype_name(x.dtype)) + " x " + std::to_string(x.count); }

[[noreturn]] void refuse(const std::string& what, const std::string& rule) {
  throw Error(Code::kBadConfig, what + ": " + rule);
}

void check_no_counts(const OpOptions& options, std::string_view what) {
  if (!options.counts.empty()) refuse(std::string(what), "has no parts, so no counts");
}

CollectiveCall in_place_call(Collective collective, const Buffer& x, const OpOptions& options) {
  check_buffer(x, collective_name(collective));
  check_no_counts(options, collective_name(collective));
  CollectiveCall call = call_of(collective, x.count, x.dtype, options);
  call.request.in_place = true;
  call.shape = x.layout;
  if (x.layout != 0) {
    const int64_t hash[] = {static_cast<int64_t>(x.layout)};
    call.shape_text = "strides " + short_list(hash, 9);
  }
  set_output(call, x);
  return call;
}

// Sets what the operation reduces with. A factor scales this rank's input before the operation.
void set_reduction(CollectiveCall& call, const OpOptions& options) {
  const DType dtype = call.request.dtype;
  check_supported(options.op, dtype);
  call.reduces = true;
  if (options.op == ReduceOp::kPremultipliedSum) {
    // A factor of 1 gets a packing too, since all ranks have to use the same kind of memory.
    call.packing = std::make_shared<Packing>(dtype, options.factor);
  } else if (options.factor != 1) {
    refuse(std::string(collective_name(call.request.collective)),
           "a factor of " + std::to_string(options.factor) + " with op " + std::string(reduce_op_name(options.op)) +
               "\n  fix: op = ReduceOp::kPremultipliedSum");
  }
}

// Returns the layout of a message of equal parts, or of the options' counts, which then make up its elements.
MessageLayout layout_of(CollectiveCall& call, int num_ranks, const OpOptions& options) {
  CollectiveRequest& request = call.request;
  request.counts.assign(options.counts.begin(), options.counts.end());
  Schedule header;
  header.collective = request.collective;
  header.num_ranks = num_ranks;
  header.counts = request.counts;
  const size_t num_counts = static_cast<size_t>(num_ranks) *
                            (request.collective == Collective::kAllToAll ? static_cast<size_t>(num_ranks) : 1);
  if (request.counts.size() == num_counts)
    request.elements = elements_of_counts(request.collective, num_ranks, request.counts);
  header.elements = request.elements;
  check_counts(header);
  return MessageLayout(header);
}

void check_size(const CollectiveCall& call, const Buffer& x, const char* which, int64_t count) {
  const std::string_view what = collective_name(call.request.collective);
  check_buffer(x, what);
  check_in_order(x, what);
  if (x.dtype == call.request.dtype && x.count == count) return;
  refuse(std::string(what), std::string(which) + " has to be " + std::string(dtype_name(call.request.dtype)) + " x " +
                                std::to_string(count) + ", but it is " + buffer_text(x));
}

// A rank with nothing to give or to take can't know whether the others' memory is symmetric, nor whether they run in
// place. If there is such a rank, all use ordinary memory out of place. A caller that names the algorithm answers for
// the memory of all ranks.
bool somebody_has_nothing(const CollectiveCall& call, const MessageLayout& layout, int num_ranks) {
  if (!call.algorithm.empty()) return false;
  if (call.request.counts.empty()) return call.request.elements < num_ranks;  // equal parts
  for (Rank rank = 0; rank < num_ranks; ++rank) {
    const bool nothing = call.request.collective == Collective::kAllToAll
                             ? layout.num_sent(rank) == 0 || layout.num_received(rank) == 0
                             : layout.part(rank).size() == 0;
    if (nothing) return true;
  }
  return false;
}

// Lets the operation read a copy of the input, times the factor.
void copy_input(CollectiveCall& call, const Buffer& in) {
  if (call.packing == nullptr) call.packing = std::make_shared<Packing>(in.dtype, 1);
  call.input = call.packing->reserve(in.bytes());
  call.input_bytes = in.bytes();
  call.packing->load(in.ptr, call.input, in.bytes());
}

// Tells whether the part lies at its own place in the whole. Throws if it overlaps the whole elsewhere.
bool at_its_place(const std::string& what, const Buffer& part, const Buffer& whole, Range range) {
  const auto* first = static_cast<const std::byte*>(whole.ptr);
  const auto* mine = static_cast<const std::byte*>(part.ptr);
  const auto* place = first + range.begin * size_of(whole.dtype);
  if (range.size() == 0) return mine != nullptr && mine >= first && mine <= first + whole.bytes();
  if (mine == place) return true;
  if (mine + part.bytes() <= first || mine >= first + whole.bytes()) return false;
  refuse(what, "this rank's part overlaps the whole at byte " + std::to_string(mine - first) +
                   "\n  fix: in place it starts at byte " + std::to_string(place - first) +
                   "; otherwise it lies outside");
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

void check_in_order(const Buffer& buffer, std::string_view what) {
  if (buffer.layout == 0) return;
  refuse(std::string(what),
         "its elements do not lie in their logical order (a transposed tensor)"
         "\n  fix: pass tensor.contiguous()");
}

void check_rank(Rank rank, int num_ranks, std::string_view what) {
  if (rank >= 0 && rank < num_ranks) return;
  throw Error(Code::kBadConfig, std::string(what) + " " + std::to_string(rank) +
                                    " is not in the group: its ranks are 0 .. " + std::to_string(num_ranks - 1));
}

CollectiveCall all_reduce_call(const Buffer& x, const OpOptions& options) {
  CollectiveCall call = in_place_call(Collective::kAllReduce, x, options);
  set_reduction(call, options);
  if (call.packing != nullptr) call.packing->load(x.ptr, x.ptr, x.bytes());
  return call;
}

CollectiveCall broadcast_call(const Buffer& x, Rank root, int num_ranks, const OpOptions& options) {
  check_rank(root, num_ranks, "broadcast: root");
  CollectiveCall call = in_place_call(Collective::kBroadcast, x, options);
  call.request.root = root;
  return call;
}

CollectiveCall reduce_call(const Buffer& x, Rank root, Rank self, int num_ranks, const OpOptions& options) {
  check_rank(root, num_ranks, "reduce: root");
  CollectiveCall call = in_place_call(Collective::kReduce, x, options);
  call.request.root = root;
  set_reduction(call, options);
  if (call.packing != nullptr) {  // the buffers of other ranks than root stay as they were
    call.output = call.packing->reserve(x.bytes());
    call.packing->load(x.ptr, call.output, x.bytes());
    if (self == root) call.packing->store(call.output, x.ptr, x.bytes());
  }
  return call;
}

CollectiveCall all_gather_call(const Buffer& in, const Buffer& out, Rank self, int num_ranks,
                               const OpOptions& options) {
  CollectiveCall call = call_of(Collective::kAllGather, out.count, out.dtype, options);
  const MessageLayout layout = layout_of(call, num_ranks, options);
  check_size(call, out, "the whole", call.request.elements);
  check_size(call, in, "this rank's part", layout.part(self).size());
  call.ordinary = somebody_has_nothing(call, layout, num_ranks);
  const bool at_place = at_its_place("all_gather", in, out, layout.part(self));
  call.request.in_place = at_place && !call.ordinary;
  set_output(call, out);
  if (!at_place)
    set_input(call, in);
  else if (call.ordinary)
    copy_input(call, in);
  return call;
}

CollectiveCall reduce_scatter_call(const Buffer& in, const Buffer& out, Rank self, int num_ranks,
                                   const OpOptions& options) {
  CollectiveCall call = call_of(Collective::kReduceScatter, in.count, in.dtype, options);
  const MessageLayout layout = layout_of(call, num_ranks, options);
  check_size(call, in, "the whole", call.request.elements);
  check_size(call, out, "this rank's part", layout.part(self).size());
  set_reduction(call, options);
  call.ordinary = somebody_has_nothing(call, layout, num_ranks);
  const bool at_place = at_its_place("reduce_scatter", out, in, layout.part(self));
  call.request.in_place = at_place && !call.ordinary;
  set_output(call, call.request.in_place ? in : out);
  if (call.request.in_place) {
    if (call.packing != nullptr) call.packing->load(in.ptr, in.ptr, in.bytes());
  } else if (at_place || call.packing != nullptr) {
    copy_input(call, in);
  } else {
    set_input(call, in);
  }
  return call;
}

// Root's part may lie at its place in the whole: it is then copied onto itself, so the ranks need not agree on that.
CollectiveCall gather_call(const Buffer& in, const Buffer& out, Rank root, Rank self, int num_ranks,
                           const OpOptions& options) {
  check_rank(root, num_ranks, "gather: root");
  CollectiveCall call = call_of(Collective::kGather, in.count * num_ranks, in.dtype, options);
  const MessageLayout layout = layout_of(call, num_ranks, options);
  call.request.root = root;
  check_size(call, in, "this rank's part", layout.part(self).size());
  call.ordinary = somebody_has_nothing(call, layout, num_ranks);
  set_input(call, in);
  if (self != root) return call;
  check_size(call, out, "the whole", call.request.elements);
  at_its_place("gather", in, out, layout.part(self));
  set_output(call, out);
  return call;
}

CollectiveCall scatter_call(const Buffer& in, const Buffer& out, Rank root, Rank self, int num_ranks,
                            const OpOptions& options) {
  check_rank(root, num_ranks, "scatter: root");
  CollectiveCall call = call_of(Collective::kScatter, out.count * num_ranks, out.dtype, options);
  const MessageLayout layout = layout_of(call, num_ranks, options);
  call.request.root = root;
  check_size(call, out, "this rank's part", layout.part(self).size());
  call.ordinary = somebody_has_nothing(call, layout, num_ranks);
  set_output(call, out);
  if (self != root) return call;
  check_size(call, in, "the whole", call.request.elements);
  at_its_place("scatter", out, in, layout.part(self));
  set_input(call, in);
  return call;
}

CollectiveCall all_to_all_call(const Buffer& in, const Buffer& out, Rank self, int num_ranks,
                               const OpOptions& options) {
  CollectiveCall call = call_of(Collective::kAllToAll, in.count, in.dtype, options);
  if (options.counts.empty() && in.count % num_ranks != 0) {
    refuse("all_to_all", "blocks are of one size, but " + std::to_string(in.count) + " elements % " +
                             std::to_string(num_ranks) + " ranks = " + std::to_string(in.count % num_ranks) +
                             "\n  fix: give counts");
  }
  const MessageLayout layout = layout_of(call, num_ranks, options);
  check_size(call, in, "what this rank sends", layout.num_sent(self));
  check_size(call, out, "what this rank receives", layout.num_received(self));
  call.ordinary = somebody_has_nothing(call, layout, num_ranks);
  const bool at_place = in.ptr == out.ptr && in.count > 0;
  call.request.in_place = at_place && !call.ordinary;
  if (!at_place && in.count > 0 && out.count > 0) {
    const auto *a = static_cast<const std::byte*>(in.ptr), *b = static_cast<const std::byte*>(out.ptr);
    if (a < b + out.bytes() && b < a + in.bytes()) refuse("all_to_all", "input and output overlap in part");
  }
  set_output(call, out);
  if (!at_place)
    set_input(call, in);
  else if (call.ordinary)
    copy_input(call, in);
  return call;
}

CollectiveCall barrier_call(const OpOptions& options) { return call_of(Collective::kBarrier, 0, DType::kU8, options); }

}  // namespace herd::comm
