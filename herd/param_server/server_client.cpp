#include "herd/param_server/server_client.h"

#include <cstring>
#include <exception>
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
  Request request;  // in flight

  // Runs a part of a call, and says in its error which server and call it was.
  template <typename Part>
  void attempt(const char* call, const Part& part) {
    try {
      part();
    } catch (const Error& error) {
      throw Error(error.code(),
                  name + ", in a " + call +
                      (request.kind == RequestKind::kReport ? "" : " of key " + std::to_string(request.index)) + ": " +
                      error.message());
    }
  }
  void send(const char* call, const Request& next) {
    request = next;
    attempt(call, [&] { connection->send(bytes_of(request), kRequestTag); });
  }
  Reply receive(const char* call, std::chrono::milliseconds deadline) {
    Reply reply;
    attempt(call, [&] {
      connection->receive(bytes_of(reply), kReplyTag, deadline + kGrace);
      if (reply.code == Reply::kOk) return;
      std::string text(static_cast<size_t>(reply.text_bytes), ' ');
      connection->receive(bytes_of(std::string_view(text)), kReplyPayloadTag, deadline + kGrace);
      throw Error(static_cast<Code>(reply.code), text);
    });
    return reply;
  }
};

ServerClient::ServerClient(const comm::Communicator& world, const ServerLayout& layout, const KeyTable& keys,
                           ParameterServer* local)
    : keys_(keys), exceptions_(std::uncaught_exceptions()) {
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
        server->send("leave", {.kind = RequestKind::kLeave});
        server->receive("leave", kGrace);
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

void ServerClient::hello(Server& server) {
  Request request{.kind = RequestKind::kHello};
  request.fingerprint = keys_.fingerprint();
  request.keys = keys_.size();
  request.elements = keys_.total_elements();
  server.send("hello", request);
  server.receive("hello", deadline_);
}

void ServerClient::check_count(int64_t index, size_t given, int64_t expected, const char* what) const {
  if (static_cast<int64_t>(given) == expected) return;
  throw Error(Code::kBadConfig, std::string(what) + " of key " + std::to_string(index) + " has " +
                                    std::to_string(given) + " elements, but it takes " + std::to_string(expected));
}

kernels::ElementRange ServerClient::piece(int64_t index, size_t server) const {
  return keys_.piece(index, static_cast<int>(server), static_cast<int>(servers_.size()));
}

void ServerClient::receive_replies(const std::vector<bool>& asked) {
  std::exception_ptr first;  // all replies are taken, so that the next call finds none of this one
  for (const size_t i : order_) {
    if (!asked[i]) continue;
    try {
      servers_[i]->receive("push", deadline_);
    } catch (const Error&) {
      if (!first) first = std::current_exception();
    }
  }
  if (first) std::rethrow_exception(first);
}

void ServerClient::push(int64_t index, std::span<const float> gradient, PushOptions options) {
  check_count(index, gradient.size(), keys_.at(index).elements, "the gradient");
  std::vector<bool> asked(servers_.size());
  for (const size_t i : order_) {
    Server& server = *servers_[i];
    const auto range = piece(index, i);
    if (range.size() == 0 || server.local != nullptr) continue;
    const auto part = gradient.subspan(static_cast<size_t>(range.begin), static_cast<size_t>(range.size()));
    server.send("push", {.kind = RequestKind::kPush, .index = index, .count = range.size(), .rate = options.rate});
    server.attempt(
        "push", [&] { server.connection->send(floats_of(part.data(), range.size()), kRequestPayloadTag, deadline_); });
    asked[i] = true;
  }
  for (const size_t i : order_) {
    const auto range = piece(index, i);
    if (servers_[i]->local == nullptr || range.size() == 0) continue;
    servers_[i]->local->push(
        index, gradient.subspan(static_cast<size_t>(range.begin), static_cast<size_t>(range.size())), options.rate);
  }
  receive_replies(asked);
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
  std::vector<bool> asked(servers_.size());
  std::vector<int64_t> own_rows;
  std::vector<float> own_values;
  std::vector<std::byte> payload;
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
      server.local->push_rows(index, own_rows, own_values, options.rate);
      continue;
    }
    const size_t row_bytes = own_rows.size() * sizeof(int64_t);
    payload.resize(row_bytes + own_values.size() * sizeof(float));
    if (!own_rows.empty()) {
      std::memcpy(payload.data(), own_rows.data(), row_bytes);
      std::memcpy(payload.data() + row_bytes, own_values.data(), own_values.size() * sizeof(float));
    }
    server.send("push", {.kind = RequestKind::kPushRows,
                         .index = index,
                         .count = static_cast<int64_t>(own_rows.size()),
                         .rate = options.rate});
    server.attempt("push", [&] {
      server.connection->send({payload.data(), static_cast<int64_t>(payload.size()), DType::kU8}, kRequestPayloadTag,
                              deadline_);
    });
    asked[i] = true;
  }
  receive_replies(asked);
}

int64_t ServerClient::pull(int64_t index, std::span<float> weights) {
  check_count(index, weights.size(), keys_.at(index).elements, "the memory for the weights");
  const auto deadline = std::chrono::steady_clock::now() + deadline_;
  const Request request{.kind = RequestKind::kPull, .index = index, .deadline_ms = deadline_.count()};
  for (const size_t i : order_) {
    if (servers_[i]->local == nullptr && piece(index, i).size() > 0) servers_[i]->send("pull", request);
  }
  int64_t version = std::numeric_limits<int64_t>::max();
  staleness_ = 0;
  const auto take = [&](int64_t piece_version, int64_t piece_staleness) {
    version = std::min(version, piece_version);
    staleness_ = std::max(staleness_, piece_staleness);
  };
  std::exception_ptr first;
  for (const size_t i : order_) {
    const auto range = piece(index, i);
    if (range.size() == 0) continue;
    Server& server = *servers_[i];
    const auto part = weights.subspan(static_cast<size_t>(range.begin), static_cast<size_t>(range.size()));
    try {
      if (server.local != nullptr) {
        server.attempt("pull", [&] {
          const Snapshot pulled = server.local->pull(index, part, deadline);
          take(pulled.version, pulled.staleness);
        });
        continue;
      }
      const Reply reply = server.receive("pull", deadline_);
      take(reply.version, reply.staleness);
      server.attempt("pull", [&] {
        server.connection->receive(floats_of(part.data(), range.size()), kReplyPayloadTag, deadline_);
      });
    } catch (const Error&) {
      if (!first) first = std::current_exception();
    }
  }
  if (first) std::rethrow_exception(first);
  return version;
}

JobProgress ServerClient::report(const WorkerProgress& progress) {
  Server& server = *servers_.front();
  JobProgress job;
  if (server.local != nullptr) {
    server.attempt("report", [&] { job = server.local->report(progress); });
    return job;
  }
  server.send("report", {.kind = RequestKind::kReport,
                         .wants_stop = progress.wants_stop ? 1u : 0u,
                         .index = progress.steps,
                         .count = progress.count,
                         .rate = progress.sum,
                         .deadline_ms = progress.staleness});
  server.receive("report", deadline_);
  server.attempt("report", [&] { server.connection->receive(bytes_of(job), kReplyPayloadTag, deadline_); });
  return job;
}

}  // namespace herd::param_server
