// Holds back one rank's connections to its peers, in a program that it is preloaded into (LD_PRELOAD), so that a test
// has all the time it needs while the others wait for that rank.
//   HERD_HELD_RANK=1              the rank; its connections to the rendezvous (HERD_RENDEZVOUS) are let through
//   HERD_HELD_UNTIL=/tmp/x/go     the file whose appearance ends it
// Threads: any.
#include <arpa/inet.h>
#include <dlfcn.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool is_held(const sockaddr* to) {
  if (to->sa_family != AF_INET || variable("HERD_RANK") != variable("HERD_HELD_RANK")) return false;
  const int port = ntohs(reinterpret_cast<const sockaddr_in*>(to)->sin_port);
  return !variable("HERD_RENDEZVOUS").ends_with(":" + std::to_string(port));
}

}  // namespace

extern "C" int connect(int socket, const sockaddr* to, socklen_t bytes) {
  static const auto real = reinterpret_cast<int (*)(int, const sockaddr*, socklen_t)>(dlsym(RTLD_NEXT, "connect"));
  const std::string until = variable("HERD_HELD_UNTIL");
  for (int tenths = 0; is_held(to) && access(until.c_str(), F_OK) != 0 && tenths < 600; ++tenths) usleep(100'000);
  return real(socket, to, bytes);
}
