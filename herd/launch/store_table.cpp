#include "herd/launch/store_table.h"

#include <algorithm>
#include <charconv>
#include <cstdio>

namespace herd::launch {
namespace {

using namespace std::chrono_literals;
constexpr auto kSilent = 2s;  // a rank is silent after ten missed heartbeats

template <typename T>
bool parse(std::string_view text, T& value) {
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  return status == std::errc() && end == text.data() + text.size();
}

Message answer(const Message& request, Verb verb, std::string key = "", std::string value = "") {
  return {verb, request.id, request.scope, std::move(key), std::move(value)};
}

Message failed(uint32_t scope, uint64_t id, const Failure& failure) {
  return {Verb::kFailed, id, scope, std::string(code_name(failure.code)), failure.reason.substr(0, kMaxValueBytes)};
}

std::string ranks_text(const char* title, const std::vector<std::string>& ranks) {
  if (ranks.empty()) return "";
  std::string text = std::string("; ") + title + ": ";
  constexpr size_t kShown = 16;
  for (size_t i = 0; i < std::min(ranks.size(), kShown); ++i) text += (i ? ", " : "") + ranks[i];
  if (ranks.size() > kShown) text += " and " + std::to_string(ranks.size() - kShown) + " more";
  return text;
}

}  // namespace

std::string StoreTable::refuse_hello(const Scope& scope, const std::string& connection, const Message& hello,
                                     SteadyTime now, ClientState& state) const {
  const size_t slash = hello.key.find('/');
  if (slash == std::string::npos || !parse(std::string_view(hello.key).substr(0, slash), state.rank) ||
      !parse(std::string_view(hello.key).substr(slash + 1), state.size) || state.rank < 0 || state.rank >= state.size) {
    return "a hello states rank/size with 0 <= rank < size, not \"" + hello.key + "\"";
  }
  const bool is_launcher = hello.scope == kLaunchers;
  const std::string name = is_launcher ? "node " : "rank ", location = hello.value.substr(0, 256);
  for (const auto& [other_peer, other] : scope.peers) {
    if (other.size != state.size) {
      return name + std::to_string(state.rank) + " expects " + std::to_string(state.size) +
             (is_launcher ? " nodes" : "") + " in the job, but " + name + std::to_string(other.rank) + " (" +
             other.location + ") expects " + std::to_string(other.size) +
             (is_launcher ? "\n  fix: the same --nnodes on every node" : "");
    }
    const bool lives = !other.left && !other.disconnected && now - other.last_heard < kSilent;
    if (other_peer != connection && other.rank == state.rank && lives) {
      const bool itself = other.location == location;
      return (is_launcher ? "node number " : "number ") + std::to_string(state.rank) +
             " is in the job already: " + other.location +
             (is_launcher ? "\n  fix: a --node-rank of its own for each node"
              : itself
                  ? ", which is this process\n  fix: keep the first communicator, and make more groups of it by split()"
                  : "");
    }
  }
  state.location = location;
  state.last_heard = state.joined = now;
  return "";
}

std::vector<StoreTable::Answer> StoreTable::set(uint32_t scope_id, const Message& request,
                                                const std::string& connection) {
  Scope& scope = scopes_[scope_id];
  scope.values[request.key] = request.value;
  std::vector<Answer> answers = {{connection, answer(request, Verb::kOk)}};
  std::erase_if(scope.waiters, [&](const Waiter& waiter) {
    if (waiter.key != request.key) return false;
    answers.push_back({waiter.connection, {Verb::kOk, waiter.id, scope_id, "", request.value}});
    return true;
  });
  return answers;
}

std::optional<StoreTable::Answer> StoreTable::get(uint32_t scope_id, const Message& request,
                                                  const std::string& connection, SteadyTime now) {
  Scope& scope = scopes_[scope_id];
  constexpr std::string_view kHeartbeatKey = "heartbeat/";
  if (request.key.starts_with(kHeartbeatKey)) {
    for (const auto& [_, state] : scope.peers) {
      if (request.key.substr(kHeartbeatKey.size()) != std::to_string(state.rank)) continue;
      const auto age = std::chrono::duration_cast<std::chrono::milliseconds>(now - state.last_heard);
      return Answer{connection, answer(request, Verb::kOk, "", std::to_string(age.count()))};
    }
    return Answer{connection, answer(request, Verb::kOk, "", "-1")};
  }
  if (const auto found = scope.values.find(request.key); found != scope.values.end()) {
    return Answer{connection, answer(request, Verb::kOk, "", found->second)};
  }
  if (scope.failure) return Answer{connection, failed(scope_id, request.id, *scope.failure)};
  scope.waiters.push_back({connection, request.key, request.id});
  return std::nullopt;
}

std::optional<StoreTable::Answer> StoreTable::add(uint32_t scope_id, const Message& request,
                                                  const std::string& connection) {
  auto& values = scopes_[scope_id].values;
  const auto found = values.find(request.key);
  const std::string value = found == values.end() ? "" : found->second;
  int64_t sum = 0, delta = 0;
  if ((!value.empty() && !parse(value, sum)) || !parse(request.value, delta) ||
      __builtin_add_overflow(sum, delta, &sum)) {
    return Answer{connection, answer(request, Verb::kRefused, "",
                                     "add to \"" + request.key + "\": \"" + value.substr(0, 40) + "\" and \"" +
                                         request.value.substr(0, 40) + "\" have no 64-bit sum")};
  }
  values[request.key] = std::to_string(sum);
  return std::nullopt;
}

std::vector<StoreTable::Answer> StoreTable::hello(const std::string& connection, const Message& request,
                                                  SteadyTime now) {
  ClientState state;
  Scope& scope = scopes_[request.scope];
  const std::string rule = refuse_hello(scope, connection, request, now, state);
  if (!rule.empty()) {
    scope.refusal = Refusal{rule, now};
    return {{connection, answer(request, Verb::kRefused, "", rule)}};
  }
  std::erase_if(scope.peers, [&](const auto& entry) { return entry.second.rank == state.rank; });
  scope.peers[connection] = state;
  std::vector<Answer> answers = {{connection, answer(request, Verb::kOk)}};
  if (scope.failure) answers.push_back({connection, failed(request.scope, 0, *scope.failure)});
  return answers;
}

void StoreTable::disconnect(const std::string& connection, SteadyTime now) {
  for (auto& [_, scope] : scopes_) {
    const auto found = scope.peers.find(connection);
    if (found != scope.peers.end()) found->second.disconnected = now;
  }
}

std::vector<StoreTable::Answer> StoreTable::handle(const std::string& connection, std::string_view frame,
                                                   SteadyTime now, std::string* dropped) {
  const auto drop = [&](const char* why) -> std::vector<Answer> {
    if (dropped) *dropped = why;
    return {};
  };
  const auto request = decode(frame);
  if (!request) return drop("a frame that breaks the grammar");
  const uint32_t id = request->scope;
  if (request->verb == Verb::kHello) return hello(connection, *request, now);
  if (request->verb == Verb::kFail && id != kLaunchers && scopes_[kLaunchers].peers.contains(connection)) {
    // A launcher reports the failure of its ranks.
    std::vector<Answer> answers = fail(id, {parse_code(request->key), request->value});
    answers.push_back({connection, answer(*request, Verb::kOk)});
    return answers;
  }
  const auto scope_found = scopes_.find(id);
  if (scope_found == scopes_.end() || !scope_found->second.peers.contains(connection)) {
    drop("a request before a hello");
    // Its client has the token. It knew the store that listened here before this one, and would wait for an answer.
    return {{connection, answer(*request, Verb::kRefused, std::string(kUnknownClient),
                                "this store does not know its client: its process was started again, or another "
                                "client has taken the number")}};
  }
  Scope& scope = scope_found->second;
  ClientState& state = scope.peers[connection];
  state.last_heard = now;
  state.disconnected.reset();
  switch (request->verb) {
    case Verb::kBye:
      state.left = true;
      return {{connection, answer(*request, Verb::kOk)}};
    case Verb::kBeat: {
      state.status_heard = now;
      if (!request->key.empty()) {  // an empty key means that the status is unchanged
        scope.values["status/" + std::to_string(state.rank)] = request->key + " " + request->value;
        state.status_since = now;
      }
      return {{connection, answer(*request, Verb::kOk)}};
    }
    case Verb::kSet:
      return set(id, *request, connection);
    case Verb::kGet: {
      const auto got = get(id, *request, connection, now);
      return got ? std::vector{*got} : std::vector<Answer>{};
    }
    case Verb::kAdd: {
      if (const auto refused = add(id, *request, connection)) return {*refused};
      Message sum = *request;
      sum.value = scope.values[request->key];
      std::vector<Answer> answers = set(id, sum, connection);
      answers[0].message.value = sum.value;
      return answers;
    }
    case Verb::kErase:
      scope.values.erase(request->key);
      return {{connection, answer(*request, Verb::kOk)}};
    case Verb::kCancel: {
      const auto num_withdrawn = std::erase_if(
          scope.waiters, [&](const Waiter& w) { return w.connection == connection && w.id == request->id; });
      if (!num_withdrawn) return {};  // the get has its answer already: one answer per id
      return {{connection, answer(*request, Verb::kOk, "cancelled", summary(id, now))}};
    }
    case Verb::kFail: {
      std::vector<Answer> answers = fail(id, {parse_code(request->key), request->value});
      answers.push_back({connection, answer(*request, Verb::kOk)});
      return answers;
    }
    default:
      return drop("an answer where a request belongs");
  }
}

std::vector<StoreTable::Answer> StoreTable::fail(uint32_t scope_id, const Failure& failure) {
  Scope& scope = scopes_[scope_id];
  if (scope.failure) return {};
  scope.failure = failure;
  std::vector<Answer> answers;
  for (const Waiter& waiter : scope.waiters)
    answers.push_back({waiter.connection, failed(scope_id, waiter.id, failure)});
  scope.waiters.clear();
  for (const auto& [connection, state] : scope.peers) {
    if (!state.left) answers.push_back({connection, failed(scope_id, 0, failure)});
  }
  if (scope_id == kLaunchers) return answers;
  for (const auto& [connection, state] : scopes_[kLaunchers].peers) {
    if (!state.left) answers.push_back({connection, failed(scope_id, 0, failure)});
  }
  return answers;
}

std::optional<std::string> StoreTable::value(uint32_t scope_id, const std::string& key) const {
  const auto scope = scopes_.find(scope_id);
  if (scope == scopes_.end()) return std::nullopt;
  const auto found = scope->second.values.find(key);
  if (found == scope->second.values.end()) return std::nullopt;
  return found->second;
}

std::optional<Failure> StoreTable::failure(uint32_t scope_id) const {
  const auto scope = scopes_.find(scope_id);
  return scope == scopes_.end() ? std::nullopt : scope->second.failure;
}

std::optional<Refusal> StoreTable::refusal(uint32_t scope_id) const {
  const auto scope = scopes_.find(scope_id);
  return scope == scopes_.end() ? std::nullopt : scope->second.refusal;
}

std::vector<ClientState> StoreTable::peers(uint32_t scope_id) const {
  std::vector<ClientState> result;
  if (const auto scope = scopes_.find(scope_id); scope != scopes_.end()) {
    for (const auto& [_, state] : scope->second.peers) result.push_back(state);
  }
  std::sort(result.begin(), result.end(), [](const auto& a, const auto& b) { return a.rank < b.rank; });
  return result;
}

std::string StoreTable::summary(uint32_t scope_id, SteadyTime now) const {
  const std::vector<ClientState> present = peers(scope_id);
  if (present.empty()) return "no rank is here yet";
  std::vector<std::string> absent, left, silent;
  size_t next = 0;
  for (int rank = 0; rank < present[0].size && absent.size() < 1000; ++rank) {
    if (next == present.size() || present[next].rank != rank) {
      absent.push_back(std::to_string(rank));
      continue;
    }
    const ClientState& state = present[next++];
    const double age_s = std::chrono::duration<double>(now - state.last_heard).count();
    char text[48];
    std::snprintf(text, sizeof text, "%d (%.1f s)", rank, age_s);
    if (state.left)
      left.push_back(std::to_string(rank));
    else if (now - state.last_heard > kSilent)
      silent.push_back(text);
  }
  return "here: " + std::to_string(present.size()) + " of " + std::to_string(present[0].size) + " ranks" +
         ranks_text("not here yet", absent) + ranks_text("left", left) + ranks_text("silent", silent);
}

}  // namespace herd::launch
