#include "herd/launch/store_client.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <thread>

#include "herd/base/descriptor.h"
#include "herd/base/host_name.h"
#include "herd/base/log.h"
#include "herd/launch/address_internal.h"
#include "herd/launch/keys.h"
#include "herd/launch/message_stream.h"
#include "herd/launch/store_protocol.h"
#include "herd/net/address.h"

namespace herd::launch {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

namespace {

constexpr auto kHeartbeatPeriod = 200ms;               // time between heartbeats
constexpr auto kLostAfter = 2s;                        // without a connection for this long, the store is lost
constexpr auto kOperationLimit = 30s;                  // time limit of set, add and erase
constexpr int kMaxRefusals = 3;                        // after so many failed handshakes the token is wrong
constexpr auto kHandshakeLimit = 5s;                   // time limit of a handshake
constexpr auto kFirstPause = 50ms, kMaxPause = 400ms;  // pauses between tries to connect
constexpr auto kClientFlushLimit = 200ms;              // time limit for sending the last messages

std::string seconds(Clock::duration duration) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f s", std::chrono::duration<double>(duration).count());
  return text;
}

std::string this_place() { return "process " + std::to_string(getpid()) + " on " + host_name(); }

}  // namespace

// Holds the connection to the store and the thread that serves it, which connects again where the connection is lost.
struct StoreClient::State {
  State(const std::string& where, const std::string& job_token, const ClientIdentity& who);
  ~State();
  void run();
  void dial();
  void hang_up();
  void advance_connection();
  void receive();
  void wait_for_input(Clock::time_point until);
  void flush_last_messages();
  void beat();
  void check_lost();
  void lose(Code code, const std::string& reason);
  void send(const Message& message);
  void wake() {
    const uint64_t one = 1;
    [[maybe_unused]] const auto written = write(wake_fd.fd, &one, sizeof one);
  }
  uint64_t post(Verb verb, const std::string& key, const std::string& value) {
    return post(identity.scope, verb, key, value);
  }
  uint64_t post(uint32_t scope, Verb verb, const std::string& key, const std::string& value);
  std::optional<Message> wait(std::unique_lock<std::mutex>& lock, uint64_t id, SteadyTime deadline);
  Message call(uint32_t scope, Verb verb, const std::string& key, const std::string& value);
  Message call(Verb verb, const std::string& key, const std::string& value) {
    return call(identity.scope, verb, key, value);
  }
  void join_job(SteadyTime deadline);
  std::string get(const std::string& key, SteadyTime deadline);
  std::string silence() const;         // describes the state of the connection; requires the mutex
  Clock::duration silent_for() const;  // how long the store has left heartbeats unanswered; requires the mutex
  bool gives_up() const;               // requires the mutex

  const std::string rendezvous, token;
  const ClientIdentity identity;
  const net::SecureContext context;
  const net::SocketAddress address;
  const std::string name;  // name of this client, the same after it connects again
  Descriptor wake_fd;
  std::unique_ptr<MessageStream> stream;  // only the thread uses the members from here to the mutex
  std::deque<std::string> unsent;         // frames to send once there is a connection
  Clock::time_point dialled = {}, next_dial = {};
  Clock::duration pause = kFirstPause;

  mutable std::mutex mutex;
  std::condition_variable changed;
  std::deque<Message> outbox;
  std::map<uint64_t, std::optional<Message>> pending;  // requests by id; the answer once it is here
  std::optional<Message> hello;                        // until it is answered
  uint64_t next_id = 1;
  bool connected = false, ever_connected = false, ever_tcp = false, stopping = false;
  int refusals = 0;
  Clock::time_point disconnected_since = Clock::now(), last_heard = Clock::now();
  Clock::time_point unanswered_since = {};  // time of the first heartbeat without an answer
  Clock::duration longest_silence = {};     // calls give up after it; 0 = never
  std::optional<Failure> lost;
  std::map<uint32_t, Failure> failures;  // failures that the store reported, by scope
  bool status_changed = false;
  int64_t status_sequence = 0;
  std::string status_text;
  std::thread thread;
};

StoreClient::State::State(const std::string& where, const std::string& job_token, const ClientIdentity& who)
    : rendezvous(where),
      token(job_token),
      identity(who),
      context(derive_store_key(job_token)),
      address(net::numeric_address(numeric_host(parse_address(where)), parse_address(where).port)),
      name("r" + make_token().substr(0, 32)),
      wake_fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (wake_fd.fd < 0) throw_errno(Code::kStorage, "eventfd", errno);
}

StoreClient::State::~State() {
  {
    std::lock_guard lock(mutex);
    stopping = true;
  }
  wake();
  if (thread.joinable()) thread.join();
}

void StoreClient::State::run() {
  auto next_beat = Clock::now() + kHeartbeatPeriod;
  while (true) {
    wait_for_input(next_beat);
    uint64_t drained;
    [[maybe_unused]] const auto count = read(wake_fd.fd, &drained, sizeof drained);
    std::deque<Message> messages;
    bool stop;
    {
      std::lock_guard lock(mutex);
      messages.swap(outbox);
      stop = stopping;
    }
    for (const Message& message : messages) send(message);
    if (stop) return flush_last_messages();
    advance_connection();
    receive();
    if (Clock::now() >= next_beat) {
      beat();
      next_beat = Clock::now() + kHeartbeatPeriod;
    }
    check_lost();
  }
}

void StoreClient::State::wait_for_input(Clock::time_point until) {
  if (stream == nullptr) until = std::min(until, next_dial);
  pollfd watched[2] = {{wake_fd.fd, POLLIN, 0}, {-1, POLLIN, 0}};
  if (stream != nullptr) {
    watched[1].fd = stream->socket().descriptor();
    if (stream->socket().wants_write()) watched[1].events |= POLLOUT;
  }
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
  poll(watched, 2, static_cast<int>(std::max<int64_t>(left, 0)));
}

void StoreClient::State::send(const Message& message) {
  if (stream == nullptr) return unsent.push_back(encode(message));
  stream->post(encode(message));
  stream->flush();
}

void StoreClient::State::flush_last_messages() {
  const auto until = Clock::now() + kClientFlushLimit;
  while (stream != nullptr && stream->end_reason().empty() && !stream->flush() && Clock::now() < until) {
    std::this_thread::sleep_for(1ms);
  }
}

void StoreClient::State::dial() {
  dialled = Clock::now();
  std::string failed;
  Descriptor socket = net::start_connecting(address, failed);
  if (!failed.empty()) return hang_up();
  stream = std::make_unique<MessageStream>(net::SecureSocket::connect(context, std::move(socket), name));
  {
    // A busy store may have closed the last connection with the hello unread. It is answered twice at worst.
    std::lock_guard lock(mutex);
    if (hello && ever_connected) stream->post(encode(*hello));
  }
  for (std::string& frame : unsent) stream->post(std::move(frame));
  unsent.clear();
}

void StoreClient::State::hang_up() {
  const bool refused = stream != nullptr && stream->socket().refused_handshake();
  if (stream != nullptr) unsent = stream->unsent();
  stream.reset();
  next_dial = Clock::now() + pause;
  pause = std::min<Clock::duration>(2 * pause, kMaxPause);
  std::lock_guard lock(mutex);
  if (refused) ++refusals;  // a busy store that let a handshake time out refuses nobody
  if (connected) disconnected_since = Clock::now();
  unanswered_since = {};
  connected = false;
}

void StoreClient::State::advance_connection() {
  if (stream == nullptr && Clock::now() >= next_dial) dial();
  if (stream == nullptr) return;
  net::SecureSocket& socket = stream->socket();
  const bool was_open = socket.is_open();
  if (!was_open) {
    sockaddr_storage peer = {};
    socklen_t size = sizeof peer;
    const bool reached = getpeername(socket.descriptor(), reinterpret_cast<sockaddr*>(&peer), &size) == 0;
    socket.shake_hands();
    std::lock_guard lock(mutex);
    if (reached) ever_tcp = true;
    if (socket.is_open()) {
      connected = ever_connected = true;
      pause = kFirstPause;
    }
  }
  if (socket.is_open()) stream->flush();
  const bool late = !socket.is_open() && Clock::now() - dialled > kHandshakeLimit;
  if (late || !stream->end_reason().empty()) hang_up();
}

void StoreClient::State::beat() {
  Message message{Verb::kBeat, 0, identity.scope, "", ""};
  {
    std::lock_guard lock(mutex);
    if (!connected || hello) return;
    if (status_changed) {
      message.key = std::to_string(status_sequence);
      message.value = status_text;
      status_changed = false;
    }
    if (unanswered_since == Clock::time_point{}) unanswered_since = Clock::now();
  }
  send(message);
}

void StoreClient::State::receive() {
  if (stream == nullptr) return;
  while (const auto frame = stream->next()) {
    const auto message = decode(*frame);
    if (!message) continue;  // sent by another version of herd; the call times out
    std::lock_guard lock(mutex);
    last_heard = Clock::now();
    unanswered_since = {};
    if (message->verb == Verb::kRefused && message->key == kUnknownClient) {
      lose(Code::kPeerLost, "the job's store at " + rendezvous + " is gone: " + message->value);
      continue;
    }
    if (message->id == 0) {
      if (message->verb == Verb::kFailed) failures[message->scope] = {parse_code(message->key), message->value};
      continue;
    }
    const auto found = pending.find(message->id);
    if (found == pending.end()) continue;
    found->second = *message;
    changed.notify_all();
  }
  if (!stream->end_reason().empty()) hang_up();
}

void StoreClient::State::check_lost() {
  std::lock_guard lock(mutex);
  if (gives_up()) changed.notify_all();
  if (lost) return;
  if (!ever_connected && refusals >= kMaxRefusals) {
    lose(Code::kBadConfig,
         "what listens at " + rendezvous +
             " refuses this job's token: it is the store of another job, or no store of herd\n"
             "  fix: the same token and the same rendezvous for all ranks of a job, and a port of its "
             "own for each job");
  } else if (ever_connected && !hello && !connected && Clock::now() - disconnected_since > kLostAfter) {
    lose(Code::kPeerLost, "the job's store at " + rendezvous + " is gone (connection lost " +
                              seconds(Clock::now() - disconnected_since) +
                              " ago): the launcher, or rank 0 under a foreign one, has ended");
  }
}

void StoreClient::State::lose(Code code, const std::string& reason) {
  if (!lost) lost = Failure{code, reason};
  changed.notify_all();
}

std::string StoreClient::State::silence() const {
  if (connected) {
    return "the store is connected and was last heard " + seconds(Clock::now() - last_heard) +
           " ago: its process may be stopped or overloaded";
  }
  return "no connection to the store at " + rendezvous + " since " + seconds(Clock::now() - disconnected_since);
}

Clock::duration StoreClient::State::silent_for() const {
  return unanswered_since == Clock::time_point{} ? Clock::duration{} : Clock::now() - unanswered_since;
}

bool StoreClient::State::gives_up() const {
  return longest_silence > Clock::duration{} && silent_for() >= longest_silence;
}

// Requires the mutex.
uint64_t StoreClient::State::post(uint32_t scope, Verb verb, const std::string& key, const std::string& value) {
  const uint64_t id = next_id++;
  pending[id] = std::nullopt;
  outbox.push_back({verb, id, scope, key, value});
  wake();
  return id;
}

std::optional<Message> StoreClient::State::wait(std::unique_lock<std::mutex>& lock, uint64_t id, SteadyTime deadline) {
  changed.wait_until(lock, deadline, [&] { return pending[id].has_value() || lost.has_value() || gives_up(); });
  const std::optional<Message> answer = pending[id];
  pending.erase(id);
  if (!answer && lost) throw Error(lost->code, lost->reason);
  if (!answer && gives_up()) {
    throw Error(Code::kPeerLost, "the job's store at " + rendezvous + " is silent: no answer for " +
                                     seconds(silent_for()) + ", over a connection that holds");
  }
  return answer;
}

Message StoreClient::State::call(uint32_t scope, Verb verb, const std::string& key, const std::string& value) {
  encode({verb, 0, 0, key, value});  // checks the limits here, so that the caller's thread throws
  std::unique_lock lock(mutex);
  const auto started = Clock::now();
  const auto answer = wait(lock, post(scope, verb, key, value), started + kOperationLimit);
  if (!answer) {
    throw Error(Code::kTimeout,
                "store: no answer about \"" + key + "\" within " + seconds(kOperationLimit) + "; " + silence());
  }
  if (answer->verb == Verb::kRefused) throw Error(Code::kBadConfig, "store: " + answer->value);
  return *answer;
}

void StoreClient::State::join_job(SteadyTime deadline) {
  const auto started = Clock::now();
  const std::string key = std::to_string(identity.rank) + "/" + std::to_string(identity.size);
  std::unique_lock lock(mutex);
  const uint64_t id = post(Verb::kHello, key, this_place());
  hello = outbox.back();
  thread = std::thread([this] { run(); });  // not before the hello is there: the store refuses heartbeats before it
  const auto answer = wait(lock, id, deadline);
  hello.reset();
  if (!answer) {
    throw Error(Code::kTimeout, ever_tcp
                                    ? "what listens at " + rendezvous + " did not answer as a store of herd within " +
                                          seconds(Clock::now() - started)
                                    : "nothing listens at " + rendezvous + " after " + seconds(Clock::now() - started) +
                                          "\n  fix: start node 0 (rank 0) too, and open the port between the hosts");
  }
  if (answer->verb == Verb::kRefused) {
    throw Error(Code::kBadConfig, "the store at " + rendezvous + " refuses this process: " + answer->value);
  }
}

std::string StoreClient::State::get(const std::string& key, SteadyTime deadline) {
  encode({Verb::kGet, 0, 0, key, ""});
  const auto started = Clock::now();
  std::unique_lock lock(mutex);
  const uint64_t id = post(Verb::kGet, key, "");
  std::optional<Message> answer;
  if (deadline > started) answer = wait(lock, id, deadline);
  if (!answer) {  // withdraws the get; exactly one answer comes, the value or "cancelled"
    pending[id] = std::nullopt;
    outbox.push_back({Verb::kCancel, id, identity.scope, "", ""});
    wake();
    answer = wait(lock, id, Clock::now() + 1s);
  }
  const auto waited = Clock::now() - started;
  if (!answer) {
    throw Error(Code::kTimeout, "store: no answer about \"" + key + "\" within " + seconds(waited) + "; " + silence());
  }
  if (answer->key == "cancelled") {
    throw Error(Code::kTimeout, "store: nobody set \"" + key + "\" within " + seconds(waited) + "; " + answer->value);
  }
  if (answer->verb == Verb::kFailed) throw Error(parse_code(answer->key), answer->value);
  if (answer->verb == Verb::kRefused) throw Error(Code::kBadConfig, "store: " + answer->value);
  return answer->value;
}

StoreClient::StoreClient(const std::string& rendezvous, const std::string& token, const ClientIdentity& identity,
                         SteadyTime deadline, std::shared_ptr<void> host)
    : host_(std::move(host)), state_(std::make_unique<State>(rendezvous, token, identity)) {
  state_->join_job(deadline);
}

StoreClient::~StoreClient() {
  try {
    std::unique_lock lock(state_->mutex);
    if (!state_->lost && state_->connected) state_->wait(lock, state_->post(Verb::kBye, "", ""), Clock::now() + 1s);
  } catch (const std::exception&) {  // the store is gone, so there is nobody to say goodbye to
  }
}

void StoreClient::set(const std::string& key, const std::string& value) { state_->call(Verb::kSet, key, value); }
std::string StoreClient::get(const std::string& key, SteadyTime deadline) { return state_->get(key, deadline); }
void StoreClient::erase(const std::string& key) { state_->call(Verb::kErase, key, ""); }

int64_t StoreClient::add(const std::string& key, int64_t delta) {
  const Message answer = state_->call(Verb::kAdd, key, std::to_string(delta));
  return std::strtoll(answer.value.c_str(), nullptr, 10);
}

void StoreClient::note_status(int64_t sequence, std::string_view text) {
  std::lock_guard lock(state_->mutex);
  state_->status_sequence = sequence;
  state_->status_text.assign(text.substr(0, 4096));
  state_->status_changed = true;
}

void StoreClient::fail(const Failure& failure) { fail(state_->identity.scope, failure); }

void StoreClient::fail(uint32_t scope, const Failure& failure) {
  state_->call(scope, Verb::kFail, std::string(code_name(failure.code)), failure.reason);
}

std::optional<Failure> StoreClient::failure() const { return failure(state_->identity.scope); }

std::optional<Failure> StoreClient::failure(uint32_t scope) const {
  const auto reported = reported_failure(scope);
  return reported ? reported : lost();
}

std::optional<Failure> StoreClient::reported_failure(uint32_t scope) const {
  std::lock_guard lock(state_->mutex);
  const auto found = state_->failures.find(scope);
  return found == state_->failures.end() ? std::nullopt : std::optional(found->second);
}

SteadyTime StoreClient::last_heard() const {
  std::lock_guard lock(state_->mutex);
  return state_->last_heard;
}

std::optional<Failure> StoreClient::lost() const {
  std::lock_guard lock(state_->mutex);
  return state_->lost;
}

void StoreClient::give_up_after(std::chrono::milliseconds silence) {
  std::lock_guard lock(state_->mutex);
  state_->longest_silence = silence;
}

std::string StoreClient::secret() const { return derive_transport_key(state_->token); }

}  // namespace herd::launch
