#include "herd/transport/hosts.h"

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <map>

#include "herd/base/host_name.h"

namespace herd::transport {

std::string machine_identity() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return boot;
}

std::string host_identity() {
  struct stat network = {};
  stat("/proc/self/ns/net", &network);
  return machine_identity() + "/" + host_name() + "/net" + std::to_string(network.st_ino) + "/user" +
         std::to_string(geteuid());
}

std::vector<int> number_hosts(const std::vector<std::string>& identities) {
  std::map<std::string, int> numbers;
  std::vector<int> hosts;
  for (const std::string& identity : identities) {
    hosts.push_back(numbers.emplace(identity, static_cast<int>(numbers.size())).first->second);
  }
  return hosts;
}

}  // namespace herd::transport
