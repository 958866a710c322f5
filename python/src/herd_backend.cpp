#include "herd_backend.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <map>
#include <set>
#include <thread>
#include <utility>

#include "c10d_store.h"
#include "errors.h"
#include "herd/bridge/device_stream.h"
#include "interrupt.h"

namespace herd::pytorch {

using c10d::OpType;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

struct HerdBackend::Call {
  OpType type;
  const char* title;
  Tensors outputs;  // what result() and futures give
  std::optional<Tensors> inputs;
  bool asynchronous = true;
  bool receives = false;
};

struct HerdBackend::World {
  Communicator communicator;
  int rank, size;
};

namespace {

constexpr int kAllToAllTag = -2;                // PyTorch's own tags are 0 or more
constexpr std::chrono::seconds kLeaveAfter{3};  // longest wait for what this rank still sends, when a group closes

// Lives as long as the process, whatever ends first at its exit.
struct Registry {
  std::mutex mutex;
  std::set<HerdBackend*> backends;
};
Registry& registry() {
  static auto* one = new Registry;
  return *one;
}

// Before 2.8 some options had no asyncOp.
template <typename Options>
bool is_asynchronous(const Options& options) {
  if constexpr (requires { options.asyncOp; })
    return options.asyncOp;
  else
    return true;
}

struct Reduction {
  ReduceOp op = ReduceOp::kSum;
  double factor = 1;
};

const char* name_of(c10d::ReduceOp::RedOpType op) {
  constexpr const char* kNames[] = {"SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "PREMUL_SUM"};
  return static_cast<size_t>(op) < std::size(kNames) ? kNames[op] : "unknown";
}

// Returns herd's op for PyTorch's. A bool is one bit: a sum is "or", a product is "and".
Reduction reduction_of(const c10d::ReduceOp& op, at::ScalarType type) {
  using Op = c10d::ReduceOp;
  const auto refuse = [&] {
    throw Error(Code::kBadConfig, std::string("ReduceOp.") + name_of(op.op_) + " is not defined for tensors of type " +
                                      c10::toString(type));
  };
  const bool is_bool = type == at::kBool;
  if (c10::isComplexType(type) && op.op_ != Op::SUM && op.op_ != Op::AVG && op.op_ != Op::PREMUL_SUM) refuse();
  switch (op.op_) {
    case Op::SUM:
      return {is_bool ? ReduceOp::kMax : ReduceOp::kSum};
    case Op::AVG:
      if (!c10::isFloatingType(type) && !c10::isComplexType(type)) refuse();
      return {ReduceOp::kAverage};
    case Op::PRODUCT:
      return {is_bool ? ReduceOp::kMin : ReduceOp::kProduct};
    case Op::MIN:
      return {ReduceOp::kMin};
    case Op::MAX:
      return {ReduceOp::kMax};
    case Op::BAND:
      return {ReduceOp::kAnd};
    case Op::BOR:
      return {ReduceOp::kOr};
    case Op::BXOR:
      return {ReduceOp::kXor};
    case Op::PREMUL_SUM: {
      if (!c10::isFloatingType(type) && !c10::isComplexType(type)) refuse();
      const auto* given = dynamic_cast<const c10d::NCCLPreMulSumSupplement*>(op.supplement_.get());
      if (given == nullptr) refuse();
      const bool is_tensor = given->tensor_factor.defined();
      return {ReduceOp::kPremultipliedSum, is_tensor ? given->tensor_factor.item<double>() : given->double_factor};
    }
    default:
      refuse();
  }
  return {};
}

void require(bool holds, const std::string& rule) {
  if (!holds) throw Error(Code::kBadConfig, rule);
}

const at::Tensor& only(const Tensors& tensors, const char* what) {
  require(tensors.size() == 1,
          std::string(what) + ": one tensor per rank, but there are " + std::to_string(tensors.size()));
  return tensors.front();
}

void check_same_type(const at::Tensor& a, const at::Tensor& b) {
  require(a.scalar_type() == b.scalar_type(), std::string("input and output have one type, but they have ") +
                                                  c10::toString(a.scalar_type()) + " and " +
                                                  c10::toString(b.scalar_type()));
}

// A rank sees its own tensors alone. A whole that ranks can't divide evenly would fit the parts of some, which then
// wait for the others, so all refuse it.
void check_whole(const at::Tensor& whole, const at::Tensor& part, int ranks, const char* what) {
  require(whole.numel() == ranks * part.numel(),
          std::string(what) + ": the whole has as many elements as the parts of all " + std::to_string(ranks) +
              " ranks, but a part has " + std::to_string(part.numel()) + " and the whole " +
              std::to_string(whole.numel()) + "\n  fix: tensors of one size on all ranks, or the form with lists");
}

// Returns the elements of each part as herd counts them; empty where all parts have the same.
std::vector<int64_t> counts_of(const Tensors& parts) {
  std::vector<int64_t> counts;
  bool even = true;
  for (const auto& part : parts) {
    counts.push_back(buffer_of(part.numel() == 0 ? at::empty({0}, part.options()) : part).count);
    even &= counts.back() == counts.front();
  }
  return even ? std::vector<int64_t>{} : counts;
}

// Groups the indices of tensors by their type, in the order of first appearance.
std::vector<std::vector<size_t>> by_type(const Tensors& tensors) {
  std::vector<std::vector<size_t>> groups;
  std::map<at::ScalarType, size_t> group_of;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto [found, is_new] = group_of.emplace(tensors[i].scalar_type(), groups.size());
    if (is_new) groups.emplace_back();
    groups[found->second].push_back(i);
  }
  return groups;
}

Tensors all_of(const std::vector<Tensors>& lists) {
  Tensors all;
  for (const auto& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

// Returns this thread's stream on the device of the tensors; none where they are on the CPU.
std::optional<c10::Stream> current_stream_of(const Tensors& outputs, const std::optional<Tensors>& inputs) {
  for (const Tensors* tensors : {&outputs, inputs ? &*inputs : nullptr}) {
    if (tensors == nullptr) continue;
    for (const at::Tensor& tensor : *tensors) {
      if (!tensor.defined() || tensor.is_cpu()) continue;
      device_with_driver(tensor);  // throws where herd has no driver for it
      return c10::impl::VirtualGuardImpl(tensor.device().type()).getStream(tensor.device());
    }
  }
  return std::nullopt;
}

// Has the operation copy `from` to `to` at its end, unless they are the same memory.
void copy_at_end(Operation& operation, const at::Tensor& from, const at::Tensor& to) {
  if (from.is_alias_of(to) || to.numel() == 0) return;
  operation.finish = [next = std::move(operation.finish), from, to] {
    if (next) next();
    to.copy_(from);
  };
}

// Cuts a tensor along its first dimension: by `splits`, or evenly where there are none.
Tensors cut(const at::Tensor& tensor, const std::vector<int64_t>& splits, int num_ranks) {
  c10d::checkSplitSizes(splits, tensor, num_ranks);
  Tensors parts;
  int64_t begin = 0;
  for (int rank = 0; rank < num_ranks; ++rank) {
    const int64_t rows = splits.empty() ? tensor.size(0) / num_ranks : splits[static_cast<size_t>(rank)];
    parts.push_back(tensor.narrow(0, begin, rows));
    begin += rows;
  }
  return parts;
}

}  // namespace

HerdBackend::HerdBackend(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, std::string group_id,
                         const std::vector<int64_t>& global_ranks, c10::intrusive_ptr<Options> options)
    : c10d::Backend(rank, size),
      store_(store),
      options_(std::move(options)),
      who_("rank " + std::to_string(rank) + " of group \"" + group_id + "\"") {
  options_->group_name = group_id;
  options_->global_ranks_in_group.assign(global_ranks.begin(), global_ranks.end());
  static auto* current_world = new std::weak_ptr<World>;  // guarded by the registry's mutex
  std::shared_ptr<World> world;
  {
    const std::lock_guard lock(registry().mutex);
    world = current_world->lock();
  }
  const auto is_in_world = [&](int64_t global) { return world != nullptr && global < world->size; };
  const bool within = world != nullptr && !global_ranks.empty() &&
                      std::all_of(global_ranks.begin(), global_ranks.end(), is_in_world) &&
                      global_ranks[static_cast<size_t>(rank)] == world->rank;
  translated(who_, [&] {
    if (within) {
      const std::vector<Rank> members(global_ranks.begin(), global_ranks.end());
      communicator_ = std::make_shared<Communicator>(world->communicator.group(members, group_id));
      communicator_->set_deadline(options_->timeout);
    } else {
      world_ = std::make_shared<World>(World{Communicator::create({.store = std::make_shared<C10dStore>(store),
                                                                   .rank = rank,
                                                                   .world_size = size,
                                                                   .deadline = options_->timeout}),
                                             rank, size});
      communicator_ = std::shared_ptr<Communicator>(world_, &world_->communicator);
    }
  });
  has_engine_ = communicator_->device().has_value();  // that of the world
  python::abort_waits_on_interrupt([] { abort_all_groups("Ctrl-C (SIGINT)"); });
  const std::lock_guard lock(registry().mutex);
  if (global_ranks.empty()) *current_world = world_;
  registry().backends.insert(this);
}

HerdBackend::~HerdBackend() {
  {
    const std::lock_guard lock(registry().mutex);
    registry().backends.erase(this);
  }
  if (Py_IsInitialized() && PyGILState_Check()) {  // threads that end may need Python's lock
    const py::gil_scoped_release no_gil;
    close();
  } else {
    close();
  }
}

std::shared_ptr<Communicator> HerdBackend::communicator() {
  const std::lock_guard lock(mutex_);
  if (communicator_ == nullptr) {
    throw Error(Code::kAborted, "the group is closed: destroy_process_group() or shutdown() has ended it");
  }
  return communicator_;
}

void HerdBackend::close() {
  std::shared_ptr<Communicator> communicator;
  std::shared_ptr<World> world;
  std::deque<std::weak_ptr<Operation>> pending;
  {
    const std::lock_guard lock(mutex_);
    communicator.swap(communicator_);
    world.swap(world_);
    pending.swap(pending_);
  }
  if (communicator == nullptr) return;
  const auto until = steady_clock::now() + kLeaveAfter;
  const auto in_flight = [](const std::weak_ptr<Operation>& one) {
    const auto operation = one.lock();
    return operation != nullptr && !operation->is_receive && !operation->done();
  };
  try {
    for (const auto& one : pending) {
      while (in_flight(one) && steady_clock::now() < until) std::this_thread::sleep_for(milliseconds(1));
    }
  } catch (const Error&) {  // a forked child, whose parent goes on
  }
}

void HerdBackend::shutdown() { close(); }

void HerdBackend::abort() {
  if (const auto found = open_communicator()) found->abort("abort() of the process group");
}

std::shared_ptr<Communicator> HerdBackend::open_communicator() {
  const std::lock_guard lock(mutex_);
  return communicator_;
}

std::string HerdBackend::device_engine() {
  return translated(who_, [&] {
    const DeviceEngineChoice choice = communicator()->device_engine();
    return std::string(comm::device_engine_name(choice.engine)) + ": " + choice.reason;
  });
}

void HerdBackend::setTimeout(milliseconds timeout) {
  options_->timeout = timeout;
  translated(who_, [&] { communicator()->set_deadline(timeout); });
}

OpOptions HerdBackend::op_options(milliseconds timeout, std::string_view name) const {
  OpOptions options;
  options.name = name;
  options.deadline = timeout.count() > 0 ? timeout : options_->timeout;
  return options;
}

void HerdBackend::choose_engine(Communicator& comm, const Call& call, c10::Device device) {
  if (has_engine_ || c10d::isP2POp(call.type)) return;
  const std::unique_lock lock(issuing_);
  if (has_engine_) return;
  comm.use_device(to_device(device));
  has_engine_ = true;
}

// Makes the work of an operation that `start` issues. Where `start` throws after it has issued a part, that part keeps
// its memory.
template <typename Start>
HerdBackend::WorkPtr HerdBackend::begin(const Call& call, const Start& start) {
  const auto stream = translated(who_, [&] { return current_stream_of(call.outputs, call.inputs); });
  auto work = c10::make_intrusive<BackendWork>(who_, rank_, call.type, call.title, ++sequence_, call.outputs,
                                               call.inputs, stream);
  auto operation = std::make_shared<Operation>();
  operation->is_receive = call.receives;
  translated(who_, [&] {
    const at::NoGradGuard no_grad;
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const python::MainThreadWait waits;  // where the call is not asynchronous
    try {
      const auto comm = communicator();
      if (stream) choose_engine(*comm, call, stream->device());
      start(*comm, *operation);
    } catch (...) {
      if (!operation->done()) run_when_done(operation, [] {});
      throw;
    }
  });
  if (!operation->done()) {
    const std::lock_guard lock(mutex_);
    while (!pending_.empty()) {
      const auto oldest = pending_.front().lock();
      if (oldest != nullptr && !oldest->done()) break;
      pending_.pop_front();
    }
    pending_.push_back(operation);
  }
  work->begin(std::move(operation));
  return work;
}

// `start` either adds a work to the operation, or, where the call is not asynchronous, runs it.
template <typename Start>
HerdBackend::WorkPtr HerdBackend::issue(const Call& call, const Start& start) {
  auto work = begin(call, [&](Communicator& comm, Operation& operation) {
    const std::shared_lock lock(issuing_);
    start(comm, operation, call.asynchronous);
  });
  if (!call.asynchronous) work->wait();
  return work;
}

// The same for an operation that is made of several of herd's.
template <typename Start>
HerdBackend::WorkPtr HerdBackend::issue_many(const Call& call, const Start& start) {
  auto work = begin(call, [&](Communicator& comm, Operation& operation) {
    const std::unique_lock lock(issuing_);
    start(comm, operation);
  });
  if (!call.asynchronous) work->wait();
  return work;
}

HerdBackend::WorkPtr HerdBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  return issue({OpType::BROADCAST, "herd:broadcast", tensors, tensors, is_asynchronous(options)},
               [&](Communicator& comm, Operation& operation, bool later) {
                 const at::Tensor& tensor = only(tensors, "broadcast");
                 const auto root = static_cast<Rank>(options.rootRank);
                 const at::Tensor used = rank_ == root ? input_of(tensor) : output_of(tensor, !later);
                 operation.held = {used, tensor};
                 if (rank_ != root) copy_at_end(operation, used, tensor);
                 const Buffer buffer = buffer_of(used);
                 const OpOptions o = op_options(options.timeout);
                 if (later)
                   operation.works.push_back(comm.broadcast_async(buffer, root, o));
                 else
                   comm.broadcast(buffer, root, o);
               });
}

HerdBackend::WorkPtr HerdBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  if (tensors.size() == 1 && tensors.front().is_sparse()) return allreduce_sparse(tensors, options);
  if (tensors.size() > 1) {
    c10d::AllreduceCoalescedOptions all;
    static_cast<c10d::AllreduceOptions&>(all) = options;
    return allreduce_coalesced(tensors, all);
  }
  return issue({OpType::ALLREDUCE, "herd:all_reduce", tensors, tensors, is_asynchronous(options)},
               [&](Communicator& comm, Operation& operation, bool later) {
                 const at::Tensor& tensor = only(tensors, "all_reduce");
                 const at::Tensor used = input_of(tensor);
                 operation.held = {used, tensor};
                 copy_at_end(operation, used, tensor);
                 const Buffer buffer = buffer_of(used, /*reduces=*/true);
                 const Reduction reduction = reduction_of(options.reduceOp, tensor.scalar_type());
                 OpOptions o = op_options(options.timeout);
                 o.op = reduction.op;
                 o.factor = reduction.factor;
                 if (later)
                   operation.works.push_back(comm.all_reduce_async(buffer, o));
                 else
                   comm.all_reduce(buffer, o);
               });
}

HerdBackend::WorkPtr HerdBackend::allreduce_coalesced(Tensors& tensors,
                                                      const c10d::AllreduceCoalescedOptions& options) {
  return issue_many({OpType::ALLREDUCE_COALESCED, "herd:all_reduce", tensors, tensors, is_asynchronous(options)},
                    [&](Communicator& comm, Operation& operation) {
                      Tensors used;
                      for (const auto& tensor : tensors) {
                        used.push_back(input_of(tensor));
                        copy_at_end(operation, used.back(), tensor);
                      }
                      operation.held = used;
                      for (const auto& group : by_type(tensors)) {
                        std::vector<Buffer> buffers;
                        for (size_t i : group) buffers.push_back(buffer_of(used[i], /*reduces=*/true));
                        const Reduction reduction =
                            reduction_of(options.reduceOp, tensors[group.front()].scalar_type());
                        OpOptions o = op_options(options.timeout);
                        o.op = reduction.op;
                        o.factor = reduction.factor;
                        operation.works.push_back(comm.all_reduce_list_async(buffers, o));
                      }
                    });
}

// Returns the sum of all ranks' sparse tensors, each with indices of its own.
at::Tensor HerdBackend::sum_sparse(Communicator& comm, const at::Tensor& tensor, milliseconds timeout) {
  const at::Tensor mine = tensor.coalesce();
  const int64_t dims = mine.sparse_dim();
  const at::Tensor indices = mine.indices().t().contiguous();  // [elements, dims]: those of a rank follow each other
  const at::Tensor values = mine.values().contiguous();
  const OpOptions o = op_options(timeout, "sparse");
  std::vector<int64_t> elements(static_cast<size_t>(size_));
  const std::vector<int64_t> own = {mine._nnz()};
  comm.all_gather(own, elements, o);
  int64_t total = 0, row = 1;
  for (int64_t count : elements) total += count;
  for (int64_t dim = 1; dim < values.dim(); ++dim) row *= values.size(dim);
  const at::Tensor all_indices = at::empty({total, dims}, indices.options());
  auto shape = values.sizes().vec();
  shape[0] = total;
  const at::Tensor all_values = at::empty(shape, values.options());
  const auto gather = [&](const at::Tensor& in, const at::Tensor& out, int64_t width) {
    std::vector<int64_t> counts = elements;
    const Buffer from = buffer_of(in), to = buffer_of(out);
    const int64_t unit = to.count == 0 ? width : width * to.count / out.numel();
    for (int64_t& count : counts) count *= unit;
    OpOptions uneven = o;
    uneven.counts = counts;
    comm.all_gather(from, to, uneven);
  };
  gather(indices, all_indices, dims);
  gather(values, all_values, row);
  return at::sparse_coo_tensor(all_indices.t(), all_values, mine.sizes()).coalesce();
}

HerdBackend::WorkPtr HerdBackend::allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) {
  return issue_many({OpType::_ALLREDUCE_SPARSE, "herd:all_reduce", tensors, tensors, is_asynchronous(options)},
                    [&](Communicator& comm, Operation& operation) {
                      const at::Tensor& tensor = only(tensors, "all_reduce of sparse tensors");
                      require(options.reduceOp.op_ == c10d::ReduceOp::SUM,
                              std::string("all_reduce of sparse tensors: ReduceOp.SUM, but it is ReduceOp.") +
                                  name_of(options.reduceOp.op_));
                      operation.held = {tensor};
                      at::Tensor target = tensor;
                      target.copy_(sum_sparse(comm, tensor, options.timeout));
                    });
}

HerdBackend::WorkPtr HerdBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  return issue({OpType::REDUCE, "herd:reduce", tensors, tensors, is_asynchronous(options)},
               [&](Communicator& comm, Operation& operation, bool later) {
                 const at::Tensor& tensor = only(tensors, "reduce");
                 const auto root = static_cast<Rank>(options.rootRank);
                 const at::Tensor used = input_of(tensor);
                 operation.held = {used, tensor};
                 if (rank_ == root) copy_at_end(operation, used, tensor);
                 const Buffer buffer = buffer_of(used, /*reduces=*/true);
                 const Reduction reduction = reduction_of(options.reduceOp, tensor.scalar_type());
                 OpOptions o = op_options(options.timeout);
                 o.op = reduction.op;
                 o.factor = reduction.factor;
                 if (later)
                   operation.works.push_back(comm.reduce_async(buffer, root, o));
                 else
                   comm.reduce(buffer, root, o);
               });
}

HerdBackend::WorkPtr HerdBackend::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                            const c10d::AllgatherOptions& options) {
  return issue({OpType::ALLGATHER, "herd:all_gather", all_of(outputs), inputs, is_asynchronous(options)},
               [&](Communicator& comm, Operation& operation, bool later) {
                 const at::Tensor& input = only(inputs, "all_gather");
                 require(outputs.size() == 1 && static_cast<int>(outputs[0].size()) == size_,
                         "all_gather: one output for each of " + std::to_string(size_) + " ranks");
                 const Tensors& parts = outputs[0];
                 for (const auto& part : parts) check_same_type(input, part);
                 const at::Tensor in = input_of(input), out = flat_output(parts);
                 operation.held = {in, out};
                 operation.finish = [out, parts] { copy_out(out, parts); };
                 const Buffer from = buffer_of(in), to = buffer_of(out);
                 const auto counts = counts_of(parts);
                 OpOptions o = op_options(options.timeout);
                 o.counts = counts;
                 if (later)
                   operation.works.push_back(comm.all_gather_async(from, to, o));
                 else
                   comm.all_gather(from, to, o);
               });
}

HerdBackend::WorkPtr HerdBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                  const c10d::AllgatherOptions& options) {
  return issue({OpType::_ALLGATHER_BASE, "herd:_all_gather_base", {output}, {{input}}, is_asynchronous(options)},
               [&](Communicator& comm, Operation& operation, bool later) {
                 check_same_type(input, output);
                 check_whole(output, input, size_, "all_gather_into_tensor");
                 const at::Tensor in = input_of(input), out = output_of(output, !later);
                 operation.held = {in, out, output};
                 copy_at_end(operation, out, output);
                 const Buffer from = buffer_of(in), to = buffer_of(out);
                 const OpOptions o = op_options(options.timeout);
                 if (later)
                   operation.works.push_back(comm.all_gather_async(from, to, o));
                 else
                   comm.all_gather(from, to, o);
               });
}

HerdBackend::WorkPtr HerdBackend::allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                                      const c10d::AllgatherOptions& options) {
  return issue_many({OpType::ALLGATHER_COALESCED, "herd:all_gather", all_of(outputs), inputs, is_asynchronous(options)},
                    [&](Communicator& comm, Operation& operation) {
                      require(static_cast<int>(outputs.size()) == size_,
                              "all_gather_coalesced: one list of outputs for each of " + std::to_string(size_) +
                                  " ranks, but there are " + std::to_string(outputs.size()));
                      for (size_t i = 0; i < inputs.size(); ++i) {
                        Tensors parts;
                        for (const auto& list : outputs) {
                          require(list.size() == inputs.size(), "all_gather_coalesced: as many outputs as inputs");
                          parts.push_back(list[i]);
                        }
                        const at::Tensor in = input_of(inputs[i]), out = flat_output(parts);
                        operation.held.insert(operation.held.end(), {in, out});
                        operation.finish = [next = std::move(operation.finish), out, parts] {
                          if (next) next();
                          copy_out(out, parts);
                        };
                        const auto counts = counts_of(parts);
                        OpOptions o = op_options(options.timeout);
                        o.counts = counts;
                        const Buffer from = buffer_of(in), to = buffer_of(out);
                        operation.works.push_back(comm.all_gather_async(from, to, o));
                      }
                    });
}

HerdBackend::WorkPtr HerdBackend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                  const c10d::AllgatherOptions& options) {
  if (outputs.size() == 1 && inputs.size() == 1) return _allgather_base(outputs[0], inputs[0], options);
  return issue_many({OpType::COALESCED, "herd:_all_gather_base", outputs, inputs, is_asynchronous(options)},
                    [&](Communicator& comm, Operation& operation) {
                      require(inputs.size() == outputs.size(), "all_gather_into_tensor_coalesced: an output per input");
                      Tensors ins, outs;
                      for (size_t i = 0; i < inputs.size(); ++i) {
                        check_same_type(inputs[i], outputs[i]);
                        check_whole(outputs[i], inputs[i], size_, "all_gather_into_tensor");
                        ins.push_back(input_of(inputs[i]));
                        outs.push_back(output_of(outputs[i]));
                        copy_at_end(operation, outs[i], outputs[i]);
                      }
                      operation.held = ins;
                      operation.held.insert(operation.held.end(), outs.begin(), outs.end());
                      for (const auto& group : by_type(inputs)) {
                        std::vector<Buffer> from, to;
                        for (size_t i : group) from.push_back(buffer_of(ins[i])), to.push_back(buffer_of(outs[i]));
                        operation.works.push_back(comm.all_gather_list_async(from, to, op_options(options.timeout)));
                      }
                    });
}

HerdBackend::WorkPtr HerdBackend::gather(std::vector<Tensors>& outputs, Tensors& inputs,
                                         const c10d::GatherOptions& options) {
  return issue({OpType::GATHER, "herd:gather", all_of(outputs), inputs, is_asynchronous(options)},
               [&](Communicator& comm, Operation& operation, bool later) {
                 const at::Tensor& input = only(inputs, "gather");
                 const auto root = static_cast<Rank>(options.rootRank);
                 const at::Tensor in = input_of(input);
                 const Buffer from = buffer_of(in);
                 Buffer to{nullptr, 0, from.dtype};
                 operation.held = {in};
                 if (rank_ == root) {
                   require(outputs.size() == 1 && static_cast<int>(outputs[0].size()) == size_,
                           "gather: the root has one output for each of " + std::to_string(size_) + " ranks");
                   const Tensors& parts = outputs[0];
                   for (const auto& part : parts) {
                     check_same_type(input, part);
                     require(part.numel() == input.numel(), "gather: all ranks' tensors have one size");
                   }
                   const at::Tensor out = flat_output(parts);
                   operation.held.push_back(out);
                   operation.finish = [out, parts] { copy_out(out, parts); };
                   to = buffer_of(out);
                 }
                 const OpOptions o = op_options(options.timeout);
                 if (later)
                   operation.works.push_back(comm.gather_async(from, to, root, o));
                 else
                   comm.gather(from, to, root, o);
               });
}

HerdBackend::WorkPtr HerdBackend::scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                          const c10d::ScatterOptions& options) {
  return issue({OpType::SCATTER, "herd:scatter", outputs, all_of(inputs), is_asynchronous(options)},
               [&](Communicator& comm, Operation& operation, bool later) {
                 const at::Tensor& output = only(outputs, "scatter");
                 const auto root = static_cast<Rank>(options.rootRank);
                 const at::Tensor out = output_of(output, !later);
                 const Buffer to = buffer_of(out);
                 Buffer from{nullptr, 0, to.dtype};
                 operation.held = {out};
                 copy_at_end(operation, out, output);
                 if (rank_ == root) {
                   require(inputs.size() == 1 && static_cast<int>(inputs[0].size()) == size_,
                           "scatter: the root has one input for each of " + std::to_string(size_) + " ranks");
                   for (const auto& part : inputs[0]) {
                     check_same_type(part, output);
                     require(part.numel() == output.numel(), "scatter: all ranks' tensors have one size");
                   }
                   const at::Tensor in = flat_input(inputs[0]);
                   operation.held.push_back(in);
                   from = buffer_of(in);
                 }
                 const OpOptions o = op_options(options.timeout);
                 if (later)
                   operation.works.push_back(comm.scatter_async(from, to, root, o));
                 else
                   comm.scatter(from, to, root, o);
               });
}

HerdBackend::WorkPtr HerdBackend::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                                 const c10d::ReduceScatterOptions& options) {
  return issue({OpType::REDUCE_SCATTER, "herd:reduce_scatter", outputs, all_of(inputs), is_asynchronous(options)},
               [&](Communicator& comm, Operation& operation, bool later) {
                 const at::Tensor& output = only(outputs, "reduce_scatter");
                 require(inputs.size() == 1 && static_cast<int>(inputs[0].size()) == size_,
                         "reduce_scatter: one input for each of " + std::to_string(size_) + " ranks");
                 for (const auto& part : inputs[0]) check_same_type(part, output);
                 const at::Tensor in = flat_input(inputs[0]), out = output_of(output, !later);
                 operation.held = {in, out};
                 copy_at_end(operation, out, output);
                 const auto counts = counts_of(inputs[0]);
                 const Reduction reduction = reduction_of(options.reduceOp, output.scalar_type());
                 OpOptions o = op_options(options.timeout);
                 o.op = reduction.op;
                 o.factor = reduction.factor;
                 o.counts = counts;
                 const Buffer from = buffer_of(in, /*reduces=*/true), to = buffer_of(out, /*reduces=*/true);
                 if (later)
                   operation.works.push_back(comm.reduce_scatter_async(from, to, o));
                 else
                   comm.reduce_scatter(from, to, o);
               });
}

HerdBackend::WorkPtr HerdBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                       const c10d::ReduceScatterOptions& options) {
  return issue(
      {OpType::_REDUCE_SCATTER_BASE, "herd:_reduce_scatter_base", {output}, {{input}}, is_asynchronous(options)},
      [&](Communicator& comm, Operation& operation, bool later) {
        check_same_type(input, output);
        check_whole(input, output, size_, "reduce_scatter_tensor");
        const at::Tensor in = input_of(input), out = output_of(output, !later);
        operation.held = {in, out};
        copy_at_end(operation, out, output);
        const Reduction reduction = reduction_of(options.reduceOp, output.scalar_type());
        OpOptions o = op_options(options.timeout);
        o.op = reduction.op;
        o.factor = reduction.factor;
        const Buffer from = buffer_of(in, /*reduces=*/true), to = buffer_of(out, /*reduces=*/true);
        if (later)
          operation.works.push_back(comm.reduce_scatter_async(from, to, o));
        else
          comm.reduce_scatter(from, to, o);
      });
}

HerdBackend::WorkPtr HerdBackend::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                  const c10d::ReduceScatterOptions& options) {
  if (outputs.size() == 1 && inputs.size() == 1) return _reduce_scatter_base(outputs[0], inputs[0], options);
  return issue_many(
      {OpType::_REDUCE_SCATTER_BASE, "herd:_reduce_scatter_base", outputs, inputs, is_asynchronous(options)},
      [&](Communicator& comm, Operation& operation) {
        require(inputs.size() == outputs.size(), "reduce_scatter_tensor_coalesced: an output per input");
        Tensors ins, outs;
        for (size_t i = 0; i < inputs.size(); ++i) {
          check_same_type(inputs[i], outputs[i]);
          check_whole(inputs[i], outputs[i], size_, "reduce_scatter_tensor");
          ins.push_back(input_of(inputs[i]));
          outs.push_back(output_of(outputs[i]));
          copy_at_end(operation, outs[i], outputs[i]);
        }
        operation.held = ins;
        operation.held.insert(operation.held.end(), outs.begin(), outs.end());
        for (const auto& group : by_type(inputs)) {
          std::vector<Buffer> from, to;
          for (size_t i : group) from.push_back(buffer_of(ins[i], true)), to.push_back(buffer_of(outs[i], true));
          const Reduction reduction = reduction_of(options.reduceOp, inputs[group.front()].scalar_type());
          OpOptions o = op_options(options.timeout);
          o.op = reduction.op;
          o.factor = reduction.factor;
          operation.works.push_back(comm.reduce_scatter_list_async(from, to, o));
        }
      });
}

HerdBackend::WorkPtr HerdBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                                std::vector<int64_t>& output_splits, std::vector<int64_t>& input_splits,
                                                const c10d::AllToAllOptions& options) {
  const Call call{OpType::ALLTOALL_BASE, "herd:all_to_all", {output}, {{input}}, is_asynchronous(options)};
  if (output_splits.empty() && input_splits.empty()) {
    return issue(call, [&](Communicator& comm, Operation& operation, bool later) {
      check_same_type(input, output);
      require(input.numel() == output.numel() && (input.dim() == 0 || input.size(0) % size_ == 0),
              "all_to_all: input and output are of one size, which the " + std::to_string(size_) + " ranks divide");
      const at::Tensor in = input_of(input), out = output_of(output, !later);
      operation.held = {in, out};
      copy_at_end(operation, out, output);
      const Buffer from = buffer_of(in), to = buffer_of(out);
      const OpOptions o = op_options(options.timeout);
      if (later)
        operation.works.push_back(comm.all_to_all_async(from, to, o));
      else
        comm.all_to_all(from, to, o);
    });
  }
  return all_to_all(call, cut(output, output_splits, size_), cut(input, input_splits, size_), options.timeout);
}

HerdBackend::WorkPtr HerdBackend::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) {
  return all_to_all({OpType::ALLTOALL, "herd:all_to_all", outputs, inputs, is_asynchronous(options)}, outputs, inputs,
                    options.timeout);
}

// Sends inputs[r] to each rank r. A rank knows its own sizes only: so each pair exchanges messages, beside an
// all-gather of the sizes, which tells in time whose program differs.
HerdBackend::WorkPtr HerdBackend::all_to_all(const Call& call, const Tensors& outputs, const Tensors& inputs,
                                             milliseconds timeout) {
  return issue_many(call, [&](Communicator& comm, Operation& operation) {
    const auto n = static_cast<size_t>(size_);
    require(inputs.size() == n && outputs.size() == n,
            "all_to_all: one input and one output for each of " + std::to_string(size_) + " ranks");
    const OpOptions o = op_options(timeout, "all_to_all");
    struct Sizes {
      std::vector<int64_t> own, all;
    };
    auto sizes = std::make_shared<Sizes>();
    for (const auto& input : inputs) sizes->own.push_back(input.numel());
    sizes->all.resize(n * n);
    operation.other = sizes;
    operation.works.push_back(comm.all_gather_async(sizes->own, sizes->all, o));
    for (size_t step = 0; step < n; ++step) {
      const size_t to = (static_cast<size_t>(rank_) + step) % n, from = (static_cast<size_t>(rank_) + n - step) % n;
      check_same_type(inputs[to], outputs[from]);
      const at::Tensor in = input_of(inputs[to]), out = output_of(outputs[from]);
      copy_at_end(operation, out, outputs[from]);
      if (step == 0) {
        require(in.numel() == out.numel(), "all_to_all: what a rank sends itself, " + std::to_string(in.numel()) +
                                               " elements, is what it gets from itself, " +
                                               std::to_string(out.numel()));
        out.copy_(in.view(out.sizes()));
        if (in.is_same(inputs[to])) continue;
      }
      operation.held.insert(operation.held.end(), {in, out});
      if (step == 0) continue;
      operation.works.push_back(comm.receive_async(buffer_of(out), static_cast<Rank>(from), kAllToAllTag, o));
      operation.works.push_back(comm.send_async(buffer_of(in), static_cast<Rank>(to), kAllToAllTag, o));
    }
  });
}

HerdBackend::WorkPtr HerdBackend::send(Tensors& tensors, int to, int tag) {
  return issue({OpType::SEND, "herd:send", tensors, tensors, true},
               [&](Communicator& comm, Operation& operation, bool) {
                 const at::Tensor in = input_of(only(tensors, "send"));
                 operation.held = {in};
                 operation.works.push_back(comm.send_async(buffer_of(in), to, tag, op_options(c10d::kUnsetTimeout)));
               });
}

HerdBackend::WorkPtr HerdBackend::receive(Tensors& tensors, Rank from, int tag) {
  const bool any = from == kAnySource;
  return issue(
      {any ? OpType::RECVANYSOURCE : OpType::RECV, any ? "herd:recvAnySource" : "herd:recv", tensors, tensors, true,
       /*receives=*/true},
      [&](Communicator& comm, Operation& operation, bool) {
        const at::Tensor& tensor = only(tensors, "recv");
        const at::Tensor out = output_of(tensor);
        operation.held = {out, tensor};
        copy_at_end(operation, out, tensor);
        operation.works.push_back(comm.receive_async(buffer_of(out), from, tag, op_options(c10d::kUnsetTimeout)));
      });
}

HerdBackend::WorkPtr HerdBackend::recv(Tensors& tensors, int from, int tag) {
  TORCH_CHECK(from >= 0 && from < size_, "herd: recv: source ", from, " is none of the group's ", size_, " ranks");
  return receive(tensors, from, tag);
}
HerdBackend::WorkPtr HerdBackend::recvAnysource(Tensors& tensors, int tag) { return receive(tensors, kAnySource, tag); }

HerdBackend::WorkPtr HerdBackend::barrier(const c10d::BarrierOptions& options) {
  return issue({OpType::BARRIER, "herd:barrier", {}, std::nullopt, is_asynchronous(options)},
               [&](Communicator& comm, Operation& operation, bool later) {
                 const at::Tensor token = at::zeros({1}, at::kInt);
                 operation.held = {token};
                 const Buffer buffer = buffer_of(token);
                 const OpOptions o = op_options(options.timeout, "barrier");
                 if (later)
                   operation.works.push_back(comm.all_reduce_async(buffer, o));
                 else
                   comm.all_reduce(buffer, o);
               });
}

// Goes through the store, so that a rank that does not come is named and the group lives on.
void HerdBackend::monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) {
  const milliseconds timeout = options.timeout.count() > 0 ? options.timeout : options_->timeout;
  C10dStore store(store_);
  const std::string key = "monitored_barrier/" + std::to_string(++monitored_barriers_) + "/";
  const auto deadline = steady_clock::now() + timeout;
  if (rank_ != 0) {
    store.set(key + std::to_string(rank_), "here");
    std::string answer;
    try {
      answer = store.get(key + "answer", deadline + std::chrono::seconds(1));
    } catch (const Error& error) {
      answer = error.message();
    }
    if (answer == "pass") return;
    C10_THROW_ERROR(DistBackendError,
                    "Rank " + std::to_string(rank_) +
                        " successfully reached monitoredBarrier, but received errors while waiting for "
                        "send/recv from rank 0. Please check rank 0 logs for faulty rank.\n Original "
                        "exception: Timed out : " +
                        answer);
  }
  std::string missing;
  int num_missing = 0;
  for (int peer = 1; peer < size_; ++peer) {
    try {
      store.get(key + std::to_string(peer), std::max(deadline, steady_clock::now() + milliseconds(1)));
    } catch (const Error&) {
      missing += (missing.empty() ? "" : ", ") + std::to_string(peer);
      ++num_missing;
      if (!wait_all_ranks) break;
    }
  }
  if (num_missing == 0) return store.set(key + "answer", "pass");
  const std::string text = std::string("[Rank 0]: Rank") + (num_missing > 1 ? "s " : " ") + missing +
                           " failed to pass monitoredBarrier in " + std::to_string(timeout.count()) + " ms";
  store.set(key + "answer", text);
  C10_THROW_ERROR(DistBackendError, text);
}

void abort_all_groups(const std::string& reason) {
  std::vector<std::shared_ptr<Communicator>> open;
  {
    const std::lock_guard lock(registry().mutex);
    for (HerdBackend* backend : registry().backends) open.push_back(backend->open_communicator());
  }
  for (const auto& communicator : open) {
    if (communicator != nullptr) communicator->abort(reason);
  }
}

void close_all_groups() {
  std::set<HerdBackend*> backends;
  {
    const std::lock_guard lock(registry().mutex);
    backends = registry().backends;
  }
  for (HerdBackend* backend : backends) backend->shutdown();
}

}  // namespace herd::pytorch
