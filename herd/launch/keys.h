// What the job's token unlocks. Key i = crypto_kdf(BLAKE2b(token), i, context): knowing one tells nothing of another.
#pragma once

#include <string>

namespace herd::launch {

// CURVE keys of the store, 40 characters of Z85 each. All clients of a job share one pair.
struct CurveKeys {
  std::string server_public, server_secret, client_public, client_secret;
};

inline constexpr size_t kMinTokenBytes = 16;

CurveKeys derive_keys(const std::string& token);      // throws kBadConfig for a token under kMinTokenBytes
std::string derive_secret(const std::string& token);  // 32 bytes for the data plane's own authentication
std::string make_token();                             // 64 random hexadecimal digits

}  // namespace herd::launch
