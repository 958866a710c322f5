#include "herd/transport/network_interface.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

namespace herd::transport {
namespace {

std::string numeric(const sockaddr* address) {
  char text[NI_MAXHOST] = {};
  const socklen_t size = address->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  if (getnameinfo(address, size, text, sizeof text, nullptr, 0, NI_NUMERICHOST) != 0) return "";
  return text;
}

bool is_internet(const sockaddr* address) {
  return address != nullptr && (address->sa_family == AF_INET || address->sa_family == AF_INET6);
}

// Returns the own address that a datagram to `to` would carry, or "" without a route. Sends nothing.
std::string source_address(const addrinfo& to) {
  const int probe = socket(to.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (probe < 0) return "";
  sockaddr_storage own = {};
  socklen_t size = sizeof own;
  const bool found = connect(probe, to.ai_addr, to.ai_addrlen) == 0 &&
                     getsockname(probe, reinterpret_cast<sockaddr*>(&own), &size) == 0;
  close(probe);
  return found ? numeric(reinterpret_cast<const sockaddr*>(&own)) : "";
}

// Holds an address of this host, and the interface that has it.
struct OwnAddress {
  std::string interface, address;
  bool loopback = false;
};

// Returns IPv4 addresses first, since an interface may have both kinds.
std::vector<OwnAddress> own_addresses() {
  std::vector<OwnAddress> addresses;
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return addresses;
  for (int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* at = first; at != nullptr; at = at->ifa_next) {
      if (!is_internet(at->ifa_addr) || at->ifa_addr->sa_family != family || (at->ifa_flags & IFF_UP) == 0) continue;
      addresses.push_back({at->ifa_name, numeric(at->ifa_addr), (at->ifa_flags & IFF_LOOPBACK) != 0});
    }
  }
  freeifaddrs(first);
  return addresses;
}

}  // namespace

std::vector<NetworkInterface> network_interfaces() {
  std::vector<NetworkInterface> interfaces;
  for (const OwnAddress& own : own_addresses()) {
    const auto is_listed = [&](const NetworkInterface& listed) { return listed.name == own.interface; };
    if (std::any_of(interfaces.begin(), interfaces.end(), is_listed)) continue;
    int64_t speed = 0;
    std::ifstream("/sys/class/net/" + own.interface + "/speed") >> speed;
    interfaces.push_back({own.interface, own.address, std::max<int64_t>(speed, 0), own.loopback});
  }
  return interfaces;
}

std::string interface_towards(const std::string& host) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), "9", &hints, &found) != 0) return "";
  std::string name;
  for (const addrinfo* to = found; to != nullptr && name.empty(); to = to->ai_next) {
    const std::string source = source_address(*to);
    for (const OwnAddress& own : own_addresses()) {
      if (name.empty() && own.address == source) name = own.interface;
    }
  }
  freeaddrinfo(found);
  return name;
}

bool has_rdma() {
  std::error_code failed;
  return !std::filesystem::is_empty("/sys/class/infiniband", failed) && !failed;
}

}  // namespace herd::transport
