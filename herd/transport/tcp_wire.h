// Sends frames over TCP inside TLS (net/secure_socket.h); hosts use it unless their network is declared trusted. Each
// direction between two ranks is a connection of its own, which the sender makes when it first sends. So it does not
// matter who comes first, and a rank that has sent its last byte can end without losing it. A peer that sends anything
// but frames (tcp_frame.h), though it holds the token, loses its connection.
// Threads: as any Wire.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "herd/transport/wire.h"

namespace herd::transport {

// Opens a wire whose TLS is keyed by options.key. Throws kBadConfig where an interface that `options` names does not
// exist or has no address.
std::unique_ptr<Wire> open_tcp(const WireOptions& options);

// Returns a peer's addresses in the order in which `self` tries them. Connections take turns at the interfaces, so that
// each interface carries its part of the pairs of ranks between two hosts.
std::vector<std::string> addresses_to_try(const std::vector<std::string>& addresses, Rank self, Rank peer);

}  // namespace herd::transport
