// Tells the other nodes of a job that this one's command line is refused, so that they do not wait for it.
// Threads: any.
#pragma once

#include <string>
#include <vector>

#include "herd/launch/launcher.h"

namespace herd::cli {

// Returns the nodes, the rendezvous and the file of the token that the arguments name, as far as they can be read: any
// of them may be misspelt. Words after "--" are a program's own.
struct NamedNodes {
  launch::LaunchOptions job;
  std::string token_file;
};
NamedNodes nodes_in(const std::vector<std::string>& arguments);

// Tells the launchers that wait by now why this node leaves (launch::tell_other_nodes). Does nothing where the
// arguments name no rendezvous, or no token can be read: a node proves by it that it belongs to the job.
void tell_nodes_of_refused(const std::vector<std::string>& arguments, const std::exception& error) noexcept;

}  // namespace herd::cli
