#include "herd/launch/launcher.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <utility>

#include "herd/base/descriptor.h"
#include "herd/base/error.h"
#include "herd/base/log.h"
#include "herd/base/scratch_folder.h"
#include "herd/base/units.h"
#include "herd/launch/address_internal.h"
#include "herd/launch/blocked_signals.h"
#include "herd/launch/capacity.h"
#include "herd/launch/console.h"
#include "herd/launch/control_group.h"
#include "herd/launch/coordinator_internal.h"
#include "herd/launch/cores.h"
#include "herd/launch/guardian.h"
#include "herd/launch/keys.h"
#include "herd/launch/output.h"
#include "herd/launch/rank_log.h"
#include "herd/launch/rank_process.h"
#include "herd/launch/stop_request.h"
#include "herd/net/address.h"

namespace herd::launch {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
constexpr auto kSelfExitTime = 1s;                 // ranks have so long after a failure to end by themselves
constexpr auto kAbortGrace = 5s;                   // time from SIGTERM to SIGKILL
constexpr int64_t kMaxRanks = 1'000'000;           // ranks of a job at most, as in a topology
constexpr int kRefusedStatus = 2;                  // exit status for a request that can't be met
constexpr auto kFirstPause = 1s, kMaxPause = 60s;  // pauses before restarts; each is twice the one before

// Holds the folder of log files and memory tables: the user's, or a temporary one that ends with the job.
class JobFolder {
 public:
  explicit JobFolder(const std::string& log_dir) : path_(log_dir), logs_(!log_dir.empty()) {
    if (logs_) {
      std::error_code failed;
      std::filesystem::create_directories(path_, failed);
      if (failed) throw_errno(Code::kBadConfig, "make the folder of logs " + path_, failed.value());
      return;
    }
    path_ = make_scratch_folder("herd-run");
  }
  ~JobFolder() {
    std::error_code ignored;
    if (!logs_) std::filesystem::remove_all(path_, ignored);
  }
  JobFolder(const JobFolder&) = delete;
  JobFolder& operator=(const JobFolder&) = delete;
  std::string memory_table(int rank) const { return path_ + "/rank" + std::to_string(rank) + ".memory.txt"; }
  std::string log_path(int rank, int attempt) const {
    return path_ + "/rank" + std::to_string(rank) + (attempt ? ".restart" + std::to_string(attempt) : "") + ".log";
  }
  // Returns a descriptor that appends to the rank's log, or -1 without --log-dir.
  int open_log(int rank, int attempt) const {
    if (!logs_) return -1;
    const std::string file = log_path(rank, attempt);
    // What is in the folder may be somebody else's: a link there leads nowhere, and nothing else is waited for.
    Descriptor log(open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644));
    if (log.fd < 0) throw_errno(Code::kStorage, "write " + file, errno);
    struct stat info {};
    if (fstat(log.fd, &info) != 0 || !S_ISREG(info.st_mode) || info.st_nlink > 1) {
      throw Error(Code::kStorage, "the log " + file + " has to be a file with this name alone, but it is " +
                                      (S_ISREG(info.st_mode) ? "one with several names (hard links)" : "no file") +
                                      "\n  fix: move it away, or take another folder for logs");
    }
    return std::exchange(log.fd, -1);
  }
  bool logs() const { return logs_; }

 private:
  std::string path_;
  bool logs_;
};

// Starts the ranks of this node, watches them, restarts them after a failure, and reports how the job ended.
class Job {
 public:
  explicit Job(const LaunchOptions& options)
      : options_(options),
        world_(ranks_of_job(options.ranks_per_node, options.num_nodes)),
        folder_(options.log_dir),
        console_(options.log_dir),
        token_(options.token.empty() ? make_token() : options.token),
        launch_(make_token().substr(0, 16)),
        coordinator_(options, token_) {}
  int run();
  // Waits until all lines are printed. Returns `status`, or 1 in place of 0 where some can't be; it says so.
  int finish_output(int status);

 private:
  struct LocalRank {
    RankProcess process;
    std::unique_ptr<RankLog> log;
    std::vector<OutputStream> streams;
  };
  int run_attempts();
  int attempt(int attempt_number);
  void start_ranks(int attempt_number);
  Variables variables(int local_rank, int attempt_number) const;
  void wait_and_pump();
  void reap_ranks(int attempt_number);
  bool goes_on_without(const RankProcess& process) const;
  void on_rank_failure(const RankProcess& process, int attempt_number);
  void on_signal(int signal);
  bool interrupted(std::chrono::milliseconds within = 0ms);  // takes a stop signal while no rank runs
  bool may_restart(int num_restarts) const;
  void enforce_deadlines();
  void print_report(int attempt_number) const;
  std::string how_it_stopped() const;
  bool any_running() const;
  // Says whether to read a stream. A rank that has to stop does not wait for the reader of its output.
  bool pumps(const OutputStream& stream) const { return stop_signal_ || !cause_.empty() || stream.can_write(); }
  void say(const std::string& text) const { console_.write(STDERR_FILENO, "herd run: " + text + "\n"); }

  LaunchOptions options_;
  int world_;
  BlockedSignals signals_;
  Guardian guardian_;  // forks, so it comes before the members that start threads
  JobFolder folder_;
  mutable Console console_;  // starts threads
  std::string token_;
  const int64_t started_s_ = std::chrono::duration_cast<std::chrono::seconds>(Clock::now().time_since_epoch()).count();
  const std::string launch_;  // id of this launch; not a secret
  Coordinator coordinator_;

  std::vector<LocalRank> ranks_;
  int attempt_number_ = 0;  // of the present attempt, the same on all nodes
  int status_ = 0;
  std::string cause_, memory_note_;
  std::vector<Status> statuses_;  // as they were at the moment of the failure
  std::vector<ClientState> peers_;
  std::optional<int64_t> oom_before_;
  Clock::time_point failed_at_;
  int stop_signal_ = 0;
  bool logs_are_behind_ = false;  // so it was said
  int log_failure_ = 0;           // why a rank's log lacks lines, an errno
  StopRequest stop_;
  std::optional<Clock::time_point> terminate_at_, kill_at_;
};

bool Job::any_running() const {
  return std::any_of(ranks_.begin(), ranks_.end(), [](const LocalRank& rank) { return rank.process.running(); });
}

Variables Job::variables(int local_rank, int attempt_number) const {
  Variables result = process_variables();
  result.erase("HERD_TOKEN_FILE");
  const int rank = options_.node_rank * options_.ranks_per_node + local_rank;
  const std::pair<const char*, int> numbers[] = {{"HERD_RANK", rank},
                                                 {"HERD_SIZE", world_},
                                                 {"HERD_LOCAL_RANK", local_rank},
                                                 {"HERD_LOCAL_SIZE", options_.ranks_per_node},
                                                 {"HERD_NODE_RANK", options_.node_rank},
                                                 {"HERD_NUM_NODES", options_.num_nodes},
                                                 {"HERD_RESTART", attempt_number},
                                                 {"HERD_SURVIVE", options_.quorum}};
  for (const auto& [name, value] : numbers) result[name] = std::to_string(value);
  result["HERD_RENDEZVOUS"] = coordinator_.rendezvous();
  result["HERD_JOB_ID"] = "herd-" + coordinator_.rendezvous();
  result["HERD_TOKEN"] = token_;
  result["HERD_LAUNCH"] = launch_;
  result["HERD_STARTED"] = std::to_string(started_s_);
  result["HERD_MEMORY_TABLE"] = folder_.memory_table(rank);
  if (!options_.topology.empty()) result["HERD_TOPOLOGY"] = options_.topology;
  const bool is_told = options_.threads_per_rank > 0;
  const int given = is_told ? options_.threads_per_rank : openmp_threads(result);
  const std::string threads = std::to_string(given > 0 ? given : std::max(1, usable_cores() / options_.ranks_per_node));
  if (is_told || given == 0) result["OMP_NUM_THREADS"] = threads;
  if (is_told || result["HERD_THREADS"].empty()) result["HERD_THREADS"] = threads;
  return result;
}

void Job::start_ranks(int attempt_number) {
  for (int local_rank = 0; local_rank < options_.ranks_per_node; ++local_rank) {
    on_signal(signals_.next());
    if (stop_signal_) {
      status_ = 128 + stop_signal_;
      return;
    }
    const int rank = options_.node_rank * options_.ranks_per_node + local_rank;
    const std::string prefix = world_ > 1 ? "[" + std::to_string(rank) + "] " : "";
    std::error_code ignored;
    std::filesystem::remove(folder_.memory_table(rank), ignored);
    LocalRank local;
    local.log = std::make_unique<RankLog>(folder_.open_log(rank, attempt_number));
    local.process = start_rank(rank, options_.command, variables(local_rank, attempt_number), guardian_.group());
    local.streams.emplace_back(local.process.output, console_, STDOUT_FILENO, prefix, *local.log);
    local.streams.emplace_back(local.process.errors, console_, STDERR_FILENO, prefix, *local.log);
    ranks_.push_back(std::move(local));
  }
}

void Job::wait_and_pump() {
  std::vector<pollfd> items = {{signals_.fd(), POLLIN, 0}};
  for (const LocalRank& rank : ranks_) {
    for (const OutputStream& stream : rank.streams) {
      if (stream.fd() >= 0 && pumps(stream)) items.push_back({stream.fd(), POLLIN, 0});
    }
  }
  poll(items.data(), items.size(), 50);
  for (LocalRank& rank : ranks_) {
    for (OutputStream& stream : rank.streams) {
      if (pumps(stream)) stream.copy_available();
    }
    if (const int failure = rank.log->failure(); failure != 0 && !std::exchange(logs_are_behind_, true)) {
      say("the log " + folder_.log_path(rank.process.rank, attempt_number_) +
          " can't be written: " + std::strerror(failure) + "; the job goes on, and what is printed is tried again");
    }
  }
}

// Tells whether enough ranks are left when this one has failed, and says so.
bool Job::goes_on_without(const RankProcess& process) const {
  if (options_.quorum == 0 || !cause_.empty() || stop_signal_) return false;
  if (exit_status(*process.wait_status) == kRefusedStatus) return false;  // of all ranks
  if (std::count(options_.servers.begin(), options_.servers.end(), process.rank) > 0) return false;
  const auto left = static_cast<int>(
      std::count_if(ranks_.begin(), ranks_.end(), [](const LocalRank& rank) { return !rank.process.failed(); }));
  const std::string what = "rank " + std::to_string(process.rank) + " (process " + std::to_string(process.pid) + ") " +
                           describe_end(*process.wait_status);
  const bool enough = left >= options_.quorum;
  say(what + (enough ? "; the job goes on, ranks left: " : "; too few for --survive, ranks left: ") +
      std::to_string(left));
  return enough;
}

void Job::on_rank_failure(const RankProcess& process, int attempt_number) {
  const int status = exit_status(*process.wait_status);
  if (!cause_.empty() || stop_signal_) {  // only the first failure is reported, and none after a signal
    if (stop_signal_ && cause_.empty() && status_ == 0 && options_.num_nodes > 1) {
      const std::string node = "node " + std::to_string(options_.node_rank);
      coordinator_.fail(attempt_number, {Code::kAborted, node + " was " + how_it_stopped()}, status);
    }
    // Of ranks that end together, the one with a wrong configuration (2) made the others fail (1).
    if ((stop_signal_ && status_ == 0) || (status_ == 1 && status == 2)) status_ = status;
    return;
  }
  status_ = status;
  cause_ = "rank " + std::to_string(process.rank) + " (process " + std::to_string(process.pid) + ") " +
           describe_end(*process.wait_status);
  const auto oom = oom_kill_count();
  if (status_ == 128 + SIGKILL && oom && oom_before_ && *oom > *oom_before_) {
    const auto limit = memory_limit_bytes();
    memory_note_ = "the memory limit of the control group" +
                   (limit ? " (" + format_bytes(static_cast<double>(*limit)) + ")" : std::string()) + " killed " +
                   std::to_string(*oom - *oom_before_) + " process(es) of it meanwhile: out of memory\n" +
                   "  fix: fewer ranks, a smaller micro-batch, sharding or offload; `herd plan` says what fits";
    cause_ += "; " + memory_note_;
    std::ifstream table(folder_.memory_table(process.rank));
    for (std::string line; std::getline(table, line);) memory_note_ += "\n  " + line;
  }
  failed_at_ = Clock::now();
  statuses_ = coordinator_.statuses(attempt_number);
  peers_ = coordinator_.peers(attempt_number);
  cause_ = coordinator_.fail(attempt_number, {Code::kPeerLost, cause_}, status_).reason;
  terminate_at_ = failed_at_ + kSelfExitTime;
  kill_at_ = failed_at_ + kSelfExitTime + kAbortGrace;
}

void Job::reap_ranks(int attempt_number) {
  for (LocalRank& rank : ranks_) {
    if (!reap(rank.process)) continue;
    for (OutputStream& stream : rank.streams) stream.copy_available();
    if (rank.process.failed() && !goes_on_without(rank.process)) on_rank_failure(rank.process, attempt_number);
  }
  const auto failure = coordinator_.failure(attempt_number);  // another node's failure, or the loss of the store
  if (!failure || !cause_.empty() || stop_signal_) return;
  cause_ = failure->reason;
  status_ = 1;
  failed_at_ = Clock::now();
  terminate_at_ = failed_at_ + kSelfExitTime;
  kill_at_ = failed_at_ + kSelfExitTime + kAbortGrace;
}

void Job::on_signal(int signal) {
  if (signal == 0) return;
  switch (stop_.add(Clock::now())) {
    case StopKind::kRepeated:
      return;
    case StopKind::kKill:
      say("asked again: killing the ranks");
      kill_at_ = Clock::now();
      return;
    case StopKind::kSave:
      break;
  }
  stop_signal_ = signal;
  char grace[32];
  std::snprintf(grace, sizeof grace, "%.0f s", options_.grace_s);
  say(signal_name(signal) + ": passed on; ranks have " + grace + " to save");
  guardian_.signal_group(signal);
  guardian_.signal_group(SIGCONT);
  kill_at_ = Clock::now() + std::chrono::milliseconds(static_cast<int64_t>(options_.grace_s * 1000));
}

bool Job::interrupted(std::chrono::milliseconds within) {
  const int signal = signals_.next_within(within);
  if (signal == 0 || stop_.add(Clock::now()) == StopKind::kRepeated) return false;
  stop_signal_ = signal;
  say(signal_name(signal) + ": stopped, while no rank ran");
  return true;
}

void Job::enforce_deadlines() {
  const auto now = Clock::now();
  if (terminate_at_ && now >= *terminate_at_) {
    guardian_.signal_group(SIGTERM);
    guardian_.signal_group(SIGCONT);
    terminate_at_.reset();
  }
  if (kill_at_ && now >= *kill_at_) {
    guardian_.kill_members();
    kill_at_ = now + 1s;
  }
}

void Job::print_report(int attempt_number) const {
  constexpr size_t kShown = 32;
  std::string text;
  for (size_t i = 0; i < std::min(statuses_.size(), kShown); ++i) {
    char line[160];
    const double age_s = std::chrono::duration<double>(failed_at_ - peers_[i].last_heard).count();
    std::snprintf(line, sizeof line, "  rank %-5d heard %6.1f s before  in ", statuses_[i].rank, std::max(0.0, age_s));
    text += line + (statuses_[i].text.empty() ? "(nothing published)" : "\"" + statuses_[i].text + "\"") + "\n";
  }
  if (!text.empty()) console_.write(STDERR_FILENO, "herd run: when it failed, each rank was last\n" + text);
  if (!memory_note_.empty()) say(memory_note_);
  if (folder_.logs())
    say("logs: " + folder_.log_path(options_.node_rank * options_.ranks_per_node, attempt_number) + " ...");
  if (const std::string line = first_divergence(statuses_, failed_at_); !line.empty()) say(line);
}

std::string Job::how_it_stopped() const {
  const std::string stopped = "stopped by " + signal_name(stop_signal_) + ": ";
  for (const LocalRank& rank : ranks_) {
    if (rank.process.failed())
      return stopped + "rank " + std::to_string(rank.process.rank) + " " + describe_end(*rank.process.wait_status);
  }
  return stopped + (ranks_.empty() ? "no rank had started" : "every rank ended with status 0");
}

int Job::attempt(int attempt_number) {
  status_ = 0;
  cause_ = memory_note_ = "";
  statuses_.clear();
  terminate_at_.reset();
  kill_at_.reset();
  oom_before_ = oom_kill_count();
  start_ranks(attempt_number);
  while (any_running()) {
    wait_and_pump();
    on_signal(signals_.next());
    reap_ranks(attempt_number);
    if (const auto replaced = guardian_.replace_if_dead()) say(*replaced);
    enforce_deadlines();
  }
  guardian_.kill_members();
  if (stop_signal_) say(how_it_stopped());
  for (LocalRank& rank : ranks_) {
    for (OutputStream& stream : rank.streams) stream.finish();
    if (const int failure = rank.log->finish(); failure != 0) log_failure_ = failure;
  }
  ranks_.clear();
  if (!cause_.empty()) print_report(attempt_number);
  return status_;
}

bool Job::may_restart(int num_restarts) const { return num_restarts < options_.max_restarts && !stop_signal_; }

int Job::finish_output(int status) {
  const int failure = console_.finish_output();
  if (log_failure_ != 0)
    say("lines are missing in the logs beside " + folder_.log_path(options_.node_rank * options_.ranks_per_node, 0) +
        ", which can't be written: " + std::strerror(log_failure_));
  if (failure == 0) return status == 0 && log_failure_ != 0 ? 1 : status;
  say("lines of the ranks are lost: the standard output can't be written: " + std::string(std::strerror(failure)) +
      (folder_.logs() && log_failure_ == 0
           ? "; the logs beside " + folder_.log_path(options_.node_rank * options_.ranks_per_node, 0) + " have them"
           : ""));
  return status == 0 ? 1 : status;
}

int Job::run() {
  try {
    return run_attempts();
  } catch (const std::exception& error) {
    guardian_.kill_members();
    const auto* known = dynamic_cast<const Error*>(&error);
    coordinator_.leave(attempt_number_, {known != nullptr ? known->code() : Code::kStorage, error.what()});
    throw;
  }
}

int Job::run_attempts() {
  const int cores = usable_cores();
  if (options_.ranks_per_node > cores) {
    say(std::to_string(options_.ranks_per_node) + " ranks share " + std::to_string(cores) +
        (cores == 1 ? " core" : " cores") + " of this machine: they will take turns");
  }
  const auto asks_to_stop = [this] { return interrupted(); };
  const auto stop = [this] {
    coordinator_.leave(attempt_number_, {Code::kAborted, "stopped by " + signal_name(stop_signal_)});
    return 128 + stop_signal_;
  };
  for (int num_restarts = 0;; ++num_restarts) {
    if (interrupted()) return stop();
    const std::optional<int> number = coordinator_.start(num_restarts, asks_to_stop);
    if (!number) return stop();
    attempt_number_ = *number;
    const int status = attempt(attempt_number_);
    const auto verdict = coordinator_.finish(attempt_number_, status,
                                             status != kRefusedStatus && may_restart(num_restarts), asks_to_stop);
    if (!verdict) return stop();
    if (!verdict->cause.empty()) cause_ = verdict->cause;
    if (!cause_.empty()) say("the job failed: " + cause_);
    if (!verdict->restart) {
      if (verdict->status == kRefusedStatus && may_restart(num_restarts))
        say("not started again: status 2 says that the request can't be met, so it would end the same way");
      return verdict->status;
    }
    const auto pause = std::min(kFirstPause * (1 << std::min(num_restarts, 10)), kMaxPause);
    say("starting again (" + std::to_string(num_restarts + 1) + " of at most " + std::to_string(options_.max_restarts) +
        ") in " + std::to_string(pause.count()) + " s");
    if (interrupted(pause)) return stop();
  }
}

// A name that means the loopback here, as Debian's /etc/hosts has it for the machine's own name, joins no nodes. One
// who writes a loopback address means it.
void check_reachable(const StoreAddress& address) {
  const std::string host = numeric_host(address);
  if (!is_loopback(host)) return;
  if (host == address.host || address.host == "localhost") {
    log_warning("the rendezvous host " + address.host + " is the loopback: only nodes on this machine meet there");
    return;
  }
  throw Error(Code::kBadConfig, "the rendezvous host \"" + address.host + "\" is " + host +
                                    " on this machine: the loopback, where no other node can reach it" +
                                    "\n  fix: --rendezvous ADDRESS:PORT with the address of node 0 that the others "
                                    "reach, or no line of /etc/hosts that gives " +
                                    address.host + " a loopback address");
}

// Refuses a launcher of one node that another launcher has started several times: each would run a job of its own.
void check_launches_once(const LaunchOptions& options) {
  const std::string outer = launcher_of_several(process_variables());
  if (outer.empty()) return;
  std::string program;
  for (const std::string& word : options.command) program += " " + word;
  throw Error(Code::kBadConfig,
              "herd starts the ranks of a job itself, but " + outer +
                  ", and each of these processes would start a job of its own\n  fix: start it once, on several nodes "
                  "with --nnodes, --node-rank and --rendezvous; or let the other launcher start the ranks:" +
                  program +
                  "; or take its variables away with env -u, for jobs that are to know nothing of each other");
}

void check_quorum(const LaunchOptions& options) {
  if (options.quorum == 0) return;
  const auto refuse = [&](const std::string& rule) {
    throw Error(Code::kBadConfig, "--survive " + std::to_string(options.quorum) + " " + rule);
  };
  const std::string ranks = std::to_string(options.ranks_per_node);
  if (options.num_nodes > 1)
    refuse("counts the ranks of one node, but --nnodes is " + std::to_string(options.num_nodes) +
           "\n  fix: leave --survive out; --max-restarts starts a job of several nodes again");
  if (options.quorum < 1 || options.quorum > options.ranks_per_node)
    refuse("must be from 1 to the " + ranks + " ranks of -n");
  for (const int server : options.servers) {
    if (server < 0 || server >= options.ranks_per_node)
      refuse("with --servers " + std::to_string(server) + ", but ranks are from 0 to below -n " + ranks);
  }
}

void check(const LaunchOptions& options) {
  const auto refuse = [](const std::string& rule) { throw Error(Code::kBadConfig, rule); };
  if (options.command.empty()) refuse("no program to start\n  fix: herd run -n N -- PROGRAM ARGS...");
  if (options.ranks_per_node < 1)
    refuse("-n " + std::to_string(options.ranks_per_node) + ": at least one rank is needed");
  const Capacity capacity = options.max_ranks_per_node > 0 ? Capacity{options.max_ranks_per_node, "--most-ranks"}
                                                           : capacity_of_this_node(std::max(1, options.num_nodes));
  if (options.ranks_per_node > capacity.ranks) {
    refuse("-n " + std::to_string(options.ranks_per_node) + ": this node has room for " +
           std::to_string(capacity.ranks) + (capacity.ranks == 1 ? " rank (" : " ranks (") + capacity.reason +
           ")\n  fix: fewer ranks, more nodes, or --most-ranks " + std::to_string(options.ranks_per_node) +
           " where you know better");
  }
  if (options.num_nodes < 1) refuse("--nnodes " + std::to_string(options.num_nodes) + ": at least one node is needed");
  if (options.threads_per_rank == 0) openmp_threads(process_variables());  // throws where it is malformed
  check_quorum(options);
  if (options.max_restarts < 0) refuse("--max-restarts " + std::to_string(options.max_restarts) + " is negative");
  if (options.node_rank < 0 || options.node_rank >= options.num_nodes) {
    refuse("--node-rank " + std::to_string(options.node_rank) + " must be from 0 to below --nnodes " +
           std::to_string(options.num_nodes));
  }
  if (options.num_nodes == 1) {
    net::require_loopback();
    return check_launches_once(options);
  }
  if (options.rendezvous.empty()) {
    refuse(
        "several nodes need an address where they meet\n  fix: --rendezvous HOST:PORT, HOST being node 0's address and "
        "PORT free there, the same on every node");
  }
  const StoreAddress address = parse_address(options.rendezvous);
  if (address.port == 0) refuse("--rendezvous " + options.rendezvous + " needs a port");
  if (options.token.empty()) {
    refuse(
        "several nodes need the job's secret\n  fix: (umask 077; openssl rand -hex 32 > FILE), copy FILE to every "
        "node, "
        "and pass --token-file FILE (or set HERD_TOKEN)");
  }
  check_reachable(address);
}

}  // namespace

int ranks_of_job(int ranks_per_node, int num_nodes) {
  const int64_t ranks = int64_t{ranks_per_node} * num_nodes;
  if (ranks <= kMaxRanks) return static_cast<int>(ranks);
  throw Error(Code::kBadConfig, "a job has at most " + std::to_string(kMaxRanks) + " ranks, but " +
                                    std::to_string(ranks_per_node) + " ranks a node * " + std::to_string(num_nodes) +
                                    " nodes = " + std::to_string(ranks) + "\n  fix: fewer ranks or nodes");
}

int launch_job(const LaunchOptions& options) {
  std::optional<Job> job;
  try {
    check(options);
    job.emplace(options);
  } catch (const std::exception& error) {
    tell_other_nodes(options, error);
    throw;
  }
  return job->finish_output(job->run());
}

}  // namespace herd::launch
