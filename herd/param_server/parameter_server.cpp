#include "herd/param_server/parameter_server.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <thread>
#include <utility>

#include "herd/base/log.h"
#include "herd/param_server/encoded_push.h"
#include "herd/param_server/server_state_internal.h"

namespace herd::param_server {
namespace {

using std::chrono::steady_clock;

constexpr size_t kMaxTextBytes = 64 << 10;          // of an error
constexpr int64_t kMaxRowBytes = int64_t{1} << 31;  // of one sparse push
constexpr std::chrono::seconds kFarewell{2};        // a worker that is gone has them to read its last answer

}  // namespace

int place_of(Rank rank, const std::vector<Rank>& ranks) {
  const auto found = std::find(ranks.begin(), ranks.end(), rank);
  return found == ranks.end() ? -1 : static_cast<int>(found - ranks.begin());
}

void check_layout(const ServerLayout& layout, int num_ranks) {
  for (const auto* ranks : {&layout.servers, &layout.workers}) {
    const char* what = ranks == &layout.servers ? "servers" : "workers";
    if (ranks->empty()) {
      throw Error(Code::kBadConfig, "\"" + layout.name + "\" has no " + what + "\n  fix: name one rank at least");
    }
    for (Rank rank : *ranks) {
      if (rank >= 0 && rank < num_ranks && std::count(ranks->begin(), ranks->end(), rank) == 1) continue;
      throw Error(Code::kBadConfig, "rank " + std::to_string(rank) + " is among the " + what + " of \"" + layout.name +
                                        "\", but each is a rank of 0 to " + std::to_string(num_ranks - 1) +
                                        ", and named once");
    }
  }
}

std::string connection_name(const ServerLayout& layout, int server, int worker) {
  return layout.name + " " + std::to_string(server) + ", worker " + std::to_string(worker);
}

ServerState::ServerState(const comm::Communicator& world, ServerLayout layout, KeyTable keys, ServerOptions options)
    : world_(world.share()),
      layout_(std::move(layout)),
      server_(place_of(world.rank(), layout_.servers)),
      local_worker_(place_of(world.rank(), layout_.workers)),
      table_(std::move(keys), server_, static_cast<int>(layout_.servers.size()),
             static_cast<int>(layout_.workers.size()), std::move(options)),
      progress_(static_cast<int>(layout_.workers.size())),
      workers_(layout_.workers.size()),
      incoming_(layout_.workers.size()),
      wait_(world_) {
  if (local_worker_ >= 0) workers_[static_cast<size_t>(local_worker_)].gone = false;
}

std::string ServerState::name_of(int worker) const {
  return "worker " + std::to_string(worker) + " (rank " + std::to_string(layout_.workers[static_cast<size_t>(worker)]) +
         ")";
}

void ServerState::connect(int worker) {
  try {
    comm::Connection connection(world_, layout_.workers[static_cast<size_t>(worker)],
                                connection_name(layout_, server_, worker));
    const std::lock_guard lock(mutex_);
    Worker& state = workers_[static_cast<size_t>(worker)];
    state.connection.emplace(std::move(connection));
    state.gone = false;
    next_request(worker);
  } catch (const Error& error) {
    const std::lock_guard lock(mutex_);
    lose(worker, error.message());
  }
}

void ServerState::serve() {
  for (int worker = 0; worker < static_cast<int>(workers_.size()); ++worker) {
    if (worker != local_worker_) connect(worker);
  }
  std::unique_lock lock(mutex_);
  const auto has_remote = [&] {
    return std::any_of(workers_.begin(), workers_.end(), [](const Worker& w) { return w.connection && !w.gone; }) ||
           std::any_of(incoming_.begin(), incoming_.end(), [](const comm::Transfer& t) { return t.valid(); });
  };
  if (stopping_) {
    for (Worker& worker : workers_) worker.gone = true;
    incoming_.assign(workers_.size(), {});
  }
  while (has_remote()) {
    const SteadyTime deadline = first_deadline();
    lock.unlock();
    wait_.wait_any(incoming_, deadline);
    lock.lock();
    const SteadyTime now = steady_clock::now();
    for (int worker = 0; worker < static_cast<int>(workers_.size()); ++worker) {
      comm::Transfer& transfer = incoming_[static_cast<size_t>(worker)];
      if (!transfer.valid()) continue;
      if (transfer.done())
        take(worker);
      else if (stopping_ || now >= workers_[static_cast<size_t>(worker)].reads_until)
        transfer = {};
    }
    if (std::exchange(called_locally_, false) || now >= deadline) answer_all_waiting();
  }
  changed_.wait(lock,
                [&] { return stopping_ || local_worker_ < 0 || workers_[static_cast<size_t>(local_worker_)].gone; });
}

void ServerState::stop(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  if (stopping_) return;
  stopping_ = true;
  table_.fail(Error(Code::kAborted, reason));
  changed_.notify_all();
  for (Worker& worker : workers_) {
    if (worker.connection && !worker.gone) worker.connection->abort(reason);
  }
}

void ServerState::report(int worker) {
  const Request& request = workers_[static_cast<size_t>(worker)].request;
  try {
    table_.check_failed();
  } catch (const Error& error) {
    return answer(worker, request.number, error);
  }
  const auto job = std::make_shared<JobProgress>(progress_.report(worker, {.steps = request.index,
                                                                           .sum = request.rate,
                                                                           .count = request.count,
                                                                           .staleness = request.deadline_ms,
                                                                           .wants_stop = request.wants_stop != 0,
                                                                           .meetings = request.keys}));
  answer(worker, request.number, Reply{});
  answer(worker, request.number, Answer::kPayload, {job.get(), sizeof *job, DType::kU8, {}, job});
}

void ServerState::next_request(int worker) {
  Worker& state = workers_[static_cast<size_t>(worker)];
  state.has_request = false;
  incoming_[static_cast<size_t>(worker)] = state.connection->post_receive(bytes_of(state.request), kRequestTag);
}

void ServerState::take(int worker) {
  Worker& state = workers_[static_cast<size_t>(worker)];
  comm::Transfer transfer = std::exchange(incoming_[static_cast<size_t>(worker)], {});
  if (state.gone) return;  // it has read its last answer, or never will
  try {
    transfer.wait();
    state.has_request ? finish_push(worker) : begin(worker);
  } catch (const Error& error) {
    lose(worker, error.message());
  }
}

void ServerState::begin(int worker) {
  Worker& state = workers_[static_cast<size_t>(worker)];
  const Request& request = state.request;
  switch (request.kind) {
    case RequestKind::kHello:
      return hello(worker);
    case RequestKind::kLeave:
      answer(worker, request.number, Reply{});
      state.gone = true;
      let_read_last_answer(worker);
      forget_pulls(worker);
      progress_.remove(worker);
      table_.remove_worker(worker, "");
      return answer_all_waiting();
    case RequestKind::kPull: {
      const WaitingPull pull{worker, request.number,
                             steady_clock::now() + std::chrono::milliseconds(request.deadline_ms)};
      if (!try_answer(request.index, pull)) waiting_[request.index].push_back(pull);
      return next_request(worker);
    }
    case RequestKind::kReport:
      report(worker);
      return next_request(worker);
    case RequestKind::kPush:
      if (request.index < 0 || request.index >= table_.keys().size() ||
          request.count != table_.piece(request.index).size()) {
        break;
      }
      state.has_request = true;
      state.gradient = table_.take_buffer(request.index);
      incoming_[static_cast<size_t>(worker)] =
          state.connection->post_receive(floats_of(state.gradient.get(), request.count), kRequestPayloadTag);
      return;
    case RequestKind::kPushRows: {
      if (request.index < 0 || request.index >= table_.keys().size()) break;
      const int64_t row_bytes = table_.keys().at(request.index).row_elements * 4 + 8;
      if (request.count < 0 || request.count > kMaxRowBytes / row_bytes) break;
      return expect_payload(worker, request.count * row_bytes);
    }
    case RequestKind::kPushEncoded:
      if (request.index < 0 || request.index >= table_.keys().size()) break;
      check_message(table_.keys().at(request.index), table_.piece(request.index), request.count);
      return expect_payload(worker, request.count);
  }
  // Clients check what they send, so this one is no client of this table.
  throw Error(Code::kBadConfig, "it sent a request for key " + std::to_string(request.index) + " with " +
                                    std::to_string(request.count) + " elements, which does not fit the server's " +
                                    table_.keys().describe());
}

void ServerState::expect_payload(int worker, int64_t bytes) {
  Worker& state = workers_[static_cast<size_t>(worker)];
  state.has_request = true;
  state.payload.resize(static_cast<size_t>(bytes));
  incoming_[static_cast<size_t>(worker)] =
      state.connection->post_receive({state.payload.data(), bytes, DType::kU8}, kRequestPayloadTag);
}

void ServerState::hello(int worker) {
  const Request& request = workers_[static_cast<size_t>(worker)].request;
  if (request.fingerprint == table_.keys().fingerprint()) {
    answer(worker, request.number, Reply{});
    return next_request(worker);
  }
  const Error error(Code::kBadConfig, name_of(worker) + " has another model: " + std::to_string(request.keys) +
                                          " keys of " + std::to_string(request.elements) + " elements, while server " +
                                          std::to_string(server_) + " has " + table_.keys().describe() +
                                          "\n  fix: the same key table on all ranks");
  answer(worker, request.number, error);
  lose(worker, error.message());
  let_read_last_answer(worker);
}

void ServerState::finish_push(int worker) {
  Worker& state = workers_[static_cast<size_t>(worker)];
  const Request& request = state.request;
  try {
    table_.check_push(worker, request.index);
    if (request.kind == RequestKind::kPushRows) {
      const auto count = static_cast<size_t>(request.count);
      std::vector<int64_t> rows(count);
      std::vector<float> values(count * static_cast<size_t>(table_.keys().at(request.index).row_elements));
      std::memcpy(rows.data(), state.payload.data(), count * sizeof(int64_t));
      std::memcpy(values.data(), state.payload.data() + count * sizeof(int64_t), values.size() * sizeof(float));
      check_rows(request.index, rows);
      state.gradient = table_.take_buffer(request.index);
      add_rows(request.index, rows, values, state.gradient);
    } else if (request.kind == RequestKind::kPushEncoded) {
      state.gradient = table_.take_buffer(request.index);
      decode_message(table_.keys().at(request.index), table_.piece(request.index), state.payload, state.gradient.get());
    }
    answer(worker, request.number, Reply{});  // before the update: this worker's pull comes after it all the same
    wait_.wait_any({}, SteadyTime{});         // sends it
    table_.push(worker, request.index, std::move(state.gradient), request.rate);
  } catch (const Error& error) {
    answer(worker, request.number, error);
  }
  const int64_t index = request.index;
  next_request(worker);
  answer_waiting(index);
}

void ServerState::check_rows(int64_t index, std::span<const int64_t> rows) const {
  const int64_t width = table_.keys().at(index).row_elements;
  const kernels::ElementRange piece = table_.piece(index);
  for (int64_t row : rows) {
    if (row >= piece.begin / width && row < (piece.end + width - 1) / width) continue;
    throw Error(Code::kBadConfig, "row " + std::to_string(row) + " of key " + std::to_string(index) +
                                      " is not among rows " + std::to_string(piece.begin / width) + " to " +
                                      std::to_string(piece.end / width - 1) + " of server " + std::to_string(server_));
  }
}

void ServerState::add_rows(int64_t index, std::span<const int64_t> rows, std::span<const float> values,
                           const Floats& into) {
  const int64_t width = table_.keys().at(index).row_elements;
  const kernels::ElementRange piece = table_.piece(index);
  std::fill_n(into.get(), piece.size(), 0.0f);
  const float* value = values.data();
  for (int64_t row : rows) {
    float* target = into.get() + (row * width - piece.begin);
    for (int64_t i = 0; i < width; ++i) target[i] += *value++;
  }
}

void ServerState::lose(int worker, const std::string& reason) {
  Worker& state = workers_[static_cast<size_t>(worker)];
  state.gone = true;
  incoming_[static_cast<size_t>(worker)] = {};
  const std::string text = name_of(worker) + " is lost: " + reason;
  if (!stopping_) log_warning("server " + std::to_string(server_) + ": " + text);
  forget_pulls(worker);
  progress_.lose(worker);
  table_.remove_worker(worker, text);
  answer_all_waiting();
}

void ServerState::forget_pulls(int worker) {
  for (auto& [index, pulls] : waiting_)
    std::erase_if(pulls, [&](const WaitingPull& pull) { return pull.worker == worker; });
}

void ServerState::answer(int worker, int64_t number, Answer part, const Buffer& buffer) {
  Worker& state = workers_[static_cast<size_t>(worker)];
  state.last_answer = state.connection->post_send(buffer, tag_of(part, number));
}

void ServerState::answer(int worker, int64_t number, const Reply& reply) {
  const auto kept = std::make_shared<Reply>(reply);
  answer(worker, number, Answer::kReply, {kept.get(), sizeof *kept, DType::kU8, {}, kept});
}

void ServerState::answer(int worker, int64_t number, const Error& error) {
  const auto text = std::make_shared<std::string>(error.message().substr(0, kMaxTextBytes));
  const auto bytes = static_cast<int32_t>(text->size());
  answer(worker, number, Reply{.code = static_cast<int32_t>(error.code()), .text_bytes = bytes});
  answer(worker, number, Answer::kText, {text->data(), bytes, DType::kU8, {}, text});
}

void ServerState::let_read_last_answer(int worker) {
  Worker& state = workers_[static_cast<size_t>(worker)];
  incoming_[static_cast<size_t>(worker)] = state.last_answer;
  state.reads_until = steady_clock::now() + kFarewell;
}

// Returns false as long as the worker has to wait.
bool ServerState::try_answer(int64_t index, const WaitingPull& pull) {
  try {
    const auto snapshot = table_.pull(pull.worker, index);
    if (!snapshot) {
      if (steady_clock::now() < pull.deadline) return false;
      answer(pull.worker, pull.number, late(pull.worker, index));
      return true;
    }
    answer(pull.worker, pull.number, Reply{Reply::kOk, 0, snapshot->version, snapshot->count, snapshot->staleness});
    answer(pull.worker, pull.number, Answer::kPayload,
           {snapshot->weights.get(), snapshot->count, DType::kF32, {}, {snapshot->weights, snapshot->weights.get()}});
  } catch (const Error& error) {
    answer(pull.worker, pull.number, error);
  }
  return true;
}

Error ServerState::late(int worker, int64_t index) const {
  std::string names;
  for (int missing : table_.missing(index)) {
    if (missing != worker) names += (names.empty() ? "" : ", ") + name_of(missing);
  }
  return {Code::kTimeout, "key " + std::to_string(index) + " waits for a push of " + names +
                              "\n  fix: see what keeps them; a longer deadline; or servers with staleness"};
}

void ServerState::answer_waiting(int64_t index) {
  changed_.notify_all();
  const auto found = waiting_.find(index);
  if (found == waiting_.end()) return;
  std::erase_if(found->second, [&](const WaitingPull& pull) { return try_answer(index, pull); });
  if (found->second.empty()) waiting_.erase(found);
}

void ServerState::answer_all_waiting() {
  changed_.notify_all();
  for (auto& [index, pulls] : waiting_) {
    std::erase_if(pulls, [&, key = index](const WaitingPull& pull) { return try_answer(key, pull); });
  }
  std::erase_if(waiting_, [](const auto& pulls) { return pulls.second.empty(); });
}

SteadyTime ServerState::first_deadline() const {
  SteadyTime first = SteadyTime::max();
  for (size_t worker = 0; worker < workers_.size(); ++worker) {
    if (incoming_[worker].valid()) first = std::min(first, workers_[worker].reads_until);
  }
  for (const auto& [index, pulls] : waiting_) {
    for (const WaitingPull& pull : pulls) first = std::min(first, pull.deadline);
  }
  return first;
}

void ServerState::after_local_call() {
  called_locally_ = true;
  changed_.notify_all();
  wait_.interrupt();
}

void ServerState::push_locally(int64_t index, double rate, const std::function<void(Floats& gradient)>& fill) {
  const std::lock_guard lock(mutex_);
  table_.check_push(local_worker_, index);
  Floats gradient = table_.take_buffer(index);
  fill(gradient);
  table_.push(local_worker_, index, std::move(gradient), rate);
  after_local_call();
}

void ServerState::push(int64_t index, std::span<const float> gradient, double rate) {
  push_locally(index, rate, [&](Floats& copy) { std::memcpy(copy.get(), gradient.data(), gradient.size_bytes()); });
}

void ServerState::push_rows(int64_t index, std::span<const int64_t> rows, std::span<const float> values, double rate) {
  push_locally(index, rate, [&](Floats& gradient) {
    check_rows(index, rows);
    add_rows(index, rows, values, gradient);
  });
}

void ServerState::push_encoded(int64_t index, std::span<const std::byte> message, double rate) {
  push_locally(index, rate, [&](Floats& gradient) {
    decode_message(table_.keys().at(index), table_.piece(index), message, gradient.get());
  });
}

Snapshot ServerState::pull(int64_t index, std::span<float> weights, SteadyTime deadline) {
  std::unique_lock lock(mutex_);
  std::optional<Snapshot> snapshot;
  if (!changed_.wait_until(lock, deadline, [&] { return (snapshot = table_.pull(local_worker_, index)).has_value(); }))
    throw late(local_worker_, index);
  std::memcpy(weights.data(), snapshot->weights.get(), weights.size_bytes());
  snapshot->weights.reset();  // an update need not copy what nobody reads
  return *snapshot;
}

JobProgress ServerState::report(const WorkerProgress& progress) {
  const std::lock_guard lock(mutex_);
  table_.check_failed();
  return progress_.report(local_worker_, progress);
}

void ServerState::leave(const std::string& lost) {
  const std::lock_guard lock(mutex_);
  workers_[static_cast<size_t>(local_worker_)].gone = true;
  lost.empty() ? progress_.remove(local_worker_) : progress_.lose(local_worker_);
  table_.remove_worker(local_worker_, lost.empty() ? "" : name_of(local_worker_) + " is lost: " + lost);
  after_local_call();
}

int64_t ServerState::version(int64_t index) {
  const std::lock_guard lock(mutex_);
  return table_.version(index);
}

int64_t ServerState::num_lost() {
  const std::lock_guard lock(mutex_);
  return progress_.num_lost();
}

struct ParameterServer::Thread {
  std::thread thread;
};

ParameterServer::ParameterServer(const comm::Communicator& world, const ServerLayout& layout, const KeyTable& keys,
                                 const ServerOptions& options)
    : thread_(std::make_unique<Thread>()), exceptions_(std::uncaught_exceptions()) {
  check_layout(layout, world.size());
  if (place_of(world.rank(), layout.servers) < 0) {
    throw Error(Code::kBadConfig, "rank " + std::to_string(world.rank()) + " is no server of \"" + layout.name + "\"");
  }
  state_ = std::make_shared<ServerState>(world, layout, keys, options);
  thread_->thread = std::thread([state = state_] { state->serve(); });
}

ParameterServer::~ParameterServer() {
  if (std::uncaught_exceptions() > exceptions_) abort("the server was closed");
  wait();
}

void ParameterServer::wait() {
  if (thread_->thread.joinable()) thread_->thread.join();
}

void ParameterServer::abort(const std::string& reason) { state_->stop(reason); }

int64_t ParameterServer::version(int64_t index) const { return state_->version(index); }

int64_t ParameterServer::num_lost() const { return state_->num_lost(); }

}  // namespace herd::param_server
