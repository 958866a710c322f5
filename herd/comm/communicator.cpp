#include "herd/comm/communicator.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>

#include "herd/base/error.h"
#include "herd/base/standard_streams.h"
#include "herd/comm/agreement.h"
#include "herd/comm/choose_device_engine.h"
#include "herd/comm/collective_call.h"
#include "herd/comm/connect_world.h"
#include "herd/comm/context.h"
#include "herd/comm/fingerprint.h"
#include "herd/comm/host_copies.h"
#include "herd/comm/process_generation.h"
#include "herd/comm/transfer.h"
#include "herd/comm/world_facts.h"
#include "herd/launch/environment.h"
#include "herd/launch/status.h"
#include "herd/launch/store_client.h"
#include "herd/topology/topology_text.h"

namespace herd::comm {

using namespace std::chrono_literals;

struct Work::State : PendingOp {
  std::shared_ptr<ProgressEngine> engine;
  OwnerProcess owner;
};

void Work::wait() {
  if (state_ == nullptr) return;
  state_->owner.check("this operation");
  state_->engine->wait(*state_);
}

void Work::hold(StreamHandle) { wait(); }

bool Work::done() const {
  if (state_ == nullptr) return true;
  state_->owner.check("this operation");
  return state_->done.load(std::memory_order_acquire);
}

void Work::on_done(std::function<void()> call) {
  if (state_ == nullptr) return call();
  state_->owner.check("this operation");
  state_->engine->call_when_done(*state_, std::move(call));
}

Rank Work::source() const { return state_ == nullptr ? kAnySource : state_->message.peer; }

std::chrono::steady_clock::time_point Work::finished_at() const {
  return state_ == nullptr ? std::chrono::steady_clock::time_point{} : state_->finished_at;
}

struct SymmetricMemory::State {
  ~State() {
    if (regions != nullptr) regions->remove(id);
  }
  std::shared_ptr<transport::SharedRegion> memory;
  std::shared_ptr<RegionTable> regions;
  uint64_t id = 0;
  uint64_t group = 0;
  int self = 0;
  int64_t bytes = 0;
};

void* SymmetricMemory::data() const { return state_ == nullptr ? nullptr : state_->memory->of(state_->self); }
int64_t SymmetricMemory::bytes() const { return state_ == nullptr ? 0 : state_->bytes; }
std::shared_ptr<void> SymmetricMemory::keep_alive() const { return state_; }

struct Communicator::State {
  OwnerProcess owner;
  std::shared_ptr<Context> context;
  std::unique_ptr<GroupState> group;  // null if this rank is no member
  uint64_t allocations = 0;
  uint64_t rounds = 0;           // rounds of agreement on who is left
  std::optional<Device> device;  // of use_device()
  DeviceEngine asked_engine = DeviceEngine::kAuto;
  DeviceEngineChoice engine{DeviceEngine::kStaged, "use_device() has not been called"};

  GroupState& member() {
    if (group == nullptr)
      throw Error(Code::kBadConfig, "this rank is no member of the group: it passed a color < 0 to split()");
    return *group;
  }
};

namespace {

std::shared_ptr<Context> make_context(std::shared_ptr<transport::Transport> transport) {
  auto context = std::make_shared<Context>();
  context->engine = make_shared_of_process<ProgressEngine>(transport);
  context->transport = std::move(transport);
  return context;
}

// Tells whether a peer failed the group: one that has left world_of() may do so. The first operation then reports it.
bool failed_by_peer(GroupState& group) {
  const transport::FailureBoard& board = group.channel().failure_board();
  return board.ready() && board.rank != group.job_rank(group.rank());
}

bool are_counts(std::span<const int64_t> counts, size_t how_many) {
  return counts.size() == how_many && std::all_of(counts.begin(), counts.end(), [](int64_t n) { return n >= 0; });
}

std::unique_ptr<GroupState> world_of(Context& context, const GivenFacts& given = {}) {
  GroupSettings settings;
  for (Rank rank = 0; rank < context.transport->size(); ++rank) settings.members.push_back(rank);
  settings.domain = std::make_shared<FailureDomain>();
  settings.schedules = context.schedules(settings.members);
  if (context.shows_status) {
    settings.show_status = [&context](uint64_t sequence, const std::string& text) {
      launch::publish_status(*context.store, context.transport->rank(), text, static_cast<int64_t>(sequence));
    };
  }
  auto group = std::make_unique<GroupState>(context.engine, context.regions, std::move(settings));
  try {
    share_facts(*group, given, *context.facts);
  } catch (const Error&) {
    if (!failed_by_peer(*group)) throw;
  }
  return group;
}

// Ranks that connect a second time would find the addresses of the first.
void check_first_world(const launch::Environment& environment, Store& store) {
  if (environment.size == 1) return;
  const std::string rank = std::to_string(environment.rank);
  if (store.add("worlds/" + std::to_string(environment.num_restarts) + "/" + rank, 1) == 1) return;
  throw Error(Code::kBadConfig, "rank " + rank +
                                    " calls Communicator::create() a second time, and the ranks of a job connect once"
                                    "\n  fix: keep the first communicator, and make more groups of it by split()");
}

}  // namespace

Communicator Communicator::create_on(const std::string& topology) {
  open_missing_streams();  // a socket in place of the standard output would carry what the program prints
  const launch::Environment environment = launch::read_environment();
  const auto deadline = std::chrono::steady_clock::now() + 60s;
  std::shared_ptr<Store> store = launch::connect_store(environment);
  check_first_world(environment, *store);
  auto state = make_shared_of_process<State>();
  state->context = make_context(connect_world(environment, *store, deadline));
  state->context->store = std::move(store);
  state->context->shows_status = true;
  state->group =
      world_of(*state->context, {environment.tuning_file, topology.empty() ? environment.topology : topology});
  return Communicator(std::move(state));
}

Communicator Communicator::create(const Rendezvous& rendezvous) {
  open_missing_streams();
  const auto deadline = std::chrono::steady_clock::now() + rendezvous.deadline;
  const Rank rank = rendezvous.rank;
  const int size = rendezvous.world_size;
  std::shared_ptr<Store> store = rendezvous.store;
  if (store == nullptr) {
    store = launch::connect_store(
        launch::numbered_environment(launch::read_settings(), rendezvous.init_method, rank, size), deadline);
  }
  const launch::Environment environment = meet_in_store(launch::read_settings(), *store, {rank, size}, deadline);
  auto state = make_shared_of_process<State>();
  state->context = make_context(connect_world(environment, *store, deadline));
  state->context->store = std::move(store);
  state->group = world_of(*state->context, {environment.tuning_file, environment.topology});
  state->group->set_deadline(rendezvous.deadline);
  return Communicator(std::move(state));
}

Communicator::Communicator(std::shared_ptr<transport::Transport> transport) : state_(make_shared_of_process<State>()) {
  state_->context = make_context(std::move(transport));
  state_->group = world_of(*state_->context);
}

Communicator::Communicator(std::shared_ptr<State> state) : state_(std::move(state)) {}
Communicator::Communicator(Communicator&&) noexcept = default;
Communicator& Communicator::operator=(Communicator&&) noexcept = default;
Communicator::~Communicator() = default;

Communicator::State& Communicator::state() const {
  if (state_ == nullptr) {
    throw Error(Code::kBadConfig,
                "this communicator was moved to another one\n  fix: call the one that it was moved to");
  }
  state_->owner.check("this communicator");
  return *state_;
}

std::shared_ptr<Context> Communicator::context() const { return state().context; }
const GroupSettings& Communicator::settings() const { return state().member().settings(); }

Communicator Communicator::share() const {
  state();
  return Communicator(state_);
}

GroupState& CommunicatorTestAccess::group(Communicator& communicator) { return communicator.state().member(); }
Context& CommunicatorTestAccess::context(Communicator& communicator) { return *communicator.state().context; }
std::string CommunicatorTestAccess::last_algorithm(Communicator& communicator) {
  transport::Channel& channel = group(communicator).channel();
  transport::RankBoard& board = channel.board(channel.rank());
  const uint64_t last = board.started.load(std::memory_order_acquire);
  const auto record = board.records[last % transport::kRecords].read(last);
  return record ? record->algorithm : "";
}
Communicator CommunicatorTestAccess::make(std::shared_ptr<transport::Transport> transport, ScheduleSource schedules) {
  auto state = make_shared_of_process<Communicator::State>();
  state->context = make_context(std::move(transport));
  state->context->schedules = [schedules = std::move(schedules)](const std::vector<Rank>&) { return schedules; };
  state->group = world_of(*state->context);
  return Communicator(std::move(state));
}

Rank Communicator::rank() const {
  const auto& group = state().group;
  return group == nullptr ? -1 : group->rank();
}
int Communicator::size() const {
  const auto& group = state().group;
  return group == nullptr ? 0 : group->size();
}
std::string_view Communicator::name() const {
  const auto& group = state().group;
  return group == nullptr ? std::string_view() : std::string_view(group->settings().name);
}

void Communicator::set_deadline(std::chrono::milliseconds deadline) {
  if (deadline.count() <= 0) {
    throw Error(Code::kBadConfig,
                "set_deadline: more than 0 ms, but it is " + std::to_string(deadline.count()) + " ms");
  }
  GroupState& group = state().member();
  const auto issuing = group.issuing();
  group.set_deadline(deadline);
}

DeviceEngineChoice Communicator::use_device(Device device, DeviceEngine engine) {
  GroupState& group = state().member();
  state_->device = device;
  state_->asked_engine = engine;
  state_->engine = choose_device_engine(*this, group, device, engine);
  return state_->engine;
}

DeviceEngineChoice Communicator::device_engine() const { return state().engine; }

std::optional<Device> Communicator::device() const { return state().device; }

Communicator Communicator::split(int color, int key, std::string_view name) {
  GroupState& parent = state().member();
  const int n = parent.size();
  const std::array<int64_t, 3> mine = {color, key, static_cast<int64_t>(state_->context->next_group.load())};
  std::vector<int64_t> all(3 * static_cast<size_t>(n));
  all_gather(mine, all, {.name = "split"});
  int64_t id = 0;
  std::vector<std::tuple<int64_t, Rank>> members;  // (key, rank in parent)
  for (Rank rank = 0; rank < n; ++rank) {
    const int64_t* theirs = all.data() + 3 * rank;
    id = std::max(id, theirs[2]);
    if (theirs[0] == color) members.emplace_back(theirs[1], rank);
  }
  state_->context->next_group.store(static_cast<uint64_t>(id) + 1);
  auto state = make_shared_of_process<State>();
  state->context = state_->context;
  if (color >= 0) {
    std::sort(members.begin(), members.end());
    GroupSettings settings;
    settings.name = name;
    settings.deadline = parent.settings().deadline;
    settings.domain = parent.settings().domain;
    for (const auto& [order, rank] : members)
      settings.members.push_back(parent.settings().members[static_cast<size_t>(rank)]);
    settings.schedules = state_->context->schedules(settings.members);
    // Groups of one split share this number, but no rank, so the first member tells them apart.
    settings.id = static_cast<uint64_t>(id) << 24 | static_cast<uint64_t>(settings.members.front());
    state->group = std::make_unique<GroupState>(state->context->engine, state->context->regions, std::move(settings));
  }
  Communicator made(std::move(state));
  if (state_->device && color >= 0) made.use_device(*state_->device, state_->asked_engine);
  return made;
}

Communicator Communicator::group(const std::vector<Rank>& members, std::string_view name) {
  GroupState& parent = state().member();
  GroupSettings settings;
  settings.name = name;
  settings.deadline = parent.settings().deadline;
  settings.domain = std::make_shared<FailureDomain>();
  std::string key(name);
  for (Rank member : members) {
    check_rank(member, parent.size(), "group: member");
    const Rank job_rank = parent.job_rank(member);
    if (std::find(settings.members.begin(), settings.members.end(), job_rank) != settings.members.end())
      throw Error(Code::kBadConfig, "group: rank " + std::to_string(member) + " is twice among the members");
    settings.members.push_back(job_rank);
    key += "/" + std::to_string(job_rank);
  }
  if (std::find(members.begin(), members.end(), parent.rank()) == members.end()) {
    throw Error(Code::kBadConfig, "group: rank " + std::to_string(parent.rank()) + " is no member of \"" +
                                      std::string(name) + "\"\n  fix: only members call group()");
  }
  Context& context = *state_->context;
  {
    const std::lock_guard lock(context.names_mutex);
    settings.id = mix(hash_text(key), ++context.names[key]);
  }
  settings.schedules = context.schedules(settings.members);
  auto state = make_shared_of_process<State>();
  state->context = state_->context;
  state->group = std::make_unique<GroupState>(context.engine, context.regions, std::move(settings));
  Communicator made(std::move(state));
  if (state_->device) made.use_device(*state_->device, state_->asked_engine);
  return made;
}

SymmetricMemory Communicator::allocate_symmetric(int64_t bytes, OpOptions options) {
  if (bytes < 0) {
    throw Error(Code::kBadConfig, "allocate_symmetric: bytes >= 0, but they are " + std::to_string(bytes));
  }
  GroupState& group = state().member();
  const auto& members = group.settings().members;
  const auto timeout = group.deadline_of(options.deadline);
  const uint64_t number = ++state_->allocations;
  const std::string key = "group" + std::to_string(group.settings().id) + "/symmetric" + std::to_string(number);
  auto memory = make_shared_of_process<SymmetricMemory::State>();
  memory->memory =
      state_->context->transport->allocate(key, members, bytes, std::chrono::steady_clock::now() + timeout);
  memory->regions = state_->context->regions;
  memory->id = mix(group.settings().id, number);
  memory->group = group.settings().id;
  memory->self = group.rank();
  memory->bytes = bytes;
  memory->regions->add({memory->id, memory->memory, members, group.rank()});
  SymmetricMemory handle;
  handle.state_ = std::move(memory);
  return handle;
}

Communicator Communicator::shrink(std::string_view name, OpOptions options) {
  GroupState& group = state().member();
  const GroupSettings& old = group.settings();
  const auto deadline = std::chrono::steady_clock::now() + group.deadline_of(options.deadline);
  transport::Transport& transport = *state_->context->transport;
  Agreement agreement(group.channel(), [&](Rank rank) {
    return group.channel().board(rank).left.load(std::memory_order_acquire) != 0 ||
           transport.state(old.members[static_cast<size_t>(rank)]) == transport::PeerState::kGone;
  });
  abort("the group ends, its survivors go on in another");
  std::vector<Rank> members(static_cast<size_t>(group.size()));
  std::iota(members.begin(), members.end(), 0);
  auto state = make_shared_of_process<State>();
  state->context = state_->context;
  while (true) {
    const uint64_t round = state_->rounds + 1;
    state_->rounds += 2;
    members = agreement.decide(round, true, members, deadline).voters;
    std::string failure;
    try {
      GroupSettings settings;
      settings.name = name;
      settings.id = mix(old.id, round);
      settings.deadline = old.deadline;
      settings.show_status = old.show_status;
      settings.domain = std::make_shared<FailureDomain>();
      for (Rank rank : members) settings.members.push_back(old.members[static_cast<size_t>(rank)]);
      settings.schedules = state_->context->schedules(settings.members);
      state->group = std::make_unique<GroupState>(state->context->engine, state->context->regions, std::move(settings));
    } catch (const Error& error) {
      failure = error.message();
    }
    // Whichever rank dies meanwhile, either all have the new group, or all try again with those that are left.
    const Decision outcome = agreement.decide(round + 1, failure.empty(), members, deadline);
    if (outcome.unanimous) {
      Communicator made(std::move(state));
      if (state_->device) made.use_device(*state_->device, state_->asked_engine);
      return made;
    }
    state->group.reset();
    if (outcome.voters == members) throw Error(Code::kStorage, "the survivors' group can't be made: " + failure);
    members = outcome.voters;
  }
}

uint64_t Communicator::bytes_moved() const { return state().context->engine->bytes_moved(); }

std::vector<AlgorithmUse> Communicator::algorithms_used() const {
  const auto& group = state().group;
  if (group == nullptr) return {};
  const auto issuing = group->issuing();
  return group->algorithms_used();
}

std::string Communicator::topology() const {
  const Context& context = *state().context;
  if (state_->group == nullptr) return to_text(topology_of({context.transport->rank()}, {}, *context.facts));
  return to_text(topology_of(state_->group->settings().members, state_->group->hosts(), *context.facts));
}

void Communicator::abort(const std::string& reason) {
  GroupState& group = state().member();
  group.let_peers_finish();
  group.engine().locked([&] {
    group.fail(Code::kAborted, "rank " + std::to_string(group.job_rank(group.rank())) + " aborted: " + reason);
  });
}

void Communicator::show_activity(std::string_view activity) {
  state().member().engine().transport().set_activity(activity);
}

Work Communicator::issue(CollectiveCall call, Wait wait, std::initializer_list<std::span<const Buffer>> held) {
  GroupState& group = state().member();
  Work work;
  if (wait == Wait::kHere) {
    PendingOp pending;
    auto issuing = group.issuing();
    group.prepare(pending, call);
    group.engine().run(pending, std::move(issuing));
    return work;
  }
  work.state_ = std::make_shared<Work::State>();
  work.state_->engine = state_->context->engine;
  work.state_->issued = std::chrono::steady_clock::now();
  for (const auto& buffers : held) {
    work.state_->keep_alive.insert(work.state_->keep_alive.end(), buffers.begin(), buffers.end());
  }
  const auto issuing = group.issuing();
  group.prepare(*work.state_, call);
  group.engine().start(work.state_);
  return work;
}

namespace {

// Stands for HostCopies where the buffers are the host's.
struct AsTheyAre {
  const Buffer& of(const Buffer& buffer) const { return buffer; }
  const std::vector<Buffer>& of(const std::vector<Buffer>& buffers) const { return buffers; }
};

// Stands for HostCopies where the operation runs on the device: its call is checked as if the memory were the host's.
struct AsTheHosts {
  Buffer of(Buffer buffer) const {
    buffer.device = {};
    return buffer;
  }
  std::vector<Buffer> of(std::vector<Buffer> buffers) const {
    for (Buffer& buffer : buffers) buffer.device = {};
    return buffers;
  }
};

// Tells whether all buffers lie on the device; those without elements lie anywhere.
bool lie_on(Device device, std::span<const Buffer> reads, std::span<const Buffer> writes) {
  for (const auto& buffers : {reads, writes}) {
    for (const Buffer& buffer : buffers) {
      if (buffer.count > 0 && buffer.device != device) return false;
    }
  }
  return true;
}

std::span<const Buffer> one(const Buffer& buffer) { return {&buffer, 1}; }
std::span<const Buffer> one_if(bool used, const Buffer& buffer) { return {&buffer, used ? size_t{1} : size_t{0}}; }
std::span<const Buffer> all_if(bool used, const std::vector<Buffer>& buffers) {
  return {buffers.data(), used ? buffers.size() : 0};
}

}  // namespace

// Issues the operation that make_call(memory) returns, where memory.of(buffer) is what its schedule runs on.
template <typename MakeCall>
Work Communicator::issue_on(std::string_view what, Form form, std::span<const Buffer> reads,
                            std::span<const Buffer> writes, Wait wait, const MakeCall& make_call) {
  if (!on_device(reads) && !on_device(writes)) return issue(make_call(AsTheyAre{}), wait, {reads, writes});
  GroupState& group = state().member();
  if (group.device_collectives() != nullptr && form == Form::kBuffer &&
      lie_on(group.device_collectives()->device(), reads, writes)) {
    const CollectiveCall call = make_call(AsTheHosts{});
    if (call.op != ReduceOp::kPremultipliedSum && call.algorithm.empty() &&
        group.device_collectives()->supports(call.request.collective, call.request.dtype, call.op, call.reduces))
      return issue_on_device(call, reads, writes, wait);
  }
  const auto copies =
      std::make_shared<HostCopies>(group.engine().shared_transport(), group.collective_lanes(), reads, writes, what);
  CollectiveCall call = make_call(*copies);
  call.device = copies;
  return issue(std::move(call), wait, {reads, writes});
}

Work Communicator::issue_on_device(const CollectiveCall& call, std::span<const Buffer> reads,
                                   std::span<const Buffer> writes, Wait wait) {
  GroupState& group = state().member();
  DeviceCollective operation;
  Schedule& header = operation.header;
  header.collective = call.request.collective;
  header.self = group.rank();
  header.num_ranks = group.size();
  header.root = call.request.root;
  header.elements = call.request.elements;
  header.counts = call.request.counts;
  header.dtype = call.request.dtype;
  operation.op = call.op;
  if (!reads.empty()) operation.in = static_cast<const std::byte*>(reads.front().ptr);
  if (!writes.empty()) operation.out = static_cast<std::byte*>(writes.front().ptr);
  if (operation.out == nullptr && !reads.empty()) operation.out = static_cast<std::byte*>(reads.front().ptr);
  std::vector<Buffer> buffers(reads.begin(), reads.end());
  buffers.insert(buffers.end(), writes.begin(), writes.end());
  for (const Buffer& buffer : buffers) {
    if (buffer.count == 0 ||
        (&buffer != buffers.data() && buffer.stream == buffers.front().stream && buffers.front().count > 0))
      continue;
    operation.before.push_back(device_driver(buffer.device.kind).record(buffer.device.index, buffer.stream));
  }
  const OpOptions options = {.op = call.op, .name = call.name, .deadline = call.deadline, .where = call.where};
  uint64_t shape = mix(call.shape, static_cast<uint64_t>(header.collective) + 1);
  for (const int64_t value : {header.elements, static_cast<int64_t>(header.dtype), int64_t{header.root}})
    shape = mix(shape, static_cast<uint64_t>(value));
  for (const int64_t count : header.counts) shape = mix(shape, static_cast<uint64_t>(count));

  DeviceCollectives& engine = *group.device_collectives();
  auto issuing = group.issuing();
  const auto steps = engine.steps_of(std::move(operation));
  const auto prepare = [&](PendingOp& pending, size_t index) {
    CollectiveCall signal = barrier_call(options);
    signal.device = steps[index];
    signal.op = call.op;
    signal.reduces = call.reduces;
    signal.shown = &call.request;
    signal.shown_algorithm = engine.name();
    signal.shape = mix(shape, index);
    signal.shape_text = call.shape_text;
    group.prepare(pending, signal);
  };
  for (size_t i = 0; i + 1 < steps.size(); ++i) {
    const auto pending = std::make_shared<PendingOp>();
    prepare(*pending, i);
    pending->issued = std::chrono::steady_clock::now();
    group.engine().post(pending);
  }
  Work work;
  if (wait == Wait::kHere) {
    PendingOp pending;
    prepare(pending, steps.size() - 1);
    group.engine().run(pending, std::move(issuing));
    return work;
  }
  work.state_ = std::make_shared<Work::State>();
  work.state_->engine = state_->context->engine;
  work.state_->issued = std::chrono::steady_clock::now();
  work.state_->keep_alive = std::move(buffers);
  prepare(*work.state_, steps.size() - 1);
  group.engine().start(work.state_);
  return work;
}

void Communicator::barrier(OpOptions o) { issue(barrier_call(o), Wait::kHere, {}); }
Work Communicator::issue_all_reduce(const Buffer& x, const OpOptions& o, Wait wait) {
  return issue_on("all_reduce", Form::kBuffer, one(x), one(x), wait,
                  [&](const auto& memory) { return all_reduce_call(memory.of(x), o); });
}
Work Communicator::issue_broadcast(const Buffer& x, Rank root, const OpOptions& o, Wait wait) {
  return issue_on("broadcast", Form::kBuffer, one_if(rank() == root, x), one_if(rank() != root, x), wait,
                  [&](const auto& memory) { return broadcast_call(memory.of(x), root, size(), o); });
}
Work Communicator::issue_reduce(const Buffer& x, Rank root, const OpOptions& o, Wait wait) {
  return issue_on("reduce", Form::kBuffer, one(x), one_if(rank() == root, x), wait,
                  [&](const auto& memory) { return reduce_call(memory.of(x), root, rank(), size(), o); });
}
Work Communicator::issue_all_gather(const Buffer& in, const Buffer& out, const OpOptions& o, Wait wait) {
  return issue_on("all_gather", Form::kBuffer, one(in), one(out), wait, [&](const auto& memory) {
    return all_gather_call(memory.of(in), memory.of(out), rank(), size(), o);
  });
}
Work Communicator::issue_reduce_scatter(const Buffer& in, const Buffer& out, const OpOptions& o, Wait wait) {
  return issue_on("reduce_scatter", Form::kBuffer, one(in), one(out), wait, [&](const auto& memory) {
    return reduce_scatter_call(memory.of(in), memory.of(out), rank(), size(), o);
  });
}
Work Communicator::issue_gather(const Buffer& in, const Buffer& out, Rank root, const OpOptions& o, Wait wait) {
  return issue_on("gather", Form::kBuffer, one(in), one_if(rank() == root, out), wait, [&](const auto& memory) {
    return gather_call(memory.of(in), memory.of(out), root, rank(), size(), o);
  });
}
Work Communicator::issue_scatter(const Buffer& in, const Buffer& out, Rank root, const OpOptions& o, Wait wait) {
  return issue_on("scatter", Form::kBuffer, one_if(rank() == root, in), one(out), wait, [&](const auto& memory) {
    return scatter_call(memory.of(in), memory.of(out), root, rank(), size(), o);
  });
}
Work Communicator::issue_all_to_all(const Buffer& in, const Buffer& out, const OpOptions& o, Wait wait) {
  return issue_on("all_to_all", Form::kBuffer, one(in), one(out), wait, [&](const auto& memory) {
    return all_to_all_call(memory.of(in), memory.of(out), rank(), size(), o);
  });
}
Work Communicator::issue_all_reduce_list(const Buffers& xs, const OpOptions& o, Wait wait) {
  return issue_on("all_reduce_list", Form::kList, xs, xs, wait,
                  [&](const auto& memory) { return all_reduce_list_call(memory.of(xs), o); });
}
Work Communicator::issue_broadcast_list(const Buffers& xs, Rank root, const OpOptions& o, Wait wait) {
  return issue_on("broadcast_list", Form::kList, all_if(rank() == root, xs), all_if(rank() != root, xs), wait,
                  [&](const auto& memory) { return broadcast_list_call(memory.of(xs), root, rank(), size(), o); });
}
Work Communicator::issue_reduce_list(const Buffers& xs, Rank root, const OpOptions& o, Wait wait) {
  return issue_on("reduce_list", Form::kList, xs, all_if(rank() == root, xs), wait,
                  [&](const auto& memory) { return reduce_list_call(memory.of(xs), root, rank(), size(), o); });
}
Work Communicator::issue_all_gather_list(const Buffers& ins, const Buffers& outs, const OpOptions& o, Wait wait) {
  return issue_on("all_gather_list", Form::kList, ins, outs, wait, [&](const auto& memory) {
    return all_gather_list_call(memory.of(ins), memory.of(outs), rank(), size(), o);
  });
}
Work Communicator::issue_reduce_scatter_list(const Buffers& ins, const Buffers& outs, const OpOptions& o, Wait wait) {
  return issue_on("reduce_scatter_list", Form::kList, ins, outs, wait, [&](const auto& memory) {
    return reduce_scatter_list_call(memory.of(ins), memory.of(outs), rank(), size(), o);
  });
}
Work Communicator::issue_gather_list(const Buffers& ins, const Buffers& outs, Rank root, const OpOptions& o,
                                     Wait wait) {
  return issue_on("gather_list", Form::kList, ins, all_if(rank() == root, outs), wait, [&](const auto& memory) {
    return gather_list_call(memory.of(ins), memory.of(outs), root, rank(), size(), o);
  });
}
Work Communicator::issue_scatter_list(const Buffers& ins, const Buffers& outs, Rank root, const OpOptions& o,
                                      Wait wait) {
  return issue_on("scatter_list", Form::kList, all_if(rank() == root, ins), outs, wait, [&](const auto& memory) {
    return scatter_list_call(memory.of(ins), memory.of(outs), root, rank(), size(), o);
  });
}
Work Communicator::issue_all_to_all_list(const Buffers& ins, const Buffers& outs, const OpOptions& o, Wait wait) {
  return issue_on("all_to_all_list", Form::kList, ins, outs, wait, [&](const auto& memory) {
    return all_to_all_list_call(memory.of(ins), memory.of(outs), rank(), size(), o);
  });
}

std::vector<int64_t> Communicator::exchange_counts(std::span<const int64_t> sends, OpOptions o) {
  if (static_cast<int>(sends.size()) != size()) {
    throw Error(Code::kBadConfig, "exchange_counts: a rank says what it sends to each of " + std::to_string(size()) +
                                      " ranks, but gives " + std::to_string(sends.size()) + " counts");
  }
  std::vector<int64_t> all(sends.size() * sends.size());
  all_gather(sends, all, o);
  return all;
}

// Wrong counts give the size that equal parts have; the collective's own checks name the rule then.
int64_t Communicator::gathered_elements(int64_t elements, const OpOptions& o) const {
  if (!are_counts(o.counts, static_cast<size_t>(size()))) return elements * size();
  return std::accumulate(o.counts.begin(), o.counts.end(), int64_t{0});
}

int64_t Communicator::scattered_elements(int64_t elements, const OpOptions& o) const {
  if (!are_counts(o.counts, static_cast<size_t>(size()))) return elements / size();
  return o.counts[static_cast<size_t>(rank())];
}

int64_t Communicator::exchanged_elements(int64_t elements, const OpOptions& o) const {
  const auto n = static_cast<size_t>(size());
  if (!are_counts(o.counts, n * n)) return elements;
  int64_t sum = 0;
  for (size_t from = 0; from < n; ++from) sum += o.counts[from * n + static_cast<size_t>(rank())];
  return sum;
}

Rank Communicator::run_receive(const Buffer& x, Rank from, int tag, const OpOptions& o) {
  PendingOp pending;
  fill_transfer(pending, state().member(), PendingOpKind::kReceive, x, from, tag, o);
  pending.group->engine().run(pending);
  return pending.message.peer;
}

Work Communicator::issue_send(const Buffer& x, Rank to, int tag, const OpOptions& o, Wait wait) {
  if (wait == Wait::kHere) {
    PendingOp pending;
    fill_transfer(pending, state().member(), PendingOpKind::kSend, x, to, tag, o);
    pending.group->engine().run(pending);
    return {};
  }
  Work work;
  work.state_ = std::make_shared<Work::State>();
  fill_transfer(*work.state_, state().member(), PendingOpKind::kSend, x, to, tag, o);
  work.state_->engine = state_->context->engine;
  work.state_->issued = std::chrono::steady_clock::now();
  work.state_->keep_alive = {x};
  work.state_->engine->start(work.state_);
  return work;
}

void Communicator::signal(Rank to, int tag, OpOptions o) {
  issue_send({nullptr, 0, DType::kU8}, to, tag, o, Wait::kHere);
}
void Communicator::wait(Rank from, int tag, OpOptions o) { run_receive({nullptr, 0, DType::kU8}, from, tag, o); }

void Communicator::run_copy(const Buffer& x, const SymmetricMemory& memory, Rank to, int64_t offset) {
  GroupState& group = state().member();
  check_buffer(x, "copy");
  check_rank(to, group.size(), "copy: rank");
  if (memory.state_ == nullptr || memory.state_->group != group.settings().id) {
    throw Error(Code::kBadConfig, "copy: the symmetric memory was not allocated by group \"" + group.settings().name +
                                      "\"\n  fix: copy with the communicator that allocated it");
  }
  if (offset < 0 || offset > memory.bytes() - x.bytes()) {
    throw Error(Code::kBadConfig, "copy: " + std::to_string(x.bytes()) + " bytes at offset " + std::to_string(offset) +
                                      " do not fit the " + std::to_string(memory.bytes()) + " bytes of the memory");
  }
  if (x.bytes() == 0) return;
  if (memory.state_->memory->of(to) == nullptr) {
    throw Error(Code::kBadConfig, "copy: rank " + std::to_string(to) + " is on another host than rank " +
                                      std::to_string(rank()) + "\n  fix: send and receive");
  }
  std::memmove(memory.state_->memory->of(to) + offset, x.ptr, static_cast<size_t>(x.bytes()));
  if (to != rank()) group.engine().count_moved(static_cast<uint64_t>(x.bytes()));
}

Work Communicator::start_receive(const Buffer& x, Rank from, int tag, const OpOptions& o) {
  Work work;
  work.state_ = std::make_shared<Work::State>();
  fill_transfer(*work.state_, state().member(), PendingOpKind::kReceive, x, from, tag, o);
  work.state_->engine = state_->context->engine;
  work.state_->issued = std::chrono::steady_clock::now();
  work.state_->keep_alive = {x};
  work.state_->engine->start(work.state_);
  return work;
}

}  // namespace herd::comm
