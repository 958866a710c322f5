#include <algorithm>
#include <thread>

#include "herd/base/log.h"
#include "herd/launch/coordinator_internal.h"

namespace herd::launch {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
constexpr auto kNodeSilent = 5s;      // a node is lost when its launcher and ranks are silent for so long
constexpr auto kVerdictTimeout = 2s;  // how long node 0 waits until the other launchers have the verdict
constexpr double kTryS = 2;           // seconds that one try to reach node 0 takes at most
constexpr auto kReasonTimeout = 1s;   // how long we wait for the reason of the launcher that failed first

SteadyTime seconds_from_now(double seconds) {
  return Clock::now() + std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

std::string numbered(const char* name, int attempt) { return std::string(name) + "/" + std::to_string(attempt); }

}  // namespace

Coordinator::Coordinator(const LaunchOptions& options, const std::string& token) : options_(options), token_(token) {
  if (options.node_rank == 0) {
    const StoreAddress address =
        options.num_nodes == 1 && options.rendezvous.empty() ? StoreAddress{} : parse_address(options.rendezvous);
    const int launchers = options.num_nodes == 1 ? 0 : options.num_nodes;
    server_ = std::make_unique<StoreServer>(address, token, launchers + options.num_nodes * options.ranks_per_node);
    rendezvous_ = server_->rendezvous();
  } else {
    rendezvous_ = options.rendezvous;
    log_info("node " + std::to_string(options.node_rank) + " waits for node 0 at " + rendezvous_);
  }
}

// Connects in tries of at most kTryS, so that a signal interrupts it.
bool Coordinator::connect(const std::function<bool()>& interrupted) {
  const std::string node = "node " + std::to_string(options_.node_rank);
  const auto timeout_error = [&](const std::string& what) {
    return Error(Code::kTimeout, node + " waited " + std::to_string(static_cast<int>(options_.rendezvous_timeout_s)) +
                                     " s for node 0: " + what);
  };
  const SteadyTime deadline = seconds_from_now(options_.rendezvous_timeout_s);
  while (!client_) {
    if (interrupted()) return false;
    try {
      client_ = std::make_unique<StoreClient>(rendezvous_, token_,
                                              ClientIdentity{options_.node_rank, options_.num_nodes, kLaunchers},
                                              std::min(deadline, seconds_from_now(kTryS)));
    } catch (const Error& error) {
      if (error.code() != Code::kTimeout) throw;
      if (Clock::now() >= deadline) throw timeout_error(error.message());
    }
  }
  const std::string own_ranks_per_node = std::to_string(options_.ranks_per_node);
  if (options_.node_rank == 0) client_->set("ranks per node", own_ranks_per_node);
  std::optional<std::string> node0_ranks;
  while (!(node0_ranks = ask("ranks per node", kTryS))) {
    if (interrupted()) return false;
    if (Clock::now() >= deadline) throw timeout_error("it did not say how many ranks a node has");
  }
  if (*node0_ranks != own_ranks_per_node) {
    throw Error(Code::kBadConfig, node + " starts " + own_ranks_per_node + " ranks, but node 0 starts " + *node0_ranks +
                                      "\n  fix: the same -n on every node");
  }
  return true;
}

std::optional<std::string> Coordinator::ask(const std::string& key, double patience_s) {
  try {
    return client_->get(key, seconds_from_now(patience_s));
  } catch (const Error& error) {
    if (error.code() == Code::kTimeout) return std::nullopt;
    throw;
  }
}

bool Coordinator::start(int attempt, const std::function<bool()>& interrupted) {
  if (options_.num_nodes == 1) return true;
  if (!client_ && !connect(interrupted)) return false;
  if (client_->add(numbered("ready", attempt), 1) == options_.num_nodes) client_->set(numbered("go", attempt), "");
  const SteadyTime deadline = seconds_from_now(options_.rendezvous_timeout_s);
  while (!ask(numbered("go", attempt), 0.3)) {
    if (interrupted()) return false;
    if (Clock::now() < deadline) continue;
    const auto ready = ask(numbered("ready", attempt), 0);
    throw Error(Code::kTimeout, "only " + ready.value_or("0") + " of " + std::to_string(options_.num_nodes) +
                                    " nodes are ready after " +
                                    std::to_string(static_cast<int>(options_.rendezvous_timeout_s)) +
                                    " s\n  fix: start herd run on every node, each with its own --node-rank");
  }
  return true;
}

Failure Coordinator::fail(int attempt, const Failure& failure, int status) {
  const auto scope = static_cast<uint32_t>(attempt);
  if (!client_) {
    server_->fail(scope, failure);
    return failure;
  }
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

void Coordinator::check_nodes(int attempt) {
  const auto now = Clock::now();
  for (const ClientState& launcher : server_->peers(kLaunchers)) {
    if (launcher.left || now - launcher.last_heard < kNodeSilent) continue;
    const auto alive = [&](const ClientState& rank) {
      return rank.rank / options_.ranks_per_node == launcher.rank && now - rank.last_heard < kNodeSilent;
    };
    const auto ranks = peers(attempt);
    if (std::any_of(ranks.begin(), ranks.end(), alive)) continue;  // a stopped launcher is not a lost node
    fail(attempt,
         {Code::kPeerLost, "node " + std::to_string(launcher.rank) + " is silent, launcher (" + launcher.location +
                               ") and ranks, for 5 s: it, or its launcher, is gone"},
         1);
  }
}

std::optional<Failure> Coordinator::failure(int attempt) {
  const auto scope = static_cast<uint32_t>(attempt);
  if (!client_) return server_->failure(scope);
  if (server_) check_nodes(attempt);
  return client_->failure(scope);
}

Verdict Coordinator::finish(int attempt, int local_status, bool may_restart) {
  if (!client_) return {local_status != 0 && may_restart, local_status};
  const std::string key = numbered("verdict", attempt);
  try {
    if (!may_restart) client_->set(numbered("last", attempt), "");
    client_->add(numbered("done", attempt), 1);
    const SteadyTime deadline = seconds_from_now(options_.grace_s + 15);
    if (server_) {
      while (server_->value(kLaunchers, numbered("done", attempt)) != std::to_string(options_.num_nodes) &&
             Clock::now() < deadline) {
        check_nodes(attempt);
        if (client_->failure(static_cast<uint32_t>(attempt)) &&
            server_->failure(static_cast<uint32_t>(attempt))->reason.starts_with("node "))
          break;
        std::this_thread::sleep_for(10ms);
      }
      const auto failed = server_->value(kLaunchers, numbered("status", attempt));
      const bool last = server_->value(kLaunchers, numbered("last", attempt)).has_value();
      const int status = failed ? std::atoi(failed->c_str()) : local_status;
      client_->set(key, std::string(status != 0 && !last ? "restart " : "end ") + std::to_string(status));
    }
    const std::string verdict = client_->get(key, deadline + 5s);
    client_->add(numbered("heard", attempt), 1);
    // The store ends with this launcher, so node 0 waits until the other launchers have their answer.
    const SteadyTime timeout = Clock::now() + kVerdictTimeout;
    while (server_ && server_->value(kLaunchers, numbered("heard", attempt)) != std::to_string(options_.num_nodes) &&
           Clock::now() < timeout) {
      std::this_thread::sleep_for(10ms);
    }
    return {verdict.starts_with("restart"), std::atoi(verdict.c_str() + verdict.find(' '))};
  } catch (const Error& lost) {
    log_warning(std::string("the launchers can't agree: ") + lost.what());
    return {false, local_status != 0 ? local_status : 1};
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

}  // namespace herd::launch
