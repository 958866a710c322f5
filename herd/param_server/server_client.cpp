#include "herd/param_server/server_client.h"

#include <cstring>
#include <exception>
#include <functional>
#include <limits>
#include <list>
#include <optional>
#include <string>
#include <utility>

#include "herd/param_server/server_state_internal.h"

namespace herd::param_server {
namespace {

constexpr std::chrono::milliseconds kGrace{2000};  // a server has them to say why it can't answer in time

}  // namespace

// One server as this worker sees it: a connection, or the state of the server in this process.
struct ServerClient::Server {
  std::string name;  // "server 1 (rank 3)"
  std::optional<comm::Connection> connection;
  std::shared_ptr<ServerState> local;
  int64_t next_number = 0;
};

// What a call asks of each server on other ranks, and what it asks of the one in this process.
struct ServerCall::State : std::enable_shared_from_this<ServerCall::State> {
  struct Part {
    ServerClient::Server* server;
    Request request;
    Reply reply = {};
    comm::Transfer asked = {}, payload = {}, replied = {}, answered = {};
    std::vector<std::byte> rows = {};  // of push_rows()
    std::exception_ptr unsent = {};    // what wait_sent() met
  };
  ServerClient* client = nullptr;
  const char* name = "";          // "push"
  std::list<Part> parts = {};     // messages hold their addresses
  std::exception_ptr local = {};  // what a push to the server in this process threw
  std::function<Pulled()> local_pull = {};
  // Says in an error which server and call it was.
  Error named(const ServerClient::Server& server, const Request& request, const Error& error) const;
  Buffer kept(Buffer buffer);  // that keeps this alive
  Part& ask(ServerClient::Server& server, Request request);
  void send_payload(Part& part, const Buffer& payload);
  void expect_payload(Part& part, const Buffer& payload);
  void await(Part& part, comm::Transfer& transfer, std::chrono::milliseconds deadline);
  void finish(Part& part);
};

Error ServerCall::State::named(const ServerClient::Server& server, const Request& request, const Error& error) const {
  const bool has_key = request.kind == RequestKind::kPush || request.kind == RequestKind::kPushRows ||
                       request.kind == RequestKind::kPushEncoded || request.kind == RequestKind::kPull;
  return {error.code(), server.name + ", in a " + name + (has_key ? " of key " + std::to_string(request.index) : "") +
                            ": " + error.message()};
}

Buffer ServerCall::State::kept(Buffer buffer) {
  buffer.keep_alive = shared_from_this();
  return buffer;
}

// REQUIRES the client's mutex, also for send_payload().
ServerCall::State::Part& ServerCall::State::ask(ServerClient::Server& server, Request request) {
  request.number = server.next_number++;
  Part& part = parts.emplace_back(Part{&server, request});
  part.replied = server.connection->post_receive(kept(bytes_of(part.reply)), tag_of(Answer::kReply, request.number));
  part.asked = server.connection->post_send(kept(bytes_of(part.request)), kRequestTag);
  return part;
}

void ServerCall::State::send_payload(Part& part, const Buffer& payload) {
  part.payload = part.server->connection->post_send(kept(payload), kRequestPayloadTag);
}

void ServerCall::State::expect_payload(Part& part, const Buffer& payload) {
  part.answered = part.server->connection->post_receive(kept(payload), tag_of(Answer::kPayload, part.request.number));
}

// Nothing of a call that is late comes any more, so that nobody writes to memory that its caller has taken back.
void ServerCall::State::await(Part& part, comm::Transfer& transfer, std::chrono::milliseconds deadline) {
  const auto until = std::chrono::steady_clock::now() + deadline;
  if (!transfer.done() && client->wait_.wait_any({&transfer, 1}, until) != 0 && !transfer.done()) {
    const std::string late = "it has not answered for " + std::to_string(deadline.count()) + " ms";
    part.server->connection->abort(late);
    throw named(*part.server, part.request, Error(Code::kTimeout, late));
  }
  try {
    transfer.wait();
  } catch (const Error& error) {
    throw named(*part.server, part.request, error);
  }
}

void ServerCall::State::finish(Part& part) {
  if (part.unsent) std::rethrow_exception(part.unsent);
  const std::chrono::milliseconds deadline = client->deadline_;
  await(part, part.asked, deadline);
  if (part.payload.valid()) await(part, part.payload, deadline);
  await(part, part.replied, deadline + kGrace);
  if (part.reply.code != Reply::kOk) {
    std::string text(static_cast<size_t>(part.reply.text_bytes), ' ');
    comm::Transfer told = part.server->connection->post_receive(bytes_of(std::string_view(text)),
                                                                tag_of(Answer::kText, part.request.number));
    await(part, told, deadline);
    throw named(*part.server, part.request, Error(static_cast<Code>(part.reply.code), text));
  }
  if (part.answered.valid()) await(part, part.answered, deadline);
}

void ServerCall::wait_sent() {
  for (State::Part& part : state_->parts) {
    try {
      if (part.payload.valid()) state_->await(part, part.payload, state_->client->deadline_);
    } catch (const Error&) {
      part.unsent = std::current_exception();  // for wait()
    }
  }
}

Pulled ServerCall::wait() {
  Pulled pulled{.version = std::numeric_limits<int64_t>::max()};
  const auto take = [&](const Pulled& piece) {
    pulled.version = std::min(pulled.version, piece.version);
    pulled.staleness = std::max(pulled.staleness, piece.staleness);
  };
  std::exception_ptr first = state_->local;  // it waits for all: memory of the caller is in use until then
  for (State::Part& part : state_->parts) {
    try {
      state_->finish(part);
      take({part.reply.version, part.reply.staleness});
    } catch (const Error&) {
      if (!first) first = std::current_exception();
    }
  }
  try {
    if (state_->local_pull) take(state_->local_pull());
  } catch (const Error&) {
    if (!first) first = std::current_exception();
  }
  if (first) std::rethrow_exception(first);
  return pulled;
}

ServerClient::ServerClient(const comm::Communicator& world, const ServerLayout& layout, const KeyTable& keys,
                           ParameterServer* local)
    : keys_(keys), wait_(world), exceptions_(std::uncaught_exceptions()) {
  check_layout(layout, world.size());
  const int worker = place_of(world.rank(), layout.workers);
  if (worker < 0) {
    throw Error(Code::kBadConfig, "rank " + std::to_string(world.rank()) + " is no worker of \"" + layout.name + "\"");
  }
  for (int index = 0; index < static_cast<int>(layout.servers.size()); ++index) {
    const Rank rank = layout.servers[static_cast<size_t>(index)];
    auto server = std::make_unique<Server>();
    server->name = "server " + std::to_string(index) + " (rank " + std::to_string(rank) + ")";
    if (rank != world.rank()) {
      server->connection.emplace(world, rank, connection_name(layout, index, worker));
      hello(*server);
    } else if (local != nullptr) {
      server->local = local->state_;
    } else {
      throw Error(Code::kBadConfig,
                  server->name + " is in this process, but the client was not given it\n  fix: pass it as `local`");
    }
    servers_.push_back(std::move(server));
  }
  // Workers begin with different servers, so that none has to serve all at once, and end with their own.
  for (size_t i = 0; i < servers_.size(); ++i)
    order_.push_back((static_cast<size_t>(worker) + 1 + i) % servers_.size());
}

ServerClient::~ServerClient() {
  const bool lost = aborted_ || std::uncaught_exceptions() > exceptions_;
  for (const auto& server : servers_) {
    try {
      if (server->local != nullptr) {
        server->local->leave(lost ? "it ended with an exception" : "");
      } else if (!lost) {
        deadline_ = kGrace;
        ServerCall leave = make_call("leave");
        leave.state_->ask(*server, {.kind = RequestKind::kLeave});
        leave.wait();
      }
    } catch (const Error&) {  // a server that is gone needs no farewell
    }
  }
}

void ServerClient::abort(const std::string& reason) {
  if (aborted_.exchange(true)) return;
  for (const auto& server : servers_) {
    if (server->local != nullptr)
      server->local->leave(reason);
    else
      server->connection->abort(reason);
  }
}

ServerCall ServerClient::make_call(const char* name) {
  ServerCall call;
  call.state_ = std::make_shared<ServerCall::State>();
  call.state_->client = this;
  call.state_->name = name;
  return call;
}

void ServerClient::hello(Server& server) {
  ServerCall call = make_call("hello");
  Request request{.kind = RequestKind::kHello};
  request.fingerprint = keys_.fingerprint();
  request.keys = keys_.size();
  request.elements = keys_.total_elements();
  call.state_->ask(server, request);
  call.wait();
}

void ServerClient::check_count(int64_t index, size_t given, int64_t expected, const char* what) const {
  if (static_cast<int64_t>(given) == expected) return;
  throw Error(Code::kBadConfig, std::string(what) + " of key " + std::to_string(index) + " has " +
                                    std::to_string(given) + " elements, but it takes " + std::to_string(expected));
}

kernels::ElementRange ServerClient::piece(int64_t index, size_t server) const {
  return keys_.piece(index, static_cast<int>(server), static_cast<int>(servers_.size()));
}

void ServerClient::push(int64_t index, std::span<const float> gradient, PushOptions options) {
  start_push(index, gradient, options).wait();
}

ServerCall ServerClient::start_push(int64_t index, std::span<const float> gradient, PushOptions options) {
  check_count(index, gradient.size(), keys_.at(index).elements, "the gradient");
  const auto part_of = [&](kernels::ElementRange range) {
    return gradient.subspan(static_cast<size_t>(range.begin), static_cast<size_t>(range.size()));
  };
  return send_push(
      {.kind = RequestKind::kPush, .index = index, .rate = options.rate},
      [&](size_t server) {
        const auto range = piece(index, server);
        return floats_of(part_of(range).data(), range.size());
      },
      [&](ServerState& local, size_t server) { local.push(index, part_of(piece(index, server)), options.rate); });
}

ServerCall ServerClient::start_push_encoded(int64_t index, const PushMessages& messages, PushOptions options) {
  if (messages.size() != servers_.size()) {
    throw Error(Code::kBadConfig, "an encoded push of key " + std::to_string(index) + " has messages for " +
                                      std::to_string(messages.size()) + " servers, but there are " +
                                      std::to_string(servers_.size()));
  }
  for (size_t i = 0; i < messages.size(); ++i)
    check_message(keys_.at(index), piece(index, i), static_cast<int64_t>(messages[i].size()));
  return send_push(
      {.kind = RequestKind::kPushEncoded, .index = index, .rate = options.rate},
      [&](size_t server) {
        const std::span<const std::byte> message = messages[server];
        return Buffer{const_cast<std::byte*>(message.data()), static_cast<int64_t>(message.size()), DType::kU8};
      },
      [&](ServerState& local, size_t server) { local.push_encoded(index, messages[server], options.rate); });
}

ServerCall ServerClient::send_push(Request request, const std::function<Buffer(size_t)>& payload_of,
                                   const std::function<void(ServerState&, size_t)>& push_locally) {
  ServerCall call = make_call("push");
  std::optional<size_t> local;
  {
    const std::lock_guard lock(mutex_);
    for (const size_t i : order_) {
      Server& server = *servers_[i];
      if (piece(request.index, i).size() == 0) continue;
      if (server.local != nullptr) {
        local = i;
        continue;
      }
      const Buffer payload = payload_of(i);
      request.count = payload.count;
      call.state_->send_payload(call.state_->ask(server, request), payload);
    }
  }
  // After the others, whose bytes move meanwhile.
  try {
    if (local) push_locally(*servers_[*local]->local, *local);
  } catch (const Error&) {
    call.state_->local = std::current_exception();
  }
  return call;
}

void ServerClient::push_rows(int64_t index, std::span<const int64_t> rows, std::span<const float> values,
                             PushOptions options) {
  const int64_t width = keys_.at(index).row_elements, num_rows = keys_.at(index).elements / width;
  check_count(index, values.size(), static_cast<int64_t>(rows.size()) * width, "the values of rows");
  for (int64_t row : rows) {
    if (row >= 0 && row < num_rows) continue;
    throw Error(Code::kBadConfig, "row " + std::to_string(row) + " of key " + std::to_string(index) +
                                      " is unknown: the key has rows 0 to " + std::to_string(num_rows - 1));
  }
  ServerCall call = make_call("push");
  std::vector<int64_t> own_rows;
  std::vector<float> own_values;
  for (const size_t i : order_) {
    const auto range = piece(index, i);
    if (range.size() == 0) continue;
    own_rows.clear();
    own_values.clear();
    for (size_t k = 0; k < rows.size(); ++k) {
      if (rows[k] * width < range.begin || rows[k] * width >= range.end) continue;
      own_rows.push_back(rows[k]);
      const auto first = values.begin() + static_cast<std::ptrdiff_t>(k) * width;
      own_values.insert(own_values.end(), first, first + width);
    }
    Server& server = *servers_[i];
    if (server.local != nullptr) {  // a push without rows counts too: its gradient is zero
      try {
        server.local->push_rows(index, own_rows, own_values, options.rate);
      } catch (const Error&) {
        call.state_->local = std::current_exception();
      }
      continue;
    }
    const std::lock_guard lock(mutex_);
    ServerCall::State::Part& part = call.state_->ask(server, {.kind = RequestKind::kPushRows,
                                                              .index = index,
                                                              .count = static_cast<int64_t>(own_rows.size()),
                                                              .rate = options.rate});
    const size_t row_bytes = own_rows.size() * sizeof(int64_t);
    part.rows.resize(row_bytes + own_values.size() * sizeof(float));
    if (!own_rows.empty()) {
      std::memcpy(part.rows.data(), own_rows.data(), row_bytes);
      std::memcpy(part.rows.data() + row_bytes, own_values.data(), own_values.size() * sizeof(float));
    }
    call.state_->send_payload(part, {part.rows.data(), static_cast<int64_t>(part.rows.size()), DType::kU8});
  }
  call.wait();
}

int64_t ServerClient::pull(int64_t index, std::span<float> weights) {
  const Pulled pulled = start_pull(index, weights).wait();
  staleness_ = pulled.staleness;
  return pulled.version;
}

ServerCall ServerClient::start_pull(int64_t index, std::span<float> weights) {
  check_count(index, weights.size(), keys_.at(index).elements, "the memory for the weights");
  ServerCall call = make_call("pull");
  const Request request{.kind = RequestKind::kPull, .index = index, .deadline_ms = deadline_.load().count()};
  const std::lock_guard lock(mutex_);
  for (const size_t i : order_) {
    Server& server = *servers_[i];
    const auto range = piece(index, i);
    if (range.size() == 0) continue;
    const auto memory = weights.subspan(static_cast<size_t>(range.begin), static_cast<size_t>(range.size()));
    if (server.local != nullptr) {
      call.state_->local_pull = [&server, request, memory, state = call.state_.get()] {
        try {
          const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(request.deadline_ms);
          const Snapshot snapshot = server.local->pull(request.index, memory, until);
          return Pulled{snapshot.version, snapshot.staleness};
        } catch (const Error& error) {
          throw state->named(server, request, error);
        }
      };
      continue;
    }
    ServerCall::State::Part& part = call.state_->ask(server, request);
    call.state_->expect_payload(part, floats_of(memory.data(), range.size()));
  }
  return call;
}

JobProgress ServerClient::report(const WorkerProgress& progress) {
  Server& server = *servers_.front();
  ServerCall call = make_call("report");
  JobProgress job;
  if (server.local != nullptr) {
    try {
      return server.local->report(progress);
    } catch (const Error& error) {
      throw call.state_->named(server, {.kind = RequestKind::kReport}, error);
    }
  }
  {
    const std::lock_guard lock(mutex_);
    ServerCall::State::Part& part = call.state_->ask(server, {.kind = RequestKind::kReport,
                                                              .wants_stop = progress.wants_stop ? 1u : 0u,
                                                              .index = progress.steps,
                                                              .count = progress.count,
                                                              .rate = progress.sum,
                                                              .deadline_ms = progress.staleness,
                                                              .keys = progress.meetings});
    call.state_->expect_payload(part, bytes_of(job));
  }
  call.wait();
  return job;
}

}  // namespace herd::param_server
