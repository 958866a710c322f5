// Defines what makes connections secure: TLS 1.3 (RFC 8446) with a pre-shared key that both ends derive from the job's
// token, and X25519, so that what was recorded stays unreadable if the token becomes known later; AES-128-GCM. No
// certificates, no tickets, no early data: who does not hold the key gets no further than one message. Threads: one
// context serves sockets in any number of threads.
#pragma once

#include <memory>
#include <string>

struct ssl_ctx_st;

namespace herd::net {

struct SocketCallbacks;

class SecureContext {
 public:
  static constexpr size_t kKeyBytes = 32;
  // `key`: kKeyBytes of it, none of them guessable.
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
