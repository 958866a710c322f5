#include <algorithm>
#include <functional>
#include <sstream>
#include <thread>

#include "herd/base/log.h"
#include "herd/launch/address_internal.h"
#include "herd/launch/coordinator_internal.h"

namespace herd::launch {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
constexpr milliseconds kNodeSilent = 5s;  // once the job has failed, a node that is silent for so long is not awaited
constexpr auto kRankSilent = 2s;          // ranks that were silent for so long before a failure are named with it
constexpr auto kSameMoment = 1s;          // a node that goes so long after a failure, or before it, caused the failure
constexpr auto kVerdictTimeout = 2s;      // how long node 0 waits until the other launchers have the verdict
constexpr double kTryS = 2;               // seconds that one try to reach node 0 takes at most
constexpr double kAskS = 0.3;             // seconds between two looks at signals
constexpr auto kReasonTimeout = 1s;       // how long we wait for the reason of the launcher that failed first
constexpr auto kTellTime = 1s;            // how long a node that leaves waits for others to connect and hear why
constexpr auto kSayWaitingAfter = 1s;     // node 0 says for whom it waits, if it takes longer
constexpr auto kPollPeriod = 10ms;        // time between two looks at the store

SteadyTime seconds_from_now(double seconds) {
  return Clock::now() + milliseconds(static_cast<int64_t>(seconds * 1000));
}

std::string numbered(const char* name, int attempt) { return std::string(name) + "/" + std::to_string(attempt); }
std::string numbered(const char* name, int attempt, int node) {
  return numbered(name, attempt) + "/" + std::to_string(node);
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

std::string join_lines(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

std::vector<std::string> split_lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

Failure failure_of(const std::exception& error) {
  const auto* known = dynamic_cast<const Error*>(&error);
  return {known != nullptr ? known->code() : Code::kStorage, error.what()};
}

// Tells whether the loss of a node explains a failure, which may have come first: peers of its ranks fail at once. A
// silent one was last heard before that.
bool explains(SteadyTime lost_since, bool is_silent, std::optional<SteadyTime> failed_at) {
  return !failed_at || lost_since <= *failed_at + (is_silent ? 0s : kSameMoment);
}

Verdict parse_verdict(const std::string& text) {
  const size_t line = text.find('\n');
  return {text.starts_with("restart"), std::atoi(text.c_str() + text.find(' ')),
          line == std::string::npos ? "" : text.substr(line + 1)};
}

Verdict end_of_job(const Failure& left) { return {false, left.code == Code::kBadConfig ? 2 : 1, left.reason}; }

}  // namespace

Coordinator::Coordinator(const LaunchOptions& options, const std::string& token)
    : options_(options),
      token_(token),
      longest_silence_(std::max(kNodeSilent, milliseconds(static_cast<int64_t>(options.deadline_s * 1000)))),
      watch_(options.num_nodes, options.ranks_per_node) {
  if (options.node_rank != 0) {
    rendezvous_ = options.rendezvous;
    return;
  }
  const StoreAddress address =
      options.num_nodes == 1 && options.rendezvous.empty() ? StoreAddress{} : parse_address(options.rendezvous);
  const int launchers = options.num_nodes == 1 ? 0 : options.num_nodes;
  server_ = std::make_unique<StoreServer>(address, token, launchers + options.num_nodes * options.ranks_per_node);
  rendezvous_ = server_->rendezvous();
  if (options.num_nodes == 1) {
    server_->fail(kLaunchers,
                  {Code::kBadConfig,
                   "node 0 at " + rendezvous_ + " runs a job of one node\n  fix: the same --nnodes on every node"});
  }
}

Coordinator::~Coordinator() = default;

Error Coordinator::timeout_error(const std::string& what) const {
  return Error(Code::kTimeout, this_node() + " waited " +
                                   std::to_string(static_cast<int>(options_.rendezvous_timeout_s)) +
                                   " s for node 0: " + what);
}

// Connects in tries of at most kTryS, so that a signal interrupts it.
bool Coordinator::connect(SteadyTime deadline, const Interrupted& interrupted) {
  if (!server_) {
    log_info(this_node() + " waits for node 0 at " + rendezvous_ + ", up to " +
             std::to_string(static_cast<int>(options_.rendezvous_timeout_s)) + " s");
  }
  while (!client_) {
    if (interrupted()) return false;
    try {
      client_ = std::make_unique<StoreClient>(rendezvous_, token_,
                                              ClientIdentity{options_.node_rank, options_.num_nodes, kLaunchers},
                                              std::min(deadline, seconds_from_now(kTryS)));
    } catch (const Error& error) {
      if (error.code() != Code::kTimeout && error.code() != Code::kPeerLost) throw;
      if (Clock::now() >= deadline) throw timeout_error(error.message());
    }
  }
  return true;
}

std::optional<std::string> Coordinator::ask(const std::string& key, double patience_s) {
  if (const auto left = client_->reported_failure(kLaunchers)) throw Error(left->code, left->reason);
  try {
    return client_->get(key, seconds_from_now(patience_s));
  } catch (const Error& error) {
    if (error.code() == Code::kTimeout) return std::nullopt;
    throw;
  }
}

std::vector<std::string> Coordinator::settings() const {
  std::vector<std::string> lines = {"-n = " + std::to_string(options_.ranks_per_node)};
  lines.insert(lines.end(), options_.settings.begin(), options_.settings.end());
  return lines;
}

void Coordinator::check_same_settings(const std::string& of_node_0) const {
  std::string differences;
  const std::vector<std::string> theirs = split_lines(of_node_0), ours = settings();
  for (size_t i = 0; i < std::max(theirs.size(), ours.size()); ++i) {
    const std::string their_line = i < theirs.size() ? theirs[i] : "(nothing)";
    const std::string our_line = i < ours.size() ? ours[i] : "(nothing)";
    if (their_line == our_line) continue;
    differences += (differences.empty() ? "" : "; ") + this_node() + " has " + our_line + ", node 0 has " + their_line;
  }
  if (differences.empty()) return;
  throw Error(Code::kBadConfig, differences + "\n  fix: the same options and the same run file on every node");
}

std::vector<int> Coordinator::missing_nodes(int attempt) const {
  std::vector<int> missing;
  const std::vector<ClientState> launchers = server_->peers(kLaunchers);
  for (int node = 1; node < options_.num_nodes; ++node) {
    const auto found = std::ranges::find(launchers, node, &ClientState::rank);
    const bool is_ready = found != launchers.end() && NodeWatch::is_here(*found) &&
                          server_->value(kLaunchers, numbered("ready", attempt, node));
    if (!is_ready) missing.push_back(node);
  }
  return missing;
}

// Node 0 opens the attempt, waits until every other node is ready for it, and says go.
bool Coordinator::gather_nodes(int attempt, SteadyTime deadline, const Interrupted& interrupted) {
  const auto names = [](const std::vector<int>& nodes) {
    std::string text = nodes.size() == 1 ? "node " : "nodes ";
    constexpr size_t kShown = 16;
    for (size_t i = 0; i < std::min(nodes.size(), kShown); ++i) text += (i ? ", " : "") + std::to_string(nodes[i]);
    return text + (nodes.size() > kShown ? " and " + std::to_string(nodes.size() - kShown) + " more" : "");
  };
  const SteadyTime began = Clock::now();
  const std::string seconds = std::to_string(static_cast<int>(options_.rendezvous_timeout_s)) + " s";
  bool has_said = false;
  client_->set("attempt", std::to_string(attempt));
  for (std::vector<int> missing; !(missing = missing_nodes(attempt)).empty();
       std::this_thread::sleep_for(kPollPeriod)) {
    if (interrupted()) return false;
    if (const auto left = server_->failure(kLaunchers)) throw Error(left->code, left->reason);
    const auto refusal = server_->refusal(kLaunchers);
    if (refusal && (attempt == 0 || refusal->time > began)) throw Error(Code::kBadConfig, refusal->rule);
    if (!has_said && Clock::now() - began > kSayWaitingAfter) {
      log_info("node 0 waits for " + names(missing) + " at " + rendezvous_ + ", up to " + seconds);
      has_said = true;
    }
    if (Clock::now() < deadline) continue;
    throw Error(Code::kTimeout, "only " + std::to_string(options_.num_nodes - static_cast<int>(missing.size())) +
                                    " of " + std::to_string(options_.num_nodes) + " nodes are ready after " + seconds +
                                    "; not here: " + names(missing) +
                                    "\n  fix: start herd run on every node, each with its own --node-rank");
  }
  client_->erase("attempt");
  watch_.begin(Clock::now());
  client_->set(numbered("go", attempt), "");
  return true;
}

std::optional<int> Coordinator::follow_node_0(SteadyTime deadline, const Interrupted& interrupted) {
  const auto wait_for = [&](const std::string& key, const char* what) {
    std::optional<std::string> value;
    while (!(value = ask(key, kAskS)) && !interrupted()) {
      if (Clock::now() >= deadline) throw timeout_error(what);
    }
    return value;
  };
  const auto settings = wait_for("settings", "it did not say what it starts");
  if (!settings) return std::nullopt;
  check_same_settings(*settings);
  const auto number = wait_for("attempt", "it starts no attempt of the job");
  if (!number) return std::nullopt;
  const int attempt = std::atoi(number->c_str());
  client_->set(numbered("ready", attempt, options_.node_rank), "");
  // Node 0 waits for all nodes until a deadline of its own.
  deadline = seconds_from_now(options_.rendezvous_timeout_s) + kVerdictTimeout;
  if (!wait_for(numbered("go", attempt), "it waits for other nodes")) return std::nullopt;
  return attempt;
}

std::optional<int> Coordinator::start(int attempt, const Interrupted& interrupted) {
  failed_at_.reset();
  if (options_.num_nodes == 1) return attempt;
  const SteadyTime deadline = seconds_from_now(options_.rendezvous_timeout_s);
  if (client_) client_->give_up_after(0ms);
  if (server_) {
    if (!client_) {
      if (!connect(deadline, interrupted)) return std::nullopt;
      client_->set("settings", join_lines(settings()));
    }
    return gather_nodes(attempt, deadline, interrupted) ? std::optional(attempt) : std::nullopt;
  }
  while (true) {
    if (client_ && (has_lost_node_0_ || client_->lost())) client_.reset();
    has_lost_node_0_ = false;
    if (!client_ && !connect(deadline, interrupted)) return std::nullopt;
    try {
      return follow_node_0(deadline, interrupted);
    } catch (const Error& error) {
      if (const auto left = client_->reported_failure(kLaunchers)) throw Error(left->code, left->reason);
      if (!client_->lost()) throw;
      log_warning("node 0 is gone before the job started: " + error.message());
    }
  }
}

// Keeps when the attempt failed, and on node 0 which ranks were silent then: their launchers wake them to end them.
void Coordinator::note_failure(int attempt) {
  if (failed_at_) return;
  failed_at_ = Clock::now();
  silent_ranks_ = "";
  for (const ClientState& rank : peers(attempt)) {
    const auto silence = std::chrono::duration_cast<std::chrono::seconds>(*failed_at_ - rank.last_heard);
    if (rank.left || rank.disconnected || silence < kRankSilent) continue;
    silent_ranks_ += "; rank " + std::to_string(rank.rank) + " (" + rank.location + ") had sent nothing for " +
                     std::to_string(silence.count()) + " s: it was stopped, or got no core";
  }
}

Failure Coordinator::fail(int attempt, const Failure& failure, int status) {
  const auto scope = static_cast<uint32_t>(attempt);
  note_failure(attempt);
  if (!client_) {
    server_->fail(scope, failure);
    return failure;
  }
  client_->give_up_after(kNodeSilent);
  try {
    if (client_->add(numbered("failed", attempt), 1) == 1) {
      client_->set(numbered("status", attempt), std::to_string(status));
    } else {
      // Another launcher counted a failure first. It states the reason; our ranks may have failed because of it.
      const auto until = Clock::now() + kReasonTimeout;
      while (!client_->failure(scope) && Clock::now() < until) std::this_thread::sleep_for(1ms);
      if (const auto first = client_->failure(scope)) return *first;
    }
    client_->fail(scope, failure);
  } catch (const Error& lost) {
    log_warning(std::string("the other nodes can't be told: ") + lost.what());
  }
  return failure;
}

std::optional<LostNode> Coordinator::find_lost(int attempt, const std::vector<bool>& awaited, milliseconds silence) {
  return watch_.find_lost(server_->peers(kLaunchers), peers(attempt), awaited, silence, Clock::now());
}

void Coordinator::check_nodes(int attempt) {
  std::vector<bool> awaited(static_cast<size_t>(options_.num_nodes), true);
  awaited[0] = false;
  const auto lost = find_lost(attempt, awaited, longest_silence_);
  if (lost && !failed_at_) fail(attempt, {Code::kPeerLost, lost->reason}, 1);
}

// A job of one node is told that another node wants to take part in it.
void Coordinator::warn_of_launchers() {
  const std::vector<ClientState> launchers = server_->peers(kLaunchers);
  if (launchers.empty() || has_warned_) return;
  has_warned_ = true;
  log_warning("node " + std::to_string(launchers[0].rank) + " of a job of " + std::to_string(launchers[0].size) +
              " nodes (" + launchers[0].location + ") came to this job, which has one node, and was sent away" +
              "\n  fix: the same --nnodes on every node");
}

std::optional<Failure> Coordinator::failure(int attempt) {
  const auto scope = static_cast<uint32_t>(attempt);
  if (!client_) {
    warn_of_launchers();
    return server_->failure(scope);
  }
  std::optional<Failure> found = client_->reported_failure(scope);
  if (!found) found = client_->reported_failure(kLaunchers);
  if (server_) check_nodes(attempt);  // the next call returns the failure that it finds
  const auto lost = client_->lost();
  if (!found && lost) found = Failure{lost->code, "node 0 is gone: " + lost->reason};
  if (found) note_failure(attempt);
  return found;
}

std::string Coordinator::decide(int attempt, int local_status, const Interrupted& interrupted) {
  const auto scope = static_cast<uint32_t>(attempt);
  std::vector<bool> awaited(static_cast<size_t>(options_.num_nodes), true);
  std::optional<SteadyTime> until;  // once the job has failed
  std::string cause;
  bool is_last = false, has_lost = false;
  while (!server_->failure(kLaunchers)) {
    for (int node = 0; node < options_.num_nodes; ++node) {
      const auto done = server_->value(kLaunchers, numbered("done", attempt, node));
      if (done) awaited[static_cast<size_t>(node)] = false;
      is_last |= done == "last";
    }
    if (std::ranges::none_of(awaited, std::identity())) break;
    if (!until && (local_status != 0 || server_->failure(scope))) until = seconds_from_now(options_.grace_s + 15);
    if (until && Clock::now() >= *until) break;
    if (const auto lost = find_lost(attempt, awaited, until ? kNodeSilent : longest_silence_)) {
      awaited[static_cast<size_t>(lost->node)] = false;
      has_lost = true;
      if (cause.empty() && explains(lost->since, lost->is_silent, failed_at_)) cause = lost->reason;
      fail(attempt, {Code::kPeerLost, lost->reason}, 1);
      continue;
    }
    if (interrupted()) return "";
    std::this_thread::sleep_for(kPollPeriod);
  }
  const auto failure = server_->failure(scope);
  if (cause.empty() && failure)
    cause = silent_ranks_.empty() ? failure->reason : first_line(failure->reason) + silent_ranks_;
  const auto failed = server_->value(kLaunchers, numbered("status", attempt));
  const int first_status = failed ? std::atoi(failed->c_str()) : local_status;
  const int status = has_lost && first_status == 0 ? 1 : first_status;
  return std::string(status != 0 && !is_last ? "restart " : "end ") + std::to_string(status) +
         (cause.empty() ? "" : "\n" + cause);
}

Verdict Coordinator::without_node_0(const Error& error, int local_status, bool may_restart) {
  has_lost_node_0_ = true;
  const auto lost = client_->lost();
  const std::string reason = lost ? "node 0 is gone: " + lost->reason : "node 0 is silent: " + error.message();
  log_warning("the launchers can't agree: " + reason);
  return {may_restart, local_status != 0 ? local_status : 1,
          explains(client_->last_heard(), !lost, failed_at_) ? reason : ""};
}

std::optional<Verdict> Coordinator::finish(int attempt, int local_status, bool may_restart,
                                           const Interrupted& interrupted) {
  if (!client_) return Verdict{local_status != 0 && may_restart, local_status};
  const std::string key = numbered("verdict", attempt);
  client_->give_up_after(local_status != 0 || failed_at_ ? kNodeSilent : longest_silence_);
  try {
    client_->set(numbered("done", attempt, options_.node_rank), may_restart ? "" : "last");
    if (server_) {
      const std::string verdict = decide(attempt, local_status, interrupted);
      if (verdict.empty()) return std::nullopt;
      client_->set(key, verdict);
    }
    std::optional<std::string> verdict;
    while (!(verdict = ask(key, kAskS))) {
      if (interrupted()) return std::nullopt;
    }
    client_->set(numbered("heard", attempt, options_.node_rank), "");
    if (server_) wait_until_heard(attempt);
    if (const auto left = client_->reported_failure(kLaunchers)) return end_of_job(*left);
    return parse_verdict(*verdict);
  } catch (const Error& error) {
    if (const auto left = client_->reported_failure(kLaunchers)) return end_of_job(*left);
    return without_node_0(error, local_status, may_restart);
  }
}

// The store ends with this launcher, so node 0 waits until the other launchers that are here have their answer.
void Coordinator::wait_until_heard(int attempt) const {
  const auto has_heard = [&](const ClientState& launcher) {
    return !NodeWatch::is_here(launcher) || server_->value(kLaunchers, numbered("heard", attempt, launcher.rank));
  };
  const SteadyTime timeout = Clock::now() + kVerdictTimeout;
  while (!std::ranges::all_of(server_->peers(kLaunchers), has_heard) && Clock::now() < timeout)
    std::this_thread::sleep_for(kPollPeriod);
}

void Coordinator::leave(int attempt, const Failure& failure) noexcept {
  if (options_.num_nodes == 1 || !client_) return;
  const auto scope = static_cast<uint32_t>(attempt);
  try {
    if (client_->reported_failure(kLaunchers)) return;  // this node leaves because another one did
    const Failure told{failure.code, this_node() + " has left the job: " + first_line(failure.reason)};
    client_->give_up_after(kTellTime);
    client_->fail(scope, told);
    client_->fail(kLaunchers, told);
    if (!server_) return;
    const auto are_here = [&](const std::vector<ClientState>& launchers) {
      return launchers.size() == static_cast<size_t>(options_.num_nodes);
    };
    server_->wait_peers(kLaunchers, are_here, Clock::now() + kTellTime);
  } catch (const std::exception& lost) {
    log_warning(std::string("the other nodes can't be told that this one leaves: ") + lost.what());
  }
}

std::vector<ClientState> Coordinator::peers(int attempt) const {
  return server_ ? server_->peers(static_cast<uint32_t>(attempt)) : std::vector<ClientState>{};
}

std::vector<Status> Coordinator::statuses(int attempt) const {
  std::vector<Status> result;
  for (const ClientState& peer : peers(attempt)) {
    const auto value = server_->value(static_cast<uint32_t>(attempt), status_key(peer.rank));
    result.push_back(value ? parse_status(peer.rank, *value) : Status{peer.rank, -1, ""});
    result.back().since = peer.status_since;
    result.back().heard = peer.status_heard;
  }
  return result;
}

void tell_other_nodes(const LaunchOptions& options, const std::exception& error) noexcept {
  if (options.rendezvous.empty() || options.token.empty()) return;
  try {
    // What this node says of the nodes may be what is wrong.
    const int num_nodes = std::max(options.num_nodes, 2);
    const bool has_number = options.node_rank >= 0 && options.node_rank < num_nodes;
    const StoreAddress address = parse_address(options.rendezvous);
    const bool is_node_0 = is_own_address(numeric_host(address)) && options.node_rank == 0;
    Failure failure = failure_of(error);
    failure.reason = (options.node_rank == 0 && !is_node_0
                          ? "a node that has --node-rank 0, but not the rendezvous host " + address.host + ","
                          : "node " + std::to_string(options.node_rank)) +
                     " has left the job before its start: " + first_line(failure.reason);
    if (!is_node_0) {
      const int number = has_number && options.node_rank > 0 ? options.node_rank : num_nodes - 1;
      StoreClient(options.rendezvous, options.token, {number, num_nodes, kLaunchers}, Clock::now() + kTellTime)
          .fail(failure);
      return;
    }
    StoreServer server(address, options.token, num_nodes);
    server.fail(kLaunchers, failure);
    const auto have_heard = [&](const std::vector<ClientState>& launchers) {
      return launchers.size() == static_cast<size_t>(num_nodes) - 1;
    };
    server.wait_peers(kLaunchers, have_heard, Clock::now() + kVerdictTimeout);
  } catch (const std::exception& lost) {
    log_warning("the other nodes are not told that this one leaves: " + first_line(lost.what()));
  }
}

}  // namespace herd::launch
