#include "herd/launch/environment.h"

#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <optional>
#include <sstream>
#include <vector>

#include "herd/base/error.h"
#include "herd/launch/job_token_file.h"

namespace herd::launch {
namespace {

// Holds a launcher's name, and the variables in which it passes six numbers; "" = it does not set the variable.
struct VariableNames {
  const char *source, *rank, *size, *local_rank, *local_size, *node_rank, *num_nodes;
};
constexpr VariableNames kHerdRun = {"herd run",        "HERD_RANK",      "HERD_SIZE",     "HERD_LOCAL_RANK",
                                    "HERD_LOCAL_SIZE", "HERD_NODE_RANK", "HERD_NUM_NODES"};
constexpr VariableNames kTorchrun = {"torchrun",         "RANK",       "WORLD_SIZE",      "LOCAL_RANK",
                                     "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE"};
constexpr VariableNames kOpenMpi = {"mpirun",
                                    "OMPI_COMM_WORLD_RANK",
                                    "OMPI_COMM_WORLD_SIZE",
                                    "OMPI_COMM_WORLD_LOCAL_RANK",
                                    "OMPI_COMM_WORLD_LOCAL_SIZE",
                                    "",
                                    ""};
constexpr VariableNames kSlurm = {"srun", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID",
                                  "",     "SLURM_NODEID", "SLURM_NNODES"};

// Reads the variables of a process; an empty one counts as absent. Throws kBadConfig where a value is malformed.
class Reader {
 public:
  explicit Reader(const Variables& variables) : variables_(variables) {}

  bool has(const std::string& name) const { return !text(name).empty(); }
  std::string text(const std::string& name, const std::string& absent = "") const {
    const auto found = variables_.find(name);
    return found == variables_.end() || found->second.empty() ? absent : found->second;
  }
  std::optional<int> number(const std::string& name) const {
    const std::string value = text(name);
    if (value.empty()) return std::nullopt;
    int result = 0;
    const auto [end, status] = std::from_chars(value.data(), value.data() + value.size(), result);
    if (status != std::errc() || end != value.data() + value.size() || result < 0) {
      throw Error(Code::kBadConfig, name + "=\"" + value + "\" is no whole number from 0 up");
    }
    return result;
  }
  bool flag(const std::string& name) const {
    const std::string value = text(name);
    if (value.empty() || value == "0") return false;
    if (value == "1") return true;
    throw Error(Code::kBadConfig, name + "=\"" + value + "\" is neither 0 nor 1");
  }
  // Returns a number that has to be set since the variable `because` is set.
  int required(const std::string& name, const std::string& because) const {
    if (const auto value = number(name)) return *value;
    throw Error(Code::kBadConfig, because + "=" + text(because) + " is set, but " + name +
                                      " is not\n  fix: start every rank with herd run, torchrun, mpirun or srun, or "
                                      "unset " +
                                      because);
  }

 private:
  const Variables& variables_;
};

// "2(x3),1" -> {2, 2, 2, 1}: tasks of each node, as Slurm writes them. Empty where it is malformed.
std::vector<int> tasks_per_node(const std::string& text) {
  std::vector<int> tasks;
  const char *at = text.data(), *end = at + text.size();
  while (at < end) {
    int count = 0, times = 1;
    auto [next, status] = std::from_chars(at, end, count);
    if (status != std::errc() || count < 1) return {};
    if (next < end && *next == '(') {
      if (end - next < 4 || next[1] != 'x') return {};
      const auto repeat = std::from_chars(next + 2, end, times);
      if (repeat.ec != std::errc() || repeat.ptr == end || *repeat.ptr != ')') return {};
      if (times < 1 || times > 1'000'000) return {};
      next = repeat.ptr + 1;
    }
    tasks.insert(tasks.end(), static_cast<size_t>(times), count);
    if (next < end && *next++ != ',') return {};
    at = next;
  }
  return tasks;
}

// "n[03-07,9],m1" -> "n03": the first host of a Slurm node list.
std::string first_host(const std::string& list) {
  const size_t open = list.find_first_of("[,");
  if (open == std::string::npos || list[open] == ',') return list.substr(0, open);
  const size_t stop = list.find_first_of("-,]", open);
  return list.substr(0, open) + (stop == std::string::npos ? "" : list.substr(open + 1, stop - open - 1));
}

void check_range(const VariableNames& names, const char* index_name, int index, const char* count_name, int count) {
  if (index < count) return;
  const std::string count_text = *count_name ? count_name : "the ranks of this node";
  throw Error(Code::kBadConfig, std::string(names.source) + ": " + (*index_name ? index_name : "the node's number") +
                                    "=" + std::to_string(index) + " must be below " + count_text + "=" +
                                    std::to_string(count));
}

void read_numbers(const Reader& read, const VariableNames& names, Environment& env) {
  env.source = names.source;
  env.rank = read.required(names.rank, read.has(names.size) ? names.size : names.rank);
  env.size = read.required(names.size, names.rank);
  check_range(names, names.rank, env.rank, names.size, env.size);
  env.local_rank = read.required(names.local_rank, names.rank);
  if (*names.local_size) {
    env.local_size = read.required(names.local_size, names.rank);
  } else {
    const std::string text = read.text("SLURM_STEP_TASKS_PER_NODE", read.text("SLURM_TASKS_PER_NODE"));
    const auto tasks = tasks_per_node(text);
    const auto node = static_cast<size_t>(read.required(names.node_rank, names.rank));
    if (node >= tasks.size()) {
      throw Error(Code::kBadConfig, "SLURM_STEP_TASKS_PER_NODE=\"" + text + "\" does not state the tasks of node " +
                                        std::to_string(node) + " (SLURM_NODEID)");
    }
    env.local_size = tasks[node];
  }
  check_range(names, names.local_rank, env.local_rank, names.local_size, env.local_size);
  if (env.local_size > env.size) {
    throw Error(Code::kBadConfig, std::string(names.source) + ": " + std::to_string(env.local_size) +
                                      " ranks on this node, but " + names.size + "=" + std::to_string(env.size));
  }
  env.num_nodes = read.number(names.num_nodes).value_or((env.size + env.local_size - 1) / env.local_size);
  env.node_rank = read.number(names.node_rank).value_or(env.rank / env.local_size);
  check_range(names, names.node_rank, env.node_rank, names.num_nodes, env.num_nodes);
  if (env.num_nodes == 1 && env.local_size != env.size) {
    throw Error(Code::kBadConfig, std::string(names.source) + ": one node with " + std::to_string(env.local_size) +
                                      " ranks must hold the whole job, but " + names.size + "=" +
                                      std::to_string(env.size));
  }
}

std::string read_token(const Reader& read) {
  const std::string path = read.text("HERD_TOKEN_FILE");
  if (path.empty()) return read.text("HERD_TOKEN");
  return read_token_file(path);
}

// Returns the address where ranks on several hosts meet if HERD_RENDEZVOUS is not set; "" = unknown.
std::string default_rendezvous(const Reader& read, const Environment& env) {
  if (env.source == "torchrun" && read.has("MASTER_ADDR")) {
    // torchrun's own store may listen on MASTER_PORT, so the next port is used.
    return read.text("MASTER_ADDR") + ":" + std::to_string(read.required("MASTER_PORT", "MASTER_ADDR") + 1);
  }
  if (env.source == "srun") {
    const std::string host = first_host(read.text("SLURM_STEP_NODELIST", read.text("SLURM_NODELIST")));
    const int job = read.number("SLURM_JOB_ID").value_or(0);
    if (!host.empty()) return host + ":" + std::to_string(20000 + job % 10000);
  }
  return "";
}

void read_meeting(const Reader& read, Environment& env) {
  env.token = read_token(read);
  env.rendezvous = read.text("HERD_RENDEZVOUS");
  if (env.num_nodes == 1 && (env.token.empty() || env.rendezvous.empty())) {
    env.token = env.rendezvous = "";  // on one host, ranks meet by job_id
    return;
  }
  if (env.rendezvous.empty()) env.rendezvous = default_rendezvous(read, env);
  const size_t colon = env.rendezvous.rfind(':');
  if (colon == std::string::npos || colon == 0 || colon + 1 == env.rendezvous.size()) {
    throw Error(Code::kBadConfig, env.source + " on " + std::to_string(env.num_nodes) +
                                      " nodes needs an address where ranks meet, but HERD_RENDEZVOUS=\"" +
                                      env.rendezvous +
                                      "\"\n  fix: HERD_RENDEZVOUS=HOST:PORT, the host of rank 0 and "
                                      "a free port there, the same for all ranks");
  }
  if (env.token.empty()) {
    throw Error(Code::kBadConfig, env.source + " on " + std::to_string(env.num_nodes) +
                                      " nodes needs the job's secret, but HERD_TOKEN and HERD_TOKEN_FILE are not set\n"
                                      "  fix: export HERD_TOKEN=$(openssl rand -hex 32), the same for all ranks");
  }
}

std::string torchrun_launch(const Reader& read) {
  return "torchrun-" + read.text("TORCHELASTIC_RUN_ID", "none") + "-" + read.text("MASTER_PORT", "0");
}

std::string foreign_job_id(const Reader& read, const std::string& source) {
  if (source == "torchrun") return torchrun_launch(read) + "-" + read.text("TORCHELASTIC_RESTART_COUNT", "0");
  if (source == "mpirun") return "mpirun-" + read.text("PMIX_NAMESPACE", read.text("OMPI_MCA_ess_base_jobid", "0"));
  return "srun-" + read.text("SLURM_JOB_ID", "0") + "-" + read.text("SLURM_STEP_ID", "0");
}

// Returns the names of the launcher that has started this process; null where none has.
const VariableNames* names_of_launcher(const Reader& read) {
  const auto is_set = [&](const VariableNames& names) { return read.has(names.rank) || read.has(names.size); };
  if (is_set(kHerdRun)) return &kHerdRun;
  if (is_set(kTorchrun)) return &kTorchrun;
  if (is_set(kOpenMpi)) return &kOpenMpi;
  return read.has("SLURM_STEP_ID") && read.has(kSlurm.rank) ? &kSlurm : nullptr;
}

Environment settings_of(const Reader& read) {
  Environment env;
  env.threads = read.number("HERD_THREADS").value_or(0);
  env.transport = read.text("HERD_TRANSPORT");
  if (!env.transport.empty() && env.transport != "shm" && env.transport != "tcp" && env.transport != "ucx") {
    throw Error(Code::kBadConfig, "HERD_TRANSPORT=\"" + env.transport + "\" is no transport between processes" +
                                      "\n  fix: shm, tcp, ucx, or nothing: shm within a host and tcp between hosts");
  }
  env.trusted_network = read.flag("HERD_TRUSTED_NETWORK");
  env.network = read.text("HERD_NETWORK", read.text("UCX_NET_DEVICES"));
  env.ucx_transports = read.text("UCX_TLS");
  env.tuning_file = read.text("HERD_TUNING");
  env.topology = read.text("HERD_TOPOLOGY");
  return env;
}

}  // namespace

Environment parse_settings(const Variables& variables) {
  const Reader read(variables);
  Environment env = settings_of(read);
  env.token = read_token(read);
  env.rendezvous = read.text("HERD_RENDEZVOUS");
  if (env.rendezvous.empty() && read.has("MASTER_ADDR"))
    env.rendezvous = read.text("MASTER_ADDR") + ":" + read.text("MASTER_PORT", "0");
  env.source = "store";
  return env;
}

Environment read_settings() { return parse_settings(process_variables()); }

Environment parse_environment(const Variables& variables) {
  const Reader read(variables);
  Environment env = settings_of(read);
  const VariableNames* names = names_of_launcher(read);
  if (names == &kHerdRun) {
    read_numbers(read, kHerdRun, env);
    env.memory_table = read.text("HERD_MEMORY_TABLE");
    env.num_restarts = read.number("HERD_RESTART").value_or(0);
    env.quorum = read.number("HERD_SURVIVE").value_or(0);
    env.launch_id = read.text("HERD_LAUNCH");
    env.started_s = read.number("HERD_STARTED").value_or(-1);
    env.token = read_token(read);
    env.rendezvous = read.text("HERD_RENDEZVOUS");
    env.job_id = read.text("HERD_JOB_ID");
    for (const char* name : {"HERD_RENDEZVOUS", "HERD_JOB_ID"}) {
      if (!read.has(name)) {
        throw Error(Code::kBadConfig, "HERD_RANK=" + std::to_string(env.rank) + " is set, but " + name + " is not");
      }
    }
    if (env.token.empty()) throw Error(Code::kBadConfig, "HERD_RANK is set, but HERD_TOKEN is not");
    return env;
  }
  if (!names) return env;
  read_numbers(read, *names, env);
  env.job_id = foreign_job_id(read, env.source);
  env.launch_id = env.source == "torchrun" ? torchrun_launch(read) : env.job_id;
  if (env.source == "torchrun") env.num_restarts = read.number("TORCHELASTIC_RESTART_COUNT").value_or(0);
  read_meeting(read, env);
  return env;
}

Variables process_variables() {
  Variables variables;
  for (char** entry = environ; entry && *entry; ++entry) {
    const std::string text = *entry;
    const size_t equals = text.find('=');
    if (equals != std::string::npos) variables[text.substr(0, equals)] = text.substr(equals + 1);
  }
  return variables;
}

char** inherited_variables() { return environ; }

std::string process_variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

Environment read_environment() { return parse_environment(process_variables()); }

int openmp_threads(const Variables& variables) {
  const auto trimmed = [](const std::string& text) {
    const size_t begin = text.find_first_not_of(" \t");
    return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(" \t") + 1 - begin);
  };
  const std::string text = trimmed(Reader(variables).text("OMP_NUM_THREADS"));
  if (text.empty()) return 0;
  std::istringstream items(text + ",");
  int first = 0;
  for (std::string item; std::getline(items, item, ',');) {
    item = trimmed(item);
    int threads = 0;
    const auto [end, status] = std::from_chars(item.data(), item.data() + item.size(), threads);
    if (status != std::errc() || end != item.data() + item.size() || threads < 1) {
      throw Error(Code::kBadConfig, "OMP_NUM_THREADS=\"" + text +
                                        "\" is no number of threads, 1 or more\n  fix: OMP_NUM_THREADS=4, or a list "
                                        "for nested regions, 4,2; or unset it: each rank then gets cores / ranks");
    }
    if (first == 0) first = threads;
  }
  return first;
}

std::string launcher_of_several(const Variables& variables) {
  const Reader read(variables);
  const VariableNames* names = names_of_launcher(read);
  if (names == nullptr) return "";
  // A shell of salloc is a step of one task, whatever the allocation has.
  const char* size = names == &kSlurm && read.has("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : names->size;
  if (read.number(size).value_or(1) <= 1) return "";
  return std::string(names->source) + " has started this process as rank " + read.text(names->rank, "?") + " of " +
         read.text(size) + " (" + names->rank + "=" + read.text(names->rank) + ", " + size + "=" + read.text(size) +
         ")";
}

}  // namespace herd::launch
