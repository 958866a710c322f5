// Defines what makes connections secure: TLS 1.3 (RFC 8446) with AES-128-GCM and a pre-shared key that both ends derive
// from the job's token. X25519 keeps recorded traffic unreadable if the token becomes known later. There are no
// certificates, tickets or early data: a peer without the key gets no further than one message.
// Threads: one context serves sockets in any number of threads.
#pragma once

#include <memory>
#include <string>

struct ssl_ctx_st;

namespace herd::net {

struct SocketCallbacks;

class SecureContext {
 public:
  static constexpr size_t kKeyBytes = 32;
  // REQUIRES a key of kKeyBytes random bytes.
  explicit SecureContext(const std::string& key);
  ~SecureContext();
  SecureContext(const SecureContext&) = delete;
  SecureContext& operator=(const SecureContext&) = delete;

 private:
  friend class SecureSocket;
  friend struct SocketCallbacks;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace herd::net
