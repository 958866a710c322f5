// The functions that the package herd (numpy) calls through ctypes: Communicator in C, without any header of Python, so
// that one library serves every Python. A function returns 0, or the number of the error's Code + 1, whose text
// herd_error() then gives on the same thread. Handles are pointers that their _free function releases; null is fine
// there. What a call is given lives until it returns, and the memory of a buffer until its work is done.
// Threads: as Communicator and Work.
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "herd/base/error.h"
#include "herd/base/reduce_op.h"
#include "herd/base/version.h"
#include "herd/comm/communicator.h"
#include "herd/schedule/schedule_text.h"
#include "herd/schedule/verify_schedule.h"
#include "interrupt.h"

namespace {

using namespace herd;

thread_local std::string last_error;

template <typename Body>
int guarded(const Body& body) {
  const python::MainThreadWait waits;
  try {
    body();
    return 0;
  } catch (const Error& error) {
    last_error = error.message();
    return static_cast<int>(error.code()) + 1;
  } catch (const std::exception& error) {
    last_error = error.what();
    return static_cast<int>(Code::kBug) + 1;
  }
}

std::string text_of(const char* text) { return text == nullptr ? "" : text; }

// Runs an operation on this thread, as far as it can, and returns when it is done; false = no such form of it exists.
bool run_here(Communicator& c, std::string_view call, const Buffer& x, const Buffer& y, int peer, int tag,
              const OpOptions& options) {
  if (call == "barrier") return c.barrier(options), true;
  if (call == "all_reduce") return c.all_reduce(x, options), true;
  if (call == "broadcast") return c.broadcast(x, peer, options), true;
  if (call == "reduce") return c.reduce(x, peer, options), true;
  if (call == "all_gather") return c.all_gather(x, y, options), true;
  if (call == "reduce_scatter") return c.reduce_scatter(x, y, options), true;
  if (call == "gather") return c.gather(x, y, peer, options), true;
  if (call == "scatter") return c.scatter(x, y, peer, options), true;
  if (call == "all_to_all") return c.all_to_all(x, y, options), true;
  if (call == "send") return c.send(x, peer, tag, options), true;
  return false;
}

Work start(Communicator& c, std::string_view call, const Buffer& x, const Buffer& y, int peer, int tag,
           const OpOptions& options) {
  if (call == "all_reduce") return c.all_reduce_async(x, options);
  if (call == "broadcast") return c.broadcast_async(x, peer, options);
  if (call == "reduce") return c.reduce_async(x, peer, options);
  if (call == "all_gather") return c.all_gather_async(x, y, options);
  if (call == "reduce_scatter") return c.reduce_scatter_async(x, y, options);
  if (call == "gather") return c.gather_async(x, y, peer, options);
  if (call == "scatter") return c.scatter_async(x, y, peer, options);
  if (call == "all_to_all") return c.all_to_all_async(x, y, options);
  if (call == "send") return c.send_async(x, peer, tag, options);
  if (call == "receive") return c.receive_async(x, peer < 0 ? kAnySource : peer, tag, options);
  throw Error(Code::kBug, "no operation is called " + std::string(call));
}

}  // namespace

extern "C" {

struct HerdBuffer {
  void* data;
  int64_t elements;
  const char* dtype;  // "fp32", ...: base/dtype.h
};

// What an operation takes beside its buffers; zeros and null are the defaults.
struct HerdOptions {
  const char* op;  // null: sum
  const char* name;
  const char* algorithm;
  const int64_t* counts;
  int64_t num_counts;
  int64_t segment_bytes;
  double deadline_s;
  double factor;
};

struct HerdComm {
  explicit HerdComm(Communicator made) : comm(std::move(made)) {
    const std::lock_guard lock(mutex);
    open.insert(this);
  }
  ~HerdComm() {
    const std::lock_guard lock(mutex);
    open.erase(this);
  }
  HerdComm(const HerdComm&) = delete;
  HerdComm& operator=(const HerdComm&) = delete;

  static void abort_all(const std::string& reason) {
    const std::lock_guard lock(mutex);
    for (HerdComm* one : open) one->comm.abort(reason);
  }

  Communicator comm;

 private:
  static inline std::mutex mutex;
  static inline std::set<HerdComm*> open;
};
struct HerdWork {
  Work work;
};
struct HerdMemory {
  SymmetricMemory memory;
};

const char* herd_error() { return last_error.c_str(); }
const char* herd_code_name(int result) { return result < 1 ? "" : code_name(static_cast<Code>(result - 1)).data(); }
const char* herd_version() { return version(); }

int herd_create(const char* init_method, int rank, int world_size, double deadline_s, HerdComm** made) {
  return guarded([&] {
    if (init_method == nullptr) {
      *made = new HerdComm(Communicator::create());
    } else {
      *made = new HerdComm(Communicator::create(
          Rendezvous{.init_method = init_method,
                     .rank = rank,
                     .world_size = world_size,
                     .deadline = std::chrono::milliseconds(static_cast<int64_t>(deadline_s * 1000))}));
    }
    python::abort_waits_on_interrupt([] { HerdComm::abort_all("Ctrl-C (SIGINT)"); });
  });
}
void herd_free(HerdComm* comm) { delete comm; }

int herd_rank(const HerdComm* comm) { return comm->comm.rank(); }
int herd_size(const HerdComm* comm) { return comm->comm.size(); }
uint64_t herd_bytes_moved(const HerdComm* comm) { return comm->comm.bytes_moved(); }

int herd_set_deadline(HerdComm* comm, double seconds) {
  return guarded([&] { comm->comm.set_deadline(std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000))); });
}
int herd_abort(HerdComm* comm, const char* reason) {
  return guarded([&] { comm->comm.abort(reason); });
}
int herd_show_activity(HerdComm* comm, const char* activity) {
  return guarded([&] { comm->comm.show_activity(activity); });
}

int herd_split(HerdComm* comm, int color, int key, const char* name, HerdComm** made) {
  return guarded([&] { *made = new HerdComm(comm->comm.split(color, key, name)); });
}
int herd_group(HerdComm* comm, const int32_t* members, int64_t num_members, const char* name, HerdComm** made) {
  return guarded(
      [&] { *made = new HerdComm(comm->comm.group(std::vector<Rank>(members, members + num_members), name)); });
}
int herd_shrink(HerdComm* comm, HerdComm** made) {
  return guarded([&] { *made = new HerdComm(comm->comm.shrink()); });
}

// Runs one operation: of `what`, the name of Communicator's function. `out` is used by those that have one; `peer` is
// the root, the receiver or the sender; `work` is null where the call shall return when the operation is done. A
// receive from any rank has peer = -1, and the sender's rank in `source`.
int herd_operate(HerdComm* comm, const char* what, const HerdBuffer* in, const HerdBuffer* out, int peer, int tag,
                 const HerdOptions* given, HerdWork** work, int* source) {
  return guarded([&] {
    const auto buffer = [](const HerdBuffer& b) {
      Buffer made;
      made.ptr = b.data;
      made.count = b.elements;
      made.dtype = parse_dtype(b.dtype);
      return made;
    };
    const std::string name = text_of(given->name), algorithm = text_of(given->algorithm);
    const OpOptions options{
        .op = given->op == nullptr ? ReduceOp::kSum : parse_reduce_op(given->op),
        .name = name,
        .deadline = std::chrono::milliseconds(static_cast<int64_t>(given->deadline_s * 1000)),
        .algorithm = algorithm,
        .segment_bytes = given->segment_bytes,
        .counts = {given->counts, static_cast<size_t>(given->num_counts)},
        .factor = given->factor,
    };
    Communicator& c = comm->comm;
    const std::string_view call = what;
    const Buffer x = in == nullptr ? Buffer{} : buffer(*in), y = out == nullptr ? Buffer{} : buffer(*out);
    if (work == nullptr && run_here(c, call, x, y, peer, tag, options)) return;
    Work started = start(c, call, x, y, peer, tag, options);
    if (work != nullptr) {
      *work = new HerdWork{std::move(started)};
      return;
    }
    started.wait();
    if (source != nullptr) *source = started.source();
  });
}

int herd_wait(HerdWork* work, int* source) {
  return guarded([&] {
    work->work.wait();
    *source = work->work.source();
  });
}
int herd_done(const HerdWork* work) { return work->work.done() ? 1 : 0; }
void herd_work_free(HerdWork* work) { delete work; }

int herd_allocate(HerdComm* comm, int64_t bytes, HerdMemory** made, void** data) {
  return guarded([&] {
    *made = new HerdMemory{comm->comm.allocate_symmetric(bytes)};
    *data = (*made)->memory.data();
  });
}
void herd_memory_free(HerdMemory* memory) { delete memory; }

// Proves the schedules of all ranks, as `herd show schedule` prints them one after the other. herd_text() of `findings`
// gives a line for each finding, and nothing where the schedules are right.
int herd_verify(const char* text, std::string** findings) {
  return guarded([&] {
    constexpr std::string_view kStart = "herd-schedule ";
    const std::string_view all = text;
    std::vector<Schedule> ranks;
    for (size_t begin = all.find(kStart); begin != std::string_view::npos;) {
      const size_t next = all.find("\n" + std::string(kStart), begin);
      const std::string_view one = all.substr(begin, next == std::string_view::npos ? next : next - begin);
      ranks.push_back(parse_schedule(std::string(one.substr(0, one.find_last_not_of('\n') + 1)) + "\n"));
      begin = next == std::string_view::npos ? next : next + 1;
    }
    if (ranks.empty()) {
      throw Error(Code::kBadConfig,
                  "the text holds no schedule\n  fix: what `herd show schedule OP` prints, of all ranks");
    }
    auto made = std::make_unique<std::string>();
    for (const Finding& finding : verify(ranks)) *made += describe(finding) + "\n";
    *findings = made.release();
  });
}
const char* herd_text(const std::string* text) { return text->c_str(); }
void herd_text_free(std::string* text) { delete text; }

}  // extern "C"
