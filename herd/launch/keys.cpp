#include "herd/launch/keys.h"

#include <sodium.h>
#include <zmq.h>

#include <array>

#include "herd/base/check.h"
#include "herd/base/error.h"

namespace herd::launch {
namespace {

using Key = std::array<unsigned char, 32>;
enum Purpose : uint64_t { kServer = 1, kClient = 2, kDataPlane = 3 };

Key derive(const std::string& token, Purpose purpose) {
  HERD_CHECK(sodium_init() >= 0, "libsodium");
  if (token.size() < kMinTokenBytes) {
    throw Error(Code::kBadConfig, "the job's token has " + std::to_string(token.size()) + " characters, at least " +
                                      std::to_string(kMinTokenBytes) +
                                      " are needed\n  fix: export HERD_TOKEN=$(openssl rand -hex 32)");
  }
  Key master, key;
  crypto_generichash(master.data(), master.size(), reinterpret_cast<const unsigned char*>(token.data()), token.size(),
                     nullptr, 0);
  crypto_kdf_derive_from_key(key.data(), key.size(), purpose, "herdctrl", master.data());
  return key;
}

std::string z85(const Key& key) {
  std::array<char, 41> text;
  zmq_z85_encode(text.data(), key.data(), key.size());
  return text.data();
}

void derive_pair(const std::string& token, Purpose purpose, std::string& public_key, std::string& secret_key) {
  const Key seed = derive(token, purpose);
  Key open, secret;
  crypto_box_seed_keypair(open.data(), secret.data(), seed.data());
  public_key = z85(open);
  secret_key = z85(secret);
}

}  // namespace

CurveKeys derive_keys(const std::string& token) {
  CurveKeys keys;
  derive_pair(token, kServer, keys.server_public, keys.server_secret);
  derive_pair(token, kClient, keys.client_public, keys.client_secret);
  return keys;
}

std::string derive_secret(const std::string& token) {
  const Key key = derive(token, kDataPlane);
  return {reinterpret_cast<const char*>(key.data()), key.size()};
}

std::string make_token() {
  HERD_CHECK(sodium_init() >= 0, "libsodium");
  std::array<unsigned char, 32> bytes;
  std::array<char, 65> text;
  randombytes_buf(bytes.data(), bytes.size());
  return sodium_bin2hex(text.data(), text.size(), bytes.data(), bytes.size());
}

}  // namespace herd::launch
