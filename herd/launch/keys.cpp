#include "herd/launch/keys.h"

#include <sodium.h>

#include <array>
#include <set>

#include "herd/base/check.h"
#include "herd/base/error.h"

namespace herd::launch {
namespace {

using Key = std::array<unsigned char, 32>;
enum Purpose : uint64_t { kDataPlane = 3, kStore = 4 };

// Throws kBadConfig where the token could be guessed.
void check_strength(const std::string& token) {
  const std::set<char> distinct(token.begin(), token.end());
  if (token.size() >= kMinTokenBytes && distinct.size() >= kMinDistinctBytes) return;
  throw Error(Code::kBadConfig, "the job's token has " + std::to_string(token.size()) + " characters, " +
                                    std::to_string(distinct.size()) + " different ones: at least " +
                                    std::to_string(kMinTokenBytes) + ", " + std::to_string(kMinDistinctBytes) +
                                    " different ones, are needed to keep guessers out" +
                                    "\n  fix: export HERD_TOKEN=$(openssl rand -hex 32)");
}

// Derives one key of 32 bytes from the token; keys of different purposes tell nothing about each other.
std::string derive(const std::string& token, Purpose purpose) {
  HERD_CHECK(sodium_init() >= 0, "libsodium");
  check_strength(token);
  Key master, key;
  crypto_generichash(master.data(), master.size(), reinterpret_cast<const unsigned char*>(token.data()), token.size(),
                     nullptr, 0);
  crypto_kdf_derive_from_key(key.data(), key.size(), purpose, "herdctrl", master.data());
  return {reinterpret_cast<const char*>(key.data()), key.size()};
}

}  // namespace

std::string derive_store_key(const std::string& token) { return derive(token, kStore); }
std::string derive_transport_key(const std::string& token) { return derive(token, kDataPlane); }

std::string make_token() {
  HERD_CHECK(sodium_init() >= 0, "libsodium");
  std::array<unsigned char, 32> bytes;
  std::array<char, 65> text;
  randombytes_buf(bytes.data(), bytes.size());
  return sodium_bin2hex(text.data(), text.size(), bytes.data(), bytes.size());
}

}  // namespace herd::launch
