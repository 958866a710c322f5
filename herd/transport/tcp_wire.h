// Frames over TCP inside TLS (net/secure_socket.h): what joins hosts unless their network is declared trusted. Each
// direction between two ranks is a connection of its own, made by the rank that sends, when it first does; so nothing
// depends on who came first, and a rank that has sent its last byte can end without losing it.
//   Whoever says anything but frames (tcp_frame.h), though it holds the token, loses its connection.
#pragma once

#include <memory>

#include "herd/transport/wire.h"

namespace herd::transport {

// options.key authenticates and encrypts. Throws kBadConfig where an interface that is asked for does not exist or has
// no address.
std::unique_ptr<Wire> open_tcp(const WireOptions& options);

}  // namespace herd::transport
