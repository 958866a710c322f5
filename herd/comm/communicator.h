// A group of ranks and the operations among them, on raw spans, std::vector, herd::Buffer, and (with herd_torch)
// at::Tensor.
//
//   auto comm = herd::Communicator::create();                 // from the launcher's environment
//   comm.all_reduce(grad, {.op = herd::ReduceOp::kSum});      // in place
//   herd::Work work = comm.all_reduce_async(grad);            // ... work.wait();
//
// Every rank of the group calls the same operations in the same order; a rank that does not is named by all others
// within the deadline (Code::kTimeout, or kBadConfig where the fingerprints differ). Operations of one group complete
// in issue order, groups progress independently, and send/receive never queue behind collectives.
// Results: the same bits on every rank and in every run, for the same ranks and algorithm.
// Threads: one calling thread per group; abort() and Work::wait() from any thread.
#pragma once

#include <chrono>
#include <memory>
#include <source_location>
#include <string>
#include <string_view>
#include <vector>

#include "herd/base/buffer.h"
#include "herd/base/ids.h"
#include "herd/base/reduce_op.h"

namespace herd {

struct OpOptions {
  ReduceOp op = ReduceOp::kSum;
  std::string_view name = {};                                    // shown in reports, part of the fingerprint
  std::chrono::milliseconds deadline{0};                         // from local issue; 0 = the group's default (60 s)
  std::string_view algorithm = {};                               // empty = chosen; see `herd explain`
  std::source_location where = std::source_location::current();  // shown in reports
};

// An operation in flight. wait() returns when it is done and rethrows its Error; the destructor never blocks.
class Work {
 public:
  Work() = default;
  void wait();
  bool done() const;
  // When it completed or failed, on the steady clock; the epoch for a Work of no operation. REQUIRES done().
  std::chrono::steady_clock::time_point finished_at() const;

 private:
  friend class Communicator;
  struct State;
  std::shared_ptr<State> state_;
};

// What a group ran so far, for a run's record.
struct AlgorithmUse {
  std::string collective;  // "all_reduce"
  int64_t bytes = 0;       // of the whole message, as herd/schedule/schedule.h defines it
  std::string algorithm;
  uint64_t operations = 0;  // issued by this rank
};

// Memory that every rank of the group on this host maps: collectives on it move no staging copies. Freed with the
// last copy of the handle. Allocation is collective and ordered.
class SymmetricMemory {
 public:
  void* data() const;
  int64_t bytes() const;
  template <typename T>
  std::span<T> span() const {
    return {static_cast<T*>(data()), static_cast<size_t>(bytes()) / sizeof(T)};
  }
  std::shared_ptr<void> keep_alive() const;

 private:
  friend class Communicator;
  struct State;
  std::shared_ptr<State> state_;
};

namespace transport {
class Transport;
}
namespace comm {
struct Access;
struct CollectiveCall;
struct Context;
struct Task;
}  // namespace comm

class Communicator {
 public:
  // The world, from the environment that herd run, torchrun, srun or mpirun sets; alone without one.
  // Collective. Throws kTimeout naming the ranks that do not come, kBadConfig where ranks are on several hosts.
  static Communicator create();
  // The world over a given transport; for tests and benches. Collective over its ranks.
  explicit Communicator(std::shared_ptr<transport::Transport> transport);
  Communicator(Communicator&&) noexcept;
  Communicator& operator=(Communicator&&) noexcept;
  ~Communicator();

  Rank rank() const;  // -1 where this rank is in no group (split with color < 0)
  int size() const;
  std::string_view name() const;
  // A group of the ranks that pass the same color >= 0, ordered by (key, rank); color < 0 takes part and gets a
  // communicator of size 0. Collective.
  Communicator split(int color, int key, std::string_view name = "group");
  SymmetricMemory allocate_symmetric(int64_t bytes, OpOptions options = {});
  // Bytes that this rank has sent, or read from and written to its peers' memory, in finished operations of all groups
  // of its process's communicator. Grows only. Any thread.
  uint64_t bytes_sent() const;
  // The algorithms that this group ran, ordered by collective, bytes and algorithm. The group's calling thread.
  std::vector<AlgorithmUse> algorithms_used() const;
  // The topology that the choice of algorithms rests on, as text (docs/formats/topology.md): the same on all ranks.
  std::string topology() const;
  // Every operation in flight, and every later one, fails with kAborted and this reason, on all ranks.
  void abort(const std::string& reason);

  // Collectives, synchronous. Buffers as in herd/schedule/schedule.h; a single buffer means in place.
  template <typename T>
  void all_reduce(T&& x, OpOptions o = {}) {
    run_all_reduce(to_buffer(x, BufferTag{}), o);
  }
  template <typename T>
  void broadcast(T&& x, Rank root, OpOptions o = {}) {
    run_broadcast(to_buffer(x, BufferTag{}), root, o);
  }
  template <typename T>
  void reduce(T&& x, Rank root, OpOptions o = {}) {
    run_reduce(to_buffer(x, BufferTag{}), root, o);
  }
  template <typename In, typename Out>
  void all_gather(In&& in, Out&& out, OpOptions o = {}) {
    run_all_gather(to_buffer(in, BufferTag{}), to_buffer(out, BufferTag{}), o);
  }
  template <typename In, typename Out>
  void reduce_scatter(In&& in, Out&& out, OpOptions o = {}) {
    run_reduce_scatter(to_buffer(in, BufferTag{}), to_buffer(out, BufferTag{}), o);
  }
  void barrier(OpOptions o = {});

  template <typename T>
  Work all_reduce_async(T&& x, OpOptions o = {}) {
    return start_all_reduce(to_buffer(x, BufferTag{}), o);
  }
  template <typename T>
  Work broadcast_async(T&& x, Rank root, OpOptions o = {}) {
    return start_broadcast(to_buffer(x, BufferTag{}), root, o);
  }
  template <typename T>
  Work reduce_async(T&& x, Rank root, OpOptions o = {}) {
    return start_reduce(to_buffer(x, BufferTag{}), root, o);
  }
  template <typename In, typename Out>
  Work all_gather_async(In&& in, Out&& out, OpOptions o = {}) {
    return start_all_gather(to_buffer(in, BufferTag{}), to_buffer(out, BufferTag{}), o);
  }
  template <typename In, typename Out>
  Work reduce_scatter_async(In&& in, Out&& out, OpOptions o = {}) {
    return start_reduce_scatter(to_buffer(in, BufferTag{}), to_buffer(out, BufferTag{}), o);
  }

  // Point to point; messages between two ranks with one tag arrive in order.
  template <typename T>
  void send(T&& x, Rank to, int tag = 0, OpOptions o = {}) {
    run_send(to_buffer(x, BufferTag{}), to, tag, o);
  }
  template <typename T>
  void receive(T&& x, Rank from, int tag = 0, OpOptions o = {}) {
    run_receive(to_buffer(x, BufferTag{}), from, tag, o);
  }
  template <typename T>
  Work send_async(T&& x, Rank to, int tag = 0, OpOptions o = {}) {
    return start_send(to_buffer(x, BufferTag{}), to, tag, o);
  }
  template <typename T>
  Work receive_async(T&& x, Rank from, int tag = 0, OpOptions o = {}) {
    return start_receive(to_buffer(x, BufferTag{}), from, tag, o);
  }

  // Raw operations, of which algorithms outside herd are made. What this rank wrote to any memory before signal() is
  // seen by `to` after its wait() for this rank and tag. Tags are one space with those of send and receive.
  void signal(Rank to, int tag = 0, OpOptions o = {});
  void wait(Rank from, int tag = 0, OpOptions o = {});  // of one signal; k signals take k waits
  // Writes x into rank `to`'s part of `memory`, `offset` bytes from its start, and returns when it is written. `to`
  // must know when: signal() afterwards. Throws kBadConfig where this group did not allocate `memory`, or x does not
  // fit.
  template <typename T>
  void copy(T&& x, const SymmetricMemory& memory, Rank to, int64_t offset = 0) {
    run_copy(to_buffer(x, BufferTag{}), memory, to, offset);
  }

 private:
  friend struct comm::Access;
  struct State;
  explicit Communicator(std::unique_ptr<State> state);

  // run: on the calling thread, returns when done. start: on the progress thread.
  void run_all_reduce(const Buffer& x, const OpOptions&);
  void run_broadcast(const Buffer& x, Rank root, const OpOptions&);
  void run_reduce(const Buffer& x, Rank root, const OpOptions&);
  void run_all_gather(const Buffer& in, const Buffer& out, const OpOptions&);
  void run_reduce_scatter(const Buffer& in, const Buffer& out, const OpOptions&);
  void run_send(const Buffer& x, Rank to, int tag, const OpOptions&);
  void run_receive(const Buffer& x, Rank from, int tag, const OpOptions&);
  void run_copy(const Buffer& x, const SymmetricMemory& memory, Rank to, int64_t offset);
  Work start_all_reduce(const Buffer& x, const OpOptions&);
  Work start_broadcast(const Buffer& x, Rank root, const OpOptions&);
  Work start_reduce(const Buffer& x, Rank root, const OpOptions&);
  Work start_all_gather(const Buffer& in, const Buffer& out, const OpOptions&);
  Work start_reduce_scatter(const Buffer& in, const Buffer& out, const OpOptions&);
  Work start_send(const Buffer& x, Rank to, int tag, const OpOptions&);
  Work start_receive(const Buffer& x, Rank from, int tag, const OpOptions&);

  void run(comm::CollectiveCall call);
  Work start(comm::CollectiveCall call, const Buffer& in, const Buffer& out);

  std::unique_ptr<State> state_;
};

}  // namespace herd
