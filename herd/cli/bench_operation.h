// Holds one rank's buffers of one benched operation: writes the inputs, runs it, counts the wrong elements of the
// result.
// Threads: one at a time; run() is collective.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "herd/base/dtype.h"
#include "herd/base/reduce_op.h"
#include "herd/cli/bench_pattern.h"
#include "herd/collectives/request.h"
#include "herd/comm/communicator.h"
#include "herd/schedule/parts.h"

namespace herd::cli {

// Counts the buffers that each rank must read and write at least; all ranks at once, they set the limit by memory.
struct BenchShape {
  int inputs = 1, outputs = 1;
  double share = 1;  // of the message, in each of these buffers
};

// Tells whether the result takes the place of the input.
enum class InPlace : uint8_t { kAlways, kAsAsked, kNever };

struct BenchKind {
  std::string_view name;
  bool reduces, rooted;
  InPlace in_place;
  double (*bus_factor)(int num_ranks);  // busbw = algbw * this, nccl-tests' definition
  BenchShape (*shape)(int num_ranks);
};

// Throws kBadConfig with the valid names.
const BenchKind& bench_kind(std::string_view op);
std::vector<std::string_view> bench_kinds();
// Returns the number of which elements must be a multiple: the ranks, where the operation's parts are equal.
int64_t least_elements(std::string_view op, int num_ranks);
// Returns the elements of the message that fit the bytes, and cut into equal parts where the operation wants that.
int64_t whole_elements(std::string_view op, int64_t bytes, DType dtype, int num_ranks);

struct BenchCall {
  std::string op = {}, algorithm = {};
  DType dtype = DType::kF32;
  ReduceOp reduce = ReduceOp::kSum;
  int64_t bytes = 0;  // of the whole message, as schedule.h defines it; whole elements
  bool symmetric = false;
  bool in_place = false;      // where that can be chosen
  Rank root = 0;              // of a rooted operation
  int64_t segment_bytes = 0;  // of pipelined algorithms; 0: by the message
  Device device = {};         // where the buffers lie
};

class DeviceTwin;

class BenchOperation {
 public:
  BenchOperation(Communicator& comm, const BenchCall& call);
  void rewrite(int repetition);  // this rank's inputs
  void run();
  void read_back();  // of a device; before wrong()
  bool takes_part() const { return call_.op != "send" || comm_.rank() < 2; }
  int64_t wrong(int repetition);  // elements, on this rank
  // Returns the request to collective algorithms. REQUIRES an operation that is one, so not "send".
  CollectiveRequest request() const;
  bool in_place() const { return in_place_; }
  // What the whole message's buffer holds.
  std::span<const std::byte> result() { return {whole_.data(), static_cast<size_t>(call_.bytes)}; }

 private:
  class Memory {
   public:
    Memory(Communicator& comm, int64_t bytes, const BenchCall& call);
    ~Memory();
    std::byte* data() { return data_; }           // the host's
    Buffer buffer(int64_t first, int64_t count);  // of the operation
    void write();
    void read();

   private:
    DType dtype_;
    Device device_;
    std::unique_ptr<DeviceTwin> twin_;  // null on the host
    SymmetricMemory shared_;
    std::vector<std::byte> private_;
    std::byte* data_ = nullptr;
  };
  Buffer whole() { return whole_.buffer(0, elements_); }
  Buffer part();  // this rank's, in the whole or beside it
  std::byte* part_on_host();
  // Of the parts at `at`, in the order of those who gave them: `exchanged`, each gave what is for this rank.
  int64_t wrong_parts(const std::byte* at, bool exchanged, int repetition) const;

  Communicator& comm_;
  BenchCall call_;
  OpOptions options_;
  int64_t elements_;
  bool in_place_;
  Range mine_;
  BenchPattern pattern_;
  Memory whole_, other_;  // other_: the rank's part, or what all_to_all gives; out of place only
};

}  // namespace herd::cli
