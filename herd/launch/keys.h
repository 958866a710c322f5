// Derives keys from the job's token. Key i = crypto_kdf(BLAKE2b(token), i, context): one key tells nothing of another.
// Threads: any.
#pragma once

#include <string>

namespace herd::launch {

// An attacker that records a handshake can try tokens offline, so a token needs 128 random bits or more.
inline constexpr size_t kMinTokenBytes = 32;    // characters
inline constexpr size_t kMinDistinctBytes = 8;  // different characters among them, so that 000...0 fails

// The next two functions return 32 bytes, and throw kBadConfig for a token that is too weak.
std::string derive_store_key(const std::string& token);      // key of the store's connections
std::string derive_transport_key(const std::string& token);  // key of the transport between hosts

// Returns a new token: 64 random hexadecimal digits.
std::string make_token();

}  // namespace herd::launch
