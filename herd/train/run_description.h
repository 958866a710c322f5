// Defines run.json, which says what ran where, so that a run can be understood and repeated. It holds versions,
// machine, the resolved run file, the algorithms that were chosen, and the topology they were chosen for. Threads: any.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace herd::train {

struct RunDescription {
  std::string run_id;
  std::string launch_id;           // id of the job's start by its launcher, whose ranks wrote this; empty: unknown
  std::string initial_checkpoint;  // checkpoint that the run began with; empty: none
  int64_t ended_at = 0;            // steps done when this start had written all of its files; 0 = it has not
  std::string herd_version;
  std::string torch_version;
  int ranks = 1;
  int threads = 1;                                // torch threads of a rank
  std::string config;                             // the run file, resolved
  std::string automatic_strategy;                 // what strategy.auto took, and why; empty where nothing was "auto"
  std::map<std::string, std::string> algorithms;  // operation -> algorithm
  std::string topology;                           // topology that algorithms were chosen for, in its text format
  std::map<std::string, std::string> machine;     // describe_machine()
};

// Returns host, kernel, processor, cores and memory of this machine, and the time of the call, UTC, under "start".
std::map<std::string, std::string> describe_machine();

std::string format_run_description(const RunDescription& run);  // writes JSON, a line for each member. Pure

}  // namespace herd::train
