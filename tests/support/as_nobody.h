// While it lives, this thread meets the permissions of files as a user without rights, even where tests run as root.
#pragma once

#include <sys/fsuid.h>
#include <unistd.h>

namespace herd {

class AsNobody {
 public:
  AsNobody() {
    if (::geteuid() == 0) ::setfsuid(65534);
  }
  ~AsNobody() { ::setfsuid(::geteuid()); }
  AsNobody(const AsNobody&) = delete;
  AsNobody& operator=(const AsNobody&) = delete;
};

}  // namespace herd
