// Defines what the job's token unlocks. Key i = crypto_kdf(BLAKE2b(token), i, context): knowing one tells nothing of
// another.
#pragma once

#include <string>

namespace herd::launch {

// Who records a handshake can try tokens at leisure, so one has to be too long to be found: 128 random bits and more.
inline constexpr size_t kMinTokenBytes = 32;     // characters
inline constexpr size_t kMinDifferentBytes = 8;  // among them: nothing repeated, as in 000...0

// Each 32 bytes; each throws kBadConfig for a token that is too weak.
std::string derive_store_key(const std::string& token);  // of the store's connections
std::string derive_secret(const std::string& token);     // for the data plane
std::string make_token();                                // 64 random hexadecimal digits

}  // namespace herd::launch
