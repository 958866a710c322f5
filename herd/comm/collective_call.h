// Turns buffers into a checked request: it states once what each collective means for counts, parts and in-place use.
// Threads: pure.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <source_location>
#include <span>
#include <string>
#include <string_view>

#include "herd/base/buffer.h"
#include "herd/base/reduce_op.h"
#include "herd/collectives/request.h"
#include "herd/comm/communicator.h"
#include "herd/comm/device_steps.h"
#include "herd/comm/packing.h"

namespace herd::comm {

// Holds what the user asks for, checked and in bytes.
struct CollectiveCall {
  CollectiveRequest request;
  ReduceOp op = ReduceOp::kSum;
  bool reduces = false;
  std::byte* input = nullptr;
  std::byte* output = nullptr;
  int64_t input_bytes = 0, output_bytes = 0;
  uint64_t shape = 0;                        // a hash of the parts of the message; fingerprints contain it
  std::string shape_text = {};               // says in reports what `shape` is of; may be empty
  std::shared_ptr<Packing> packing;          // may be null
  std::shared_ptr<DeviceSteps> device = {};  // null where the buffers are the host's
  // What reports and fingerprints show, where the schedule is only the signal between ranks; may be null.
  const CollectiveRequest* shown = nullptr;
  std::string_view shown_algorithm = {};
  bool ordinary = false;  // true: not used as symmetric memory, since other ranks' messages may lie elsewhere
  std::string_view name, algorithm;
  std::chrono::milliseconds deadline{0};
  std::source_location where;
};

// These throw kBadConfig with the rule and its values.
CollectiveCall all_reduce_call(const Buffer& x, const OpOptions& options);
CollectiveCall broadcast_call(const Buffer& x, Rank root, int num_ranks, const OpOptions& options);
CollectiveCall reduce_call(const Buffer& x, Rank root, Rank self, int num_ranks, const OpOptions& options);
CollectiveCall all_gather_call(const Buffer& in, const Buffer& out, Rank self, int num_ranks, const OpOptions& options);
CollectiveCall reduce_scatter_call(const Buffer& in, const Buffer& out, Rank self, int num_ranks,
                                   const OpOptions& options);
CollectiveCall gather_call(const Buffer& in, const Buffer& out, Rank root, Rank self, int num_ranks,
                           const OpOptions& options);
CollectiveCall scatter_call(const Buffer& in, const Buffer& out, Rank root, Rank self, int num_ranks,
                            const OpOptions& options);
CollectiveCall all_to_all_call(const Buffer& in, const Buffer& out, Rank self, int num_ranks, const OpOptions& options);
CollectiveCall barrier_call(const OpOptions& options);

// These make one message of a list (list_call.cpp): see packing.h.
using BufferList = std::span<const Buffer>;
CollectiveCall all_reduce_list_call(BufferList xs, const OpOptions& options);
CollectiveCall broadcast_list_call(BufferList xs, Rank root, Rank self, int num_ranks, const OpOptions& options);
CollectiveCall reduce_list_call(BufferList xs, Rank root, Rank self, int num_ranks, const OpOptions& options);
CollectiveCall all_gather_list_call(BufferList ins, BufferList outs, Rank self, int num_ranks,
                                    const OpOptions& options);
CollectiveCall reduce_scatter_list_call(BufferList ins, BufferList outs, Rank self, int num_ranks,
                                        const OpOptions& options);
CollectiveCall gather_list_call(BufferList ins, BufferList outs, Rank root, Rank self, int num_ranks,
                                const OpOptions& options);
CollectiveCall scatter_list_call(BufferList ins, BufferList outs, Rank root, Rank self, int num_ranks,
                                 const OpOptions& options);
CollectiveCall all_to_all_list_call(BufferList ins, BufferList outs, Rank self, int num_ranks,
                                    const OpOptions& options);

void check_buffer(const Buffer& buffer, std::string_view what);
void check_in_order(const Buffer& buffer, std::string_view what);  // throws unless elements lie in their logical order
void check_rank(Rank rank, int num_ranks, std::string_view what);

}  // namespace herd::comm
