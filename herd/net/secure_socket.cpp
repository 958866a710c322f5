#include "herd/net/secure_socket.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "herd/base/check.h"
#include "herd/base/error.h"

namespace herd::net {
namespace {

constexpr std::array<unsigned char, 2> kCipher = {0x13, 0x01};  // TLS_AES_128_GCM_SHA256
constexpr size_t kMaxNameBytes = 64;                            // bytes of a client's name
constexpr size_t kReadAhead = 64 << 10;  // bytes of several records that one system call may bring

// Sends without SIGPIPE, since a library can't assume that the signal is ignored.
int bio_write(BIO* bio, const char* data, int bytes) {
  const int fd = static_cast<int>(reinterpret_cast<intptr_t>(BIO_get_data(bio)));
  const ssize_t sent = ::send(fd, data, static_cast<size_t>(bytes), MSG_NOSIGNAL);
  BIO_clear_retry_flags(bio);
  if (sent < 0 && (errno == EAGAIN || errno == EINTR || errno == ENOTCONN)) BIO_set_retry_write(bio);
  return static_cast<int>(sent);
}

int bio_read(BIO* bio, char* into, int bytes) {
  const int fd = static_cast<int>(reinterpret_cast<intptr_t>(BIO_get_data(bio)));
  const ssize_t got = ::recv(fd, into, static_cast<size_t>(bytes), 0);
  BIO_clear_retry_flags(bio);
  if (got < 0 && (errno == EAGAIN || errno == EINTR || errno == ENOTCONN)) BIO_set_retry_read(bio);
  return static_cast<int>(got);
}

long bio_control(BIO*, int command, long, void*) { return command == BIO_CTRL_FLUSH ? 1 : 0; }

BIO_METHOD* socket_method() {
  static BIO_METHOD* const method = [] {
    BIO_METHOD* made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "herd socket");
    HERD_CHECK(made != nullptr, "libssl");
    BIO_meth_set_write(made, bio_write);
    BIO_meth_set_read(made, bio_read);
    BIO_meth_set_ctrl(made, bio_control);
    BIO_meth_set_create(made, [](BIO* bio) {
      BIO_set_init(bio, 1);
      return 1;
    });
    return made;
  }();
  return method;
}

// Returns the first reason in libssl's queue of errors, and empties the queue.
std::string libssl_reason() {
  std::string reason;
  while (const unsigned long code = ERR_get_error()) {
    const char* text = ERR_reason_error_string(code);
    if (reason.empty() && text != nullptr) reason = text;
  }
  return reason;
}

}  // namespace

struct SecureContext::State {
  SSL_CTX* tls = nullptr;
  std::array<unsigned char, kKeyBytes> key{};
  ~State() {
    SSL_CTX_free(tls);
    OPENSSL_cleanse(key.data(), key.size());
  }
};

// Gives libssl the pre-shared key and the name of a socket during its handshake.
struct SocketCallbacks {
  static SSL_SESSION* session(SSL* tls) {
    const auto* socket = static_cast<const SecureSocket*>(SSL_get_app_data(tls));
    SSL_SESSION* session = SSL_SESSION_new();
    const auto& key = socket->context_.state_->key;
    if (session == nullptr || SSL_SESSION_set1_master_key(session, key.data(), key.size()) != 1 ||
        SSL_SESSION_set_cipher(session, SSL_CIPHER_find(tls, kCipher.data())) != 1 ||
        SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) != 1) {
      SSL_SESSION_free(session);
      return nullptr;
    }
    return session;
  }

  static int use_session(SSL* tls, const EVP_MD*, const unsigned char** id, size_t* id_bytes, SSL_SESSION** made) {
    const auto* socket = static_cast<const SecureSocket*>(SSL_get_app_data(tls));
    *id = reinterpret_cast<const unsigned char*>(socket->name_.data());
    *id_bytes = socket->name_.size();
    *made = session(tls);
    return *made != nullptr ? 1 : 0;
  }

  static int find_session(SSL* tls, const unsigned char* id, size_t id_bytes, SSL_SESSION** found) {
    auto* socket = static_cast<SecureSocket*>(SSL_get_app_data(tls));
    *found = nullptr;
    if (id_bytes == 0 || id_bytes > kMaxNameBytes) return 1;
    socket->peer_.assign(reinterpret_cast<const char*>(id), id_bytes);
    *found = session(tls);
    return *found != nullptr ? 1 : 0;
  }
};

SecureContext::SecureContext(const std::string& key) : state_(std::make_unique<State>()) {
  HERD_CHECK_EQ(key.size(), kKeyBytes);
  std::memcpy(state_->key.data(), key.data(), kKeyBytes);
  SSL_CTX* tls = state_->tls = SSL_CTX_new(TLS_method());
  const bool is_set_up = tls != nullptr && SSL_CTX_set_min_proto_version(tls, TLS1_3_VERSION) == 1 &&
                         SSL_CTX_set_ciphersuites(tls, "TLS_AES_128_GCM_SHA256") == 1 &&
                         SSL_CTX_set1_groups_list(tls, "X25519") == 1 && SSL_CTX_set_num_tickets(tls, 0) == 1;
  if (!is_set_up) throw Error(Code::kBug, "libssl can't be set up for TLS 1.3: " + libssl_reason());
  SSL_CTX_set_mode(tls, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_options(tls, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION);
  SSL_CTX_set_session_cache_mode(tls, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_max_cert_list(tls, 4096);  // bytes; a stranger's certificates are refused anyway
  SSL_CTX_set_psk_use_session_callback(tls, SocketCallbacks::use_session);
  SSL_CTX_set_psk_find_session_callback(tls, SocketCallbacks::find_session);
}

SecureContext::~SecureContext() = default;

SecureSocket::SecureSocket(const SecureContext& context, Descriptor socket)
    : context_(context), socket_(std::move(socket)), tls_(SSL_new(context.state_->tls)) {
  BIO* bio = BIO_new(socket_method());
  HERD_CHECK(tls_ != nullptr && bio != nullptr, "libssl");
  BIO_set_data(bio, reinterpret_cast<void*>(static_cast<intptr_t>(socket_.fd)));
  SSL_set_bio(tls_, bio, bio);
  SSL_set_app_data(tls_, this);
}

std::unique_ptr<SecureSocket> SecureSocket::connect(const SecureContext& context, Descriptor socket,
                                                    const std::string& name) {
  HERD_CHECK(!name.empty() && name.size() <= kMaxNameBytes, "name");
  std::unique_ptr<SecureSocket> made(new SecureSocket(context, std::move(socket)));
  made->name_ = name;
  SSL_set_verify(made->tls_, SSL_VERIFY_PEER, nullptr);  // refuses a server with a certificate instead of the key
  SSL_set_connect_state(made->tls_);
  return made;
}

std::unique_ptr<SecureSocket> SecureSocket::accept(const SecureContext& context, Descriptor socket) {
  std::unique_ptr<SecureSocket> made(new SecureSocket(context, std::move(socket)));
  made->accepted_ = true;
  SSL_set_accept_state(made->tls_);
  return made;
}

SecureSocket::~SecureSocket() {
  if (open_ && ended_.empty()) {
    ERR_clear_error();
    SSL_shutdown(tls_);
    ERR_clear_error();
  }
  SSL_free(tls_);
}

bool SecureSocket::check_result(int result) {
  wants_write_ = false;
  if (result > 0) return true;
  const int system = errno;
  switch (SSL_get_error(tls_, result)) {
    case SSL_ERROR_WANT_READ:
      return false;
    case SSL_ERROR_WANT_WRITE:
      wants_write_ = true;
      return false;
    case SSL_ERROR_ZERO_RETURN:
      ended_ = "the other end has closed the connection";
      return false;
    case SSL_ERROR_SYSCALL:
      ended_ = system != 0 ? std::strerror(system) : "the connection has ended";
      libssl_reason();
      return false;
    default:
      const std::string reason = libssl_reason();
      refused_handshake_ = !open_;
      ended_ =
          open_ ? "the connection has ended (" + reason + ")" : "no handshake with this job's token (" + reason + ")";
      return false;
  }
}

bool SecureSocket::shake_hands() {
  if (open_ || !ended_.empty()) return open_;
  ERR_clear_error();
  errno = 0;
  if (!check_result(SSL_do_handshake(tls_))) return false;
  if (SSL_session_reused(tls_) != 1) {  // no pre-shared key was used
    ended_ = "no handshake with this job's token (another kind of handshake)";
    refused_handshake_ = true;
    return false;
  }
  // From here on one system call may bring several records; before, a stranger's bytes get no such room.
  SSL_set_read_ahead(tls_, 1);
  SSL_set_default_read_buffer_len(tls_, kReadAhead);
  return open_ = true;
}

size_t SecureSocket::read(std::span<std::byte> into) {
  if (!open_ || !ended_.empty() || into.empty()) return 0;
  ERR_clear_error();
  errno = 0;
  size_t got = 0;
  return check_result(SSL_read_ex(tls_, into.data(), into.size(), &got)) ? got : 0;
}

size_t SecureSocket::write(std::span<const std::byte> from) {
  if (!open_ || !ended_.empty() || from.empty()) return 0;
  ERR_clear_error();
  errno = 0;
  size_t written = 0;
  return check_result(SSL_write_ex(tls_, from.data(), from.size(), &written)) ? written : 0;
}

bool SecureSocket::holds_more() const { return SSL_has_pending(tls_) == 1; }

}  // namespace herd::net
