// Defines run.json, which says what ran where, so that a run can be understood and repeated. It holds versions,
// machine, the resolved run file, the algorithms that were chosen, and the topology they were chosen for. Threads: any.
#pragma once

#include <map>
#include <string>

namespace herd::train {

struct RunManifest {
  std::string run;    // id
  std::string job;    // id of the launcher's start that wrote this; empty: unknown
  std::string began;  // checkpoint that the run began with; empty: none
  std::string herd_version;
  std::string torch_version;
  int ranks = 1;
  int threads = 1;                                // torch threads of a rank
  std::string config;                             // the run file, resolved
  std::string choice;                             // what strategy.auto took, and why; empty where nothing was "auto"
  std::map<std::string, std::string> algorithms;  // operation -> algorithm
  std::string topology;                           // topology that the choice saw, in its text format
  std::map<std::string, std::string> machine;     // describe_machine()
};

// Returns host, kernel, processor, cores and memory of this machine, and as start the time of the call, UTC.
std::map<std::string, std::string> describe_machine();

std::string format_run_manifest(const RunManifest& manifest);  // writes JSON, a line for each member. Pure

}  // namespace herd::train
