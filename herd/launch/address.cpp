#include <dirent.h>
#include <netdb.h>
#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "herd/base/descriptor.h"
#include "herd/base/error.h"
#include "herd/launch/address_internal.h"
#include "herd/net/address.h"

namespace herd::launch {
namespace {

// Inodes of sockets that listen on the port, from /proc/net/tcp and tcp6.
std::set<std::string> listening_inodes(int port) {
  std::set<std::string> inodes;
  char port_suffix[8];
  std::snprintf(port_suffix, sizeof port_suffix, ":%04X", static_cast<unsigned>(port));
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream file(table);
    std::string line;
    std::getline(file, line);
    while (std::getline(file, line)) {
      std::istringstream fields(line);
      std::string slot, local, remote, state, queues, timer, retransmits, uid, timeout, inode;
      fields >> slot >> local >> remote >> state >> queues >> timer >> retransmits >> uid >> timeout >> inode;
      if (state == "0A" && local.ends_with(port_suffix)) inodes.insert("socket:[" + inode + "]");
    }
  }
  return inodes;
}

// Returns the first 120 characters of the command line of /proc/PID.
std::string command_line(const std::string& process) {
  std::ifstream file(process + "/cmdline");
  std::string text((std::istreambuf_iterator<char>(file)), {});
  std::replace(text.begin(), text.end(), '\0', ' ');
  while (!text.empty() && text.back() == ' ') text.pop_back();
  return text.substr(0, 120);
}

}  // namespace

StoreAddress parse_address(const std::string& rendezvous) {
  const size_t colon = rendezvous.rfind(':');
  StoreAddress address;
  int port = 0;
  if (colon != std::string::npos && colon > 0) {
    const auto [end, status] =
        std::from_chars(rendezvous.data() + colon + 1, rendezvous.data() + rendezvous.size(), port);
    if (status == std::errc() && end == rendezvous.data() + rendezvous.size() && port >= 0 && port < 65536) {
      address.host = rendezvous.substr(0, colon);
      if (address.host.front() == '[' && address.host.back() == ']') {
        address.host = address.host.substr(1, address.host.size() - 2);
      }
      address.port = port;
      return address;
    }
  }
  throw Error(Code::kBadConfig, "the rendezvous is HOST:PORT with a port below 65536, not \"" + rendezvous + "\"");
}

std::string numeric_host(const StoreAddress& address) {
  addrinfo hints = {}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  const int status = getaddrinfo(address.host.c_str(), nullptr, &hints, &found);
  if (status != 0) {
    throw Error(Code::kBadConfig,
                "the rendezvous host \"" + address.host + "\" has no address: " + gai_strerror(status));
  }
  const addrinfo* best = found;  // prefers IPv4: a host with both often listens on IPv4 only
  for (const addrinfo* at = found; at; at = at->ai_next) {
    if (at->ai_family == AF_INET && best->ai_family != AF_INET) best = at;
  }
  char host[NI_MAXHOST];
  const int name_status = getnameinfo(best->ai_addr, best->ai_addrlen, host, sizeof host, nullptr, 0, NI_NUMERICHOST);
  freeaddrinfo(found);
  if (name_status != 0) {
    throw Error(Code::kBadConfig, "the rendezvous host \"" + address.host + "\": " + gai_strerror(name_status));
  }
  return host;
}

bool is_loopback(const std::string& numeric_host) { return numeric_host.starts_with("127.") || numeric_host == "::1"; }

bool is_own_address(const std::string& numeric_host) {
  const net::SocketAddress address = net::numeric_address(numeric_host, 0);
  const Descriptor listener(socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
  return bind(listener.fd, address.get(), address.size()) == 0;
}

std::string port_holder(int port) {
  const std::set<std::string> inodes = listening_inodes(port);
  std::error_code ignored;
  namespace fs = std::filesystem;
  for (const auto& process : fs::directory_iterator("/proc", fs::directory_options::skip_permission_denied, ignored)) {
    const std::string pid = process.path().filename();
    if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
    DIR* folder = opendir((process.path() / "fd").c_str());  // fails for most processes of other users
    if (!folder) continue;
    std::string holder;
    while (const dirent* entry = readdir(folder)) {
      char target[64];
      const ssize_t length = readlinkat(dirfd(folder), entry->d_name, target, sizeof target);
      if (length > 0 && inodes.contains(std::string(target, static_cast<size_t>(length)))) {
        holder = "process " + pid + " (" + command_line(process.path()) + ")";
        break;
      }
    }
    closedir(folder);
    if (!holder.empty()) return holder;
  }
  return "";
}

}  // namespace herd::launch
