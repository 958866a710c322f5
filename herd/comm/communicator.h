// Defines a group of ranks and the operations among them, on raw spans, std::vector, herd::Buffer, and (with
// herd_torch) at::Tensor.
//
//   auto comm = herd::Communicator::create();                 // from the launcher's environment
//   comm.all_reduce(grad, {.op = herd::ReduceOp::kSum});      // in place
//   herd::Work work = comm.all_reduce_async(grad);            // ... work.wait();
//
// Every rank of the group calls the same operations in the same order. If a rank does not, the others' operation fails
// within the deadline with an error that names it (Code::kTimeout, or kBadConfig where the fingerprints differ).
// A buffer may lie on a device (Buffer::device), all buffers of an operation on one. What is enqueued on the buffers'
// streams so far comes before the operation, and the operation is done when its results are on the device. Such
// buffers are copied to page-locked memory of the host, and back (host_copies.h).
// Operations of one group complete in issue order, groups progress independently, and send/receive never queue behind
// collectives.
// A world and all groups split off it fail together. An operation that fails ends every group of its ranks, and of
// those that share a group with them, with the same words. Errors name ranks of the job, whatever the group.
// Results have the same bits on every rank and in every run, for the same ranks and algorithm.
// A communicator and its Works belong to the process that made them. In a child that it forks every call throws
// kBadConfig, and destructors do nothing.
// Threads: any. Collectives that several threads issue into one group run in the order in which they were issued, which
// has to be that of the other ranks. split(), group(), allocate_symmetric(), shrink() and set_deadline() are for one
// thread at a time.
#pragma once

#include <chrono>
#include <concepts>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "herd/base/buffer.h"
#include "herd/base/ids.h"
#include "herd/base/reduce_op.h"
#include "herd/base/store.h"
#include "herd/comm/device_engine.h"

namespace herd::transport {
class Transport;
}

namespace herd::comm {

struct OpOptions {
  ReduceOp op = ReduceOp::kSum;
  std::string_view name = {};             // reports show it, and fingerprints contain it
  std::chrono::milliseconds deadline{0};  // counts from the local issue; 0 = the group's default (60 s)
  std::string_view algorithm = {};        // empty = the group chooses; see `herd explain`
  // Size of segments in pipelined algorithms, the same on all ranks; 0 = chosen from the size of the message.
  int64_t segment_bytes = 0;
  // Gives the elements of each rank's part where they are uneven (the "v" forms of gather, all_gather, scatter,
  // reduce_scatter), the same on all ranks. For all_to_all, [f * size + t] is what rank f sends to rank t: see
  // exchange_counts().
  std::span<const int64_t> counts = {};
  double factor = 1;  // multiplies this rank's input; op = kPremultipliedSum only
  std::source_location where = std::source_location::current();  // reports show it
};

// A Work is an operation in flight. wait() returns when it is done, or throws its Error; the destructor never blocks.
class Work {
 public:
  Work() = default;
  void wait();
  bool done() const;
  // Lets what is enqueued on this stream of a device from here on come after the operation. An engine that works on
  // streams lets the calling thread go on; staged copies let it wait, as wait() does. Throws its Error where it waits.
  void hold(StreamHandle stream);
  // Returns when it completed or failed, on the steady clock; the epoch for a Work without an operation. REQUIRES
  // done().
  std::chrono::steady_clock::time_point finished_at() const;
  Rank source() const;  // returns the rank that a receive got its message from. REQUIRES done()
  // Calls `call` once the operation is done or has failed, at once where it is. The calling thread may be herd's own,
  // with its lock: `call` hands the news to another thread, and neither blocks nor calls herd.
  void on_done(std::function<void()> call);

 private:
  friend class Communicator;
  struct State;
  std::shared_ptr<State> state_;
};

// AlgorithmUse counts what a group ran so far, for a run's record.
struct AlgorithmUse {
  std::string collective;  // "all_reduce"
  int64_t bytes = 0;       // size of the whole message, as herd/schedule/schedule.h defines it
  std::string algorithm;
  uint64_t operations = 0;  // issued by this rank
};

// Owns memory that every rank of the group on this host maps: collectives on it make no staging copies. The last copy
// of the handle frees it. Allocation is collective, in the order of operations.
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

// Describes a world whose ranks the program numbers itself, and where they meet: at `init_method`, or in a store that
// the program brings, for instance PyTorch's.
struct Rendezvous {
  // "tcp://HOST:PORT", at which rank 0 serves a store that all ranks reach, with the same HERD_TOKEN_FILE or
  // HERD_TOKEN. On a loopback address they need no token: the port is a name, by which processes of one user on this
  // host meet.
  std::string init_method = {};
  std::shared_ptr<Store> store = {};  // all its keys are the world's own; in place of init_method
  Rank rank = 0;
  int world_size = 1;
  std::chrono::milliseconds deadline{60000};  // for the ranks to come, and then for operations
};

struct CommunicatorTestAccess;
struct CollectiveCall;
struct Context;
struct GroupSettings;

// Returns the buffers of a list whose elements to_buffer() takes.
template <typename List>
std::vector<Buffer> to_buffers(List&& list) {
  std::vector<Buffer> buffers;
  for (auto&& one : list) buffers.push_back(to_buffer(one, BufferTag{}));
  return buffers;
}

class Communicator {
 public:
  // Makes the world from the environment that herd run, torchrun, srun or mpirun sets; without one, a world of this
  // rank alone. `topology` of rank 0, else HERD_TOPOLOGY, replaces what is discovered of the machines when algorithms
  // are chosen. It is a file of docs/formats/topology.md, or a preset such as "torus:2x2x2".
  // Collective. Throws kTimeout with the ranks that do not come. Throws kBadConfig on several hosts in a build without
  // UCX, and where the topology has other ranks or hosts. Throws kCorruptFile for a file that breaks the format's
  // rules.
  static Communicator create() { return create_on({}); }
  template <std::convertible_to<std::string> Text>  // braces are a Rendezvous, never the arguments of a string
  static Communicator create(const Text& topology) {
    return create_on(topology);
  }
  // Makes the world of ranks that the program numbers itself, whatever launcher has started them:
  //   auto comm = herd::Communicator::create({.init_method = "tcp://10.0.0.1:29500", .rank = 1, .world_size = 4});
  // It takes from the environment what create() does, but for who the rank is. Ranks on several hosts need the same
  // HERD_TOKEN_FILE or HERD_TOKEN, since whoever reaches the store could read a secret in it; on one host rank 0 makes
  // the secret. Collective. Throws kTimeout with the ranks that do not come, kBadConfig for an init_method of another
  // form, and on all ranks where those on several hosts have no token.
  static Communicator create(const Rendezvous& rendezvous);
  // Makes the world over a given transport, for tests and benches. Collective over the transport's ranks.
  explicit Communicator(std::shared_ptr<transport::Transport> transport);
  // A communicator that was moved from throws kBadConfig whatever is called.
  Communicator(Communicator&&) noexcept;
  Communicator& operator=(Communicator&&) noexcept;
  ~Communicator();
  // Returns another handle of this group, for an object that may outlive this one. The group closes with its last
  // handle.
  Communicator share() const;

  Rank rank() const;  // -1 where this rank is in no group (split with color < 0)
  int size() const;
  std::string_view name() const;
  // Sets the deadline of later operations whose options name none; it is 60 s at first. Groups made of this one inherit
  // it. Throws kBadConfig unless it is more than 0. Threads: the group's calling thread.
  void set_deadline(std::chrono::milliseconds deadline);
  // Chooses how operations of this group on buffers of `device` move their bytes; without it they are copied to the
  // host and back (staged). kAuto takes NCCL where each rank has a GPU of its own, else CUDA IPC within one host, else
  // the copies. Groups that split(), group() and shrink() make of this one do the same. Collective. Throws kBadConfig
  // on all ranks, with the reason, where an engine that was asked for can't be had.
  DeviceEngineChoice use_device(Device device, DeviceEngine engine = DeviceEngine::kAuto);
  DeviceEngineChoice device_engine() const;
  std::optional<Device> device() const;  // of use_device(), of this group or of the one it was made from
  // Makes a group of the ranks that pass the same color >= 0, ordered by (key, rank). A rank with color < 0 takes part
  // and gets a communicator of size 0. Collective.
  Communicator split(int color, int key, std::string_view name = "group");
  // Makes a group of `members`, different ranks of this group in the order of the new one. Collective over the members
  // alone, and in their order where they make several groups with the same name. The new group fails by itself, unlike
  // those that split() makes. Throws kBadConfig where this rank is no member, kTimeout with the members that do not
  // come.
  Communicator group(const std::vector<Rank>& members, std::string_view name);
  // Allocates `bytes` on each rank, the same number on all. Collective, in the order of operations. Throws kBadConfig
  // for bytes < 0.
  SymmetricMemory allocate_symmetric(int64_t bytes, OpOptions options = {});
  // Returns the bytes that this rank has moved in all groups of its world. It counts the payload of its messages, and
  // what it read from and wrote to its peers' memory. So the sender counts a message, and whoever touches a peer's
  // memory counts that: the reader where ranks pull, the writer where they push. The count grows piece by piece, and
  // includes failed operations. Threads: any.
  uint64_t bytes_moved() const;
  // Returns the algorithms that this group ran, ordered by collective, bytes and algorithm. Threads: the group's
  // calling thread.
  std::vector<AlgorithmUse> algorithms_used() const;
  // Returns the topology that algorithms are chosen for, as text (docs/formats/topology.md); it is the same on all
  // ranks.
  std::string topology() const;
  // Fails every operation in flight and every later one with kAborted and this reason, on all ranks and in all groups
  // of the world. Threads: any.
  void abort(const std::string& reason);
  // Tells what this rank does, for instance "step 7: forward of block 3", in at most 183 bytes. Reports of failures
  // that this rank causes quote it, on every rank. On this host they find it in shared memory even where the rank was
  // killed; other hosts know it of ranks that still answer. Threads: any.
  void show_activity(std::string_view activity);
  // Makes a new group of the members that are alive, in the same order, for instance after kPeerLost. Collective over
  // them. This group and all of its world end: operations in flight fail with kAborted, and the new group fails by
  // itself. All survivors get the same group, also where another one dies meanwhile. Symmetric memory that this group
  // allocated serves the new one.
  // Throws kTimeout with a member that lives and does not come within the deadline. Throws kPeerLost where the others
  // have taken this rank for gone, kBadConfig for more than 1024 ranks.
  // Source: MPI_Comm_revoke and MPI_Comm_shrink of ULFM, Bland et al. 2013, doi:10.1177/1094342013488238.
  Communicator shrink(std::string_view name = "survivors", OpOptions options = {});

  // Collectives: the first form returns when it is done, the _async form at once. herd/schedule/schedule.h defines
  // buffers and parts. A single buffer means in place. Two buffers may share memory where one is the rank's own part of
  // the other, and in all_to_all where they are the same. They throw kBadConfig with the rule where buffers do not fit.
  // A range of const elements where an operation writes, and a temporary vector in an _async form, do not compile.
  template <Writable T>
  void all_reduce(T&& x, OpOptions o = {}) {
    issue_all_reduce(to_buffer(x, BufferTag{}), o, Wait::kHere);
  }
  template <WritableLater T>
  [[nodiscard]] Work all_reduce_async(T&& x, OpOptions o = {}) {
    return issue_all_reduce(to_buffer(x, BufferTag{}), o, Wait::kLater);
  }
  template <Writable T>
  void all_reduce(T&& x, ReduceOp op, std::source_location where = std::source_location::current()) {
    all_reduce(x, {.op = op, .where = where});
  }
  template <WritableLater T>
  [[nodiscard]] Work all_reduce_async(T&& x, ReduceOp op,
                                      std::source_location where = std::source_location::current()) {
    return all_reduce_async(std::forward<T>(x), {.op = op, .where = where});
  }
  template <Writable T>
  void broadcast(T&& x, Rank root, OpOptions o = {}) {
    issue_broadcast(to_buffer(x, BufferTag{}), root, o, Wait::kHere);
  }
  template <WritableLater T>
  [[nodiscard]] Work broadcast_async(T&& x, Rank root, OpOptions o = {}) {
    return issue_broadcast(to_buffer(x, BufferTag{}), root, o, Wait::kLater);
  }
  template <Writable T>
  void reduce(T&& x, Rank root, OpOptions o = {}) {
    issue_reduce(to_buffer(x, BufferTag{}), root, o, Wait::kHere);
  }
  template <WritableLater T>
  [[nodiscard]] Work reduce_async(T&& x, Rank root, OpOptions o = {}) {
    return issue_reduce(to_buffer(x, BufferTag{}), root, o, Wait::kLater);
  }
  template <Writable T>
  void reduce(T&& x, Rank root, ReduceOp op, std::source_location where = std::source_location::current()) {
    reduce(x, root, {.op = op, .where = where});
  }
  template <typename In, Writable Out>
  void all_gather(In&& in, Out&& out, OpOptions o = {}) {
    issue_all_gather(to_buffer(in, BufferTag{}), to_buffer(out, BufferTag{}), o, Wait::kHere);
  }
  template <Lasting In, WritableLater Out>
  [[nodiscard]] Work all_gather_async(In&& in, Out&& out, OpOptions o = {}) {
    return issue_all_gather(to_buffer(in, BufferTag{}), to_buffer(out, BufferTag{}), o, Wait::kLater);
  }
  template <typename In, Writable Out>
  void reduce_scatter(In&& in, Out&& out, OpOptions o = {}) {
    issue_reduce_scatter(to_buffer(in, BufferTag{}), to_buffer(out, BufferTag{}), o, Wait::kHere);
  }
  template <Lasting In, WritableLater Out>
  [[nodiscard]] Work reduce_scatter_async(In&& in, Out&& out, OpOptions o = {}) {
    return issue_reduce_scatter(to_buffer(in, BufferTag{}), to_buffer(out, BufferTag{}), o, Wait::kLater);
  }
  template <typename In, Writable Out>
  void reduce_scatter(In&& in, Out&& out, ReduceOp op, std::source_location where = std::source_location::current()) {
    reduce_scatter(in, out, {.op = op, .where = where});
  }
  // Collects at root a part of each rank, of one size or of counts[rank] elements, in rank order. Only root uses `out`.
  template <typename In, Writable Out>
  void gather(In&& in, Out&& out, Rank root, OpOptions o = {}) {
    issue_gather(to_buffer(in, BufferTag{}), to_buffer(out, BufferTag{}), root, o, Wait::kHere);
  }
  template <Lasting In, WritableLater Out>
  [[nodiscard]] Work gather_async(In&& in, Out&& out, Rank root, OpOptions o = {}) {
    return issue_gather(to_buffer(in, BufferTag{}), to_buffer(out, BufferTag{}), root, o, Wait::kLater);
  }
  // Gives every rank its part of `in`, which only root reads.
  template <typename In, Writable Out>
  void scatter(In&& in, Out&& out, Rank root, OpOptions o = {}) {
    issue_scatter(to_buffer(in, BufferTag{}), to_buffer(out, BufferTag{}), root, o, Wait::kHere);
  }
  template <Lasting In, WritableLater Out>
  [[nodiscard]] Work scatter_async(In&& in, Out&& out, Rank root, OpOptions o = {}) {
    return issue_scatter(to_buffer(in, BufferTag{}), to_buffer(out, BufferTag{}), root, o, Wait::kLater);
  }
  // Every rank gives a part to each rank, in rank order, and gets one from each.
  template <typename In, Writable Out>
  void all_to_all(In&& in, Out&& out, OpOptions o = {}) {
    issue_all_to_all(to_buffer(in, BufferTag{}), to_buffer(out, BufferTag{}), o, Wait::kHere);
  }
  template <Lasting In, WritableLater Out>
  [[nodiscard]] Work all_to_all_async(In&& in, Out&& out, OpOptions o = {}) {
    return issue_all_to_all(to_buffer(in, BufferTag{}), to_buffer(out, BufferTag{}), o, Wait::kLater);
  }
  // Each of these returns its result in new memory, and leaves `x` as it is: a tensor for a tensor, else a std::vector.
  // Tensors are gathered and cut along their first dimension, as torch's all_gather_into_tensor does. Throws
  // kBadConfig where reduce_scattered() can't cut x into equal parts and o.counts gives no others.
  template <typename T>
  [[nodiscard]] auto all_reduced(const T& x, OpOptions o = {}) {
    auto result = copy_of(x, BufferTag{});
    all_reduce(result, o);
    return result;
  }
  template <typename T>
  [[nodiscard]] auto all_reduced(const T& x, ReduceOp op,
                                 std::source_location where = std::source_location::current()) {
    return all_reduced(x, {.op = op, .where = where});
  }
  template <typename T>
  [[nodiscard]] auto all_gathered(const T& x, OpOptions o = {}) {
    auto result = empty_like(x, gathered_elements(to_buffer(x, BufferTag{}).count, o), BufferTag{});
    all_gather(x, result, o);
    return result;
  }
  template <typename T>
  [[nodiscard]] auto reduce_scattered(const T& x, OpOptions o = {}) {
    auto result = empty_like(x, scattered_elements(to_buffer(x, BufferTag{}).count, o), BufferTag{});
    reduce_scatter(x, result, o);
    return result;
  }
  template <typename T>
  [[nodiscard]] auto exchanged(const T& x, OpOptions o = {}) {
    auto result = empty_like(x, exchanged_elements(to_buffer(x, BufferTag{}).count, o), BufferTag{});
    all_to_all(x, result, o);
    return result;
  }
  // Returns OpOptions::counts for all_to_all; sends[t] is what this rank sends to rank t, in elements. Collective.
  std::vector<int64_t> exchange_counts(std::span<const int64_t> sends, OpOptions o = {});
  void barrier(OpOptions o = {});  // returns when every rank of the group has called it

  // Each list of buffers of one dtype is one operation. Buffers that follow each other in memory cost nothing extra,
  // others are copied into one message and out of it. Operations on parts cut each buffer of the list into equal parts.
  template <WritableList List>
  void all_reduce_list(List&& xs, OpOptions o = {}) {
    issue_all_reduce_list(to_buffers(xs), o, Wait::kHere);
  }
  template <WritableLaterList List>
  [[nodiscard]] Work all_reduce_list_async(List&& xs, OpOptions o = {}) {
    return issue_all_reduce_list(to_buffers(xs), o, Wait::kLater);
  }
  template <WritableList List>
  void broadcast_list(List&& xs, Rank root, OpOptions o = {}) {
    issue_broadcast_list(to_buffers(xs), root, o, Wait::kHere);
  }
  template <WritableLaterList List>
  [[nodiscard]] Work broadcast_list_async(List&& xs, Rank root, OpOptions o = {}) {
    return issue_broadcast_list(to_buffers(xs), root, o, Wait::kLater);
  }
  template <WritableList List>
  void reduce_list(List&& xs, Rank root, OpOptions o = {}) {
    issue_reduce_list(to_buffers(xs), root, o, Wait::kHere);
  }
  template <WritableLaterList List>
  [[nodiscard]] Work reduce_list_async(List&& xs, Rank root, OpOptions o = {}) {
    return issue_reduce_list(to_buffers(xs), root, o, Wait::kLater);
  }
  template <typename Ins, WritableList Outs>
  void all_gather_list(Ins&& ins, Outs&& outs, OpOptions o = {}) {
    issue_all_gather_list(to_buffers(ins), to_buffers(outs), o, Wait::kHere);
  }
  template <LastingList Ins, WritableLaterList Outs>
  [[nodiscard]] Work all_gather_list_async(Ins&& ins, Outs&& outs, OpOptions o = {}) {
    return issue_all_gather_list(to_buffers(ins), to_buffers(outs), o, Wait::kLater);
  }
  template <typename Ins, WritableList Outs>
  void reduce_scatter_list(Ins&& ins, Outs&& outs, OpOptions o = {}) {
    issue_reduce_scatter_list(to_buffers(ins), to_buffers(outs), o, Wait::kHere);
  }
  template <LastingList Ins, WritableLaterList Outs>
  [[nodiscard]] Work reduce_scatter_list_async(Ins&& ins, Outs&& outs, OpOptions o = {}) {
    return issue_reduce_scatter_list(to_buffers(ins), to_buffers(outs), o, Wait::kLater);
  }
  // Only root uses `outs`.
  template <typename Ins, WritableList Outs>
  void gather_list(Ins&& ins, Outs&& outs, Rank root, OpOptions o = {}) {
    issue_gather_list(to_buffers(ins), to_buffers(outs), root, o, Wait::kHere);
  }
  template <LastingList Ins, WritableLaterList Outs>
  [[nodiscard]] Work gather_list_async(Ins&& ins, Outs&& outs, Rank root, OpOptions o = {}) {
    return issue_gather_list(to_buffers(ins), to_buffers(outs), root, o, Wait::kLater);
  }
  // Only root reads `ins`.
  template <typename Ins, WritableList Outs>
  void scatter_list(Ins&& ins, Outs&& outs, Rank root, OpOptions o = {}) {
    issue_scatter_list(to_buffers(ins), to_buffers(outs), root, o, Wait::kHere);
  }
  template <LastingList Ins, WritableLaterList Outs>
  [[nodiscard]] Work scatter_list_async(Ins&& ins, Outs&& outs, Rank root, OpOptions o = {}) {
    return issue_scatter_list(to_buffers(ins), to_buffers(outs), root, o, Wait::kLater);
  }
  template <typename Ins, WritableList Outs>
  void all_to_all_list(Ins&& ins, Outs&& outs, OpOptions o = {}) {
    issue_all_to_all_list(to_buffers(ins), to_buffers(outs), o, Wait::kHere);
  }
  template <LastingList Ins, WritableLaterList Outs>
  [[nodiscard]] Work all_to_all_list_async(Ins&& ins, Outs&& outs, OpOptions o = {}) {
    return issue_all_to_all_list(to_buffers(ins), to_buffers(outs), o, Wait::kLater);
  }

  // Messages between two ranks arrive in order within a tag, and in any order between tags. A rank may send to itself.
  template <typename T>
  void send(T&& x, Rank to, int tag = 0, OpOptions o = {}) {
    issue_send(to_buffer(x, BufferTag{}), to, tag, o, Wait::kHere);
  }
  template <Lasting T>
  [[nodiscard]] Work send_async(T&& x, Rank to, int tag = 0, OpOptions o = {}) {
    return issue_send(to_buffer(x, BufferTag{}), to, tag, o, Wait::kLater);
  }
  template <Writable T>
  void receive(T&& x, Rank from, int tag = 0, OpOptions o = {}) {
    run_receive(to_buffer(x, BufferTag{}), from, tag, o);
  }
  // Receives the first message with this tag from any rank, except those that receives from a named rank wait for.
  // Returns its rank (receive_async from kAnySource: Work::source()). Fails with kPeerLost when any rank is lost, since
  // it may have been the sender.
  template <Writable T>
  Rank receive_from_any(T&& x, int tag = 0, OpOptions o = {}) {
    return run_receive(to_buffer(x, BufferTag{}), kAnySource, tag, o);
  }
  template <WritableLater T>
  [[nodiscard]] Work receive_async(T&& x, Rank from, int tag = 0, OpOptions o = {}) {
    return start_receive(to_buffer(x, BufferTag{}), from, tag, o);
  }

  // Algorithms outside herd are made of the next three. `to` sees what this rank wrote to any memory before signal()
  // after its wait() for this rank and tag. Tags are one space with those of send and receive.
  void signal(Rank to, int tag = 0, OpOptions o = {});
  void wait(Rank from, int tag = 0, OpOptions o = {});  // takes one signal; k signals take k waits
  // Writes x into rank `to`'s part of `memory`, `offset` bytes from its start, and returns when it is written. Call
  // signal() afterwards, so that `to` knows when. Throws kBadConfig where this group did not allocate `memory`, or x
  // does not fit.
  template <typename T>
  void copy(T&& x, const SymmetricMemory& memory, Rank to, int64_t offset = 0) {
    run_copy(to_buffer(x, BufferTag{}), memory, to, offset);
  }

 private:
  friend struct CommunicatorTestAccess;
  friend class Connection;
  friend class TransferWait;
  struct State;
  explicit Communicator(std::shared_ptr<State> state);
  static Communicator create_on(const std::string& topology);
  State& state() const;
  std::shared_ptr<Context> context() const;
  const GroupSettings& settings() const;

  // kHere: the calling thread runs it until it is done; kLater: the progress thread does
  enum class Wait { kHere, kLater };
  // Return the elements of a result, for `elements` of this rank's input.
  int64_t gathered_elements(int64_t elements, const OpOptions&) const;
  int64_t scattered_elements(int64_t elements, const OpOptions&) const;
  int64_t exchanged_elements(int64_t elements, const OpOptions&) const;
  using Buffers = std::vector<Buffer>;

  Work issue_all_reduce(const Buffer& x, const OpOptions&, Wait);
  Work issue_broadcast(const Buffer& x, Rank root, const OpOptions&, Wait);
  Work issue_reduce(const Buffer& x, Rank root, const OpOptions&, Wait);
  Work issue_all_gather(const Buffer& in, const Buffer& out, const OpOptions&, Wait);
  Work issue_reduce_scatter(const Buffer& in, const Buffer& out, const OpOptions&, Wait);
  Work issue_gather(const Buffer& in, const Buffer& out, Rank root, const OpOptions&, Wait);
  Work issue_scatter(const Buffer& in, const Buffer& out, Rank root, const OpOptions&, Wait);
  Work issue_all_to_all(const Buffer& in, const Buffer& out, const OpOptions&, Wait);
  Work issue_all_reduce_list(const Buffers& xs, const OpOptions&, Wait);
  Work issue_broadcast_list(const Buffers& xs, Rank root, const OpOptions&, Wait);
  Work issue_reduce_list(const Buffers& xs, Rank root, const OpOptions&, Wait);
  Work issue_all_gather_list(const Buffers& ins, const Buffers& outs, const OpOptions&, Wait);
  Work issue_reduce_scatter_list(const Buffers& ins, const Buffers& outs, const OpOptions&, Wait);
  Work issue_gather_list(const Buffers& ins, const Buffers& outs, Rank root, const OpOptions&, Wait);
  Work issue_scatter_list(const Buffers& ins, const Buffers& outs, Rank root, const OpOptions&, Wait);
  Work issue_all_to_all_list(const Buffers& ins, const Buffers& outs, const OpOptions&, Wait);
  Work issue_send(const Buffer& x, Rank to, int tag, const OpOptions&, Wait);
  Rank run_receive(const Buffer& x, Rank from, int tag, const OpOptions&);
  Work start_receive(const Buffer& x, Rank from, int tag, const OpOptions&);
  void run_copy(const Buffer& x, const SymmetricMemory& memory, Rank to, int64_t offset);
  Work issue(CollectiveCall call, Wait wait, std::initializer_list<std::span<const Buffer>> held);
  enum class Form { kBuffer, kList };
  template <typename MakeCall>
  Work issue_on(std::string_view what, Form form, std::span<const Buffer> reads, std::span<const Buffer> writes,
                Wait wait, const MakeCall& make_call);
  Work issue_on_device(const CollectiveCall& call, std::span<const Buffer> reads, std::span<const Buffer> writes,
                       Wait wait);

  std::shared_ptr<State> state_;  // null where this was moved from
};

}  // namespace herd::comm

namespace herd {
using comm::AlgorithmUse, comm::Communicator, comm::DeviceEngine, comm::DeviceEngineChoice, comm::OpOptions,
    comm::Rendezvous, comm::SymmetricMemory, comm::Work;
}  // namespace herd
