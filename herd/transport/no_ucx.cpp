// Stands in for ucx_wire.cpp in a build without UCX.
#include "herd/base/error.h"
#include "herd/transport/wire.h"

namespace herd::transport {

std::unique_ptr<Wire> open_ucx(const WireOptions&) {
  throw Error(Code::kBadConfig,
              "transport \"ucx\" is not in this build (have: shm, tcp, inproc)"
              "\n  fix: install libucx-dev, and configure with -DHERD_UCX=ON");
}

std::string ucx_version() { return ""; }

}  // namespace herd::transport
