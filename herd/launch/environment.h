// Reads who this process is within its job from the launcher's environment variables. Nothing else reads them.
//   herd run   HERD_RANK, HERD_SIZE, HERD_LOCAL_RANK, HERD_LOCAL_SIZE, HERD_NODE_RANK, HERD_NUM_NODES,
//              HERD_RENDEZVOUS, HERD_JOB_ID, HERD_TOKEN, HERD_THREADS, HERD_RESTART, HERD_SURVIVE, HERD_LAUNCH,
//              HERD_STARTED, HERD_MEMORY_TABLE
//   torchrun   RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, GROUP_RANK, GROUP_WORLD_SIZE, MASTER_ADDR, MASTER_PORT,
//              TORCHELASTIC_RUN_ID, TORCHELASTIC_RESTART_COUNT (MASTER_PORT may be torchrun's own store: never bound)
//   mpirun     OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK, _LOCAL_SIZE (Open MPI)
//   srun       SLURM_STEP_ID with SLURM_PROCID, SLURM_NTASKS, SLURM_LOCALID, SLURM_NODEID, SLURM_NNODES, ...
//   alone      none of them
// The first one that is set decides, in this order, so a launcher started inside another's allocation wins.
// Every launcher may set HERD_RENDEZVOUS, HERD_TOKEN (or HERD_TOKEN_FILE), HERD_THREADS, HERD_TRANSPORT,
// HERD_TRUSTED_NETWORK. HERD_NETWORK (or UCX_NET_DEVICES) has the network interfaces between hosts, HERD_TUNING a file
// of measured choices, HERD_TOPOLOGY the machines that algorithms are chosen for.
// Threads: plain data; functions from any, while nobody changes the environment.
#pragma once

#include <map>
#include <string>

namespace herd::launch {

struct Environment {
  int rank = 0, size = 1;
  int local_rank = 0, local_size = 1;  // index and number among the ranks of this node
  int node_rank = 0, num_nodes = 1;
  // Holds host:port of the store. Empty: the ranks, all on one host, find each other by job_id
  // (launch/local_meeting.h).
  std::string rendezvous;
  std::string job_id = "alone";  // tells jobs on one host apart; it is not a secret
  std::string token;             // the job's secret; empty where the ranks meet by job_id
  std::string source = "alone";  // "herd run", "torchrun", "mpirun", "srun", "alone"
  // "shm"; "tcp" or "ucx", also within a host; empty: shm within a host, and trusted_network decides between hosts.
  std::string transport;
  // True: only trusted hosts reach the network between hosts. They use UCX then, which neither encrypts nor
  // authenticates; else TLS.
  bool trusted_network = false;
  std::string network;         // interfaces, "eth0,eth1"; empty: the one that reaches the rendezvous
  std::string ucx_transports;  // UCX_TLS; empty: herd chooses
  std::string tuning_file;     // docs/formats/tuning.md; only rank 0's value is used. Empty: the model chooses
  // A file of docs/formats/topology.md, or a preset's name; only rank 0's value is used. Empty: discovered.
  std::string topology;
  int threads = 0;         // compute threads of this rank; 0 = not stated
  int num_restarts = 0;    // restarts of the job before this attempt
  int quorum = 0;          // > 0: the job goes on without ranks that fail while so many others have not
  int64_t started_s = -1;  // start of the launcher, seconds of this host's steady clock; -1 = not known
  std::string launch_id;   // id of this start of the launcher; restarts have the same
  // Path where this rank may leave a text table of its memory; the launcher prints it if the memory limit kills the
  // rank.
  std::string memory_table;
};

using Variables = std::map<std::string, std::string>;

// Pure, but for reading HERD_TOKEN_FILE. Throws kBadConfig with the variables that are missing, malformed or contradict
// each other, and their values.
Environment parse_environment(const Variables& variables);
Environment read_environment();  // returns parse_environment() of this process's variables
// Returns what does not depend on who this process is: HERD_TOKEN to HERD_TOPOLOGY above, and where ranks meet,
// HERD_RENDEZVOUS or else MASTER_ADDR. For ranks that a program numbers itself.
Environment parse_settings(const Variables& variables);
Environment read_settings();    // returns parse_settings() of this process's variables
Variables process_variables();  // returns a copy of this process's variables
// Returns the value of one of this process's variables; "" where it is not set or empty, which means the same.
std::string process_variable(const char* name);
char** inherited_variables();  // returns this process's variables as posix_spawn() passes them on

// Returns the first number of OMP_NUM_THREADS, a list such as "4" or "4,2"; 0 where it is not set or empty. Throws
// kBadConfig for anything else.
int openmp_threads(const Variables& variables);

// Returns "torchrun has started this process as rank 1 of 2 (RANK=1, WORLD_SIZE=2)" where a launcher has started
// several ranks, else "".
std::string launcher_of_several(const Variables& variables);

}  // namespace herd::launch
