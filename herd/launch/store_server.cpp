#include "herd/launch/store_server.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

#include "herd/base/descriptor.h"
#include "herd/base/log.h"
#include "herd/launch/address_internal.h"
#include "herd/launch/keys.h"
#include "herd/launch/message_stream.h"
#include "herd/net/listener.h"

namespace herd::launch {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

namespace {
constexpr auto kServerFlushLimit = 200ms;  // time limit for sending the last messages
}

// Holds the table of values, the connections of the clients, and the thread that serves them.
struct StoreServer::State {
  State(const StoreAddress& address, const std::string& token, int clients);
  ~State();
  void serve();
  void accept_clients();
  void receive(int descriptor);
  void drop(int descriptor);
  void report_refusal(const std::string& what, int64_t count = 1);
  void send(const std::vector<StoreTable::Answer>& answers);
  void flush(int descriptor);
  void flush_last_messages();
  void wake() {
    const uint64_t one = 1;
    [[maybe_unused]] const auto written = write(wake_fd.fd, &one, sizeof one);
  }

  struct Client {
    MessageStream stream;
    bool watches_writable = false;  // epoll reports when its socket takes bytes again
  };

  const size_t expected_clients;  // number of clients; 0 = not known
  net::SecureContext context;
  std::unique_ptr<net::Listener> listener;
  std::string rendezvous;
  Descriptor epoll, wake_fd;
  std::map<int, Client> clients;             // by descriptor; only the thread uses the members from here to the mutex
  std::map<std::string, int> descriptor_of;  // by the client's name
  int64_t refused = 0;
  Clock::time_point last_report = {};
  int64_t unreported = 0;
  mutable std::mutex mutex;
  mutable std::condition_variable changed;
  StoreTable table;                         // guarded by mutex
  std::vector<StoreTable::Answer> to_send;  // answers that fail() produced; guarded by mutex
  bool stopping = false;                    // guarded by mutex
  std::thread thread;
};

namespace {

void watch(int epoll, int operation, int descriptor, uint32_t events) {
  epoll_event event = {};
  event.events = events;
  event.data.fd = descriptor;
  if (epoll_ctl(epoll, operation, descriptor, &event) != 0) throw_errno(Code::kStorage, "watch a socket", errno);
}

// Where ranks outnumber cores, all of them may be connecting at the same time: they must not crowd each other out.
net::ListenerLimits limits_for(int num_clients) {
  constexpr int kMaxStrangers = 1024;
  net::ListenerLimits limits;
  limits.max_strangers = std::clamp(num_clients, limits.max_strangers, kMaxStrangers);
  return limits;
}

std::unique_ptr<net::Listener> listen_at(const net::SecureContext& context, const StoreAddress& address,
                                         int num_clients) {
  int error_number = 0;
  try {
    return std::make_unique<net::Listener>(context, std::vector<std::string>{numeric_host(address)}, address.port,
                                           limits_for(num_clients), &error_number);
  } catch (const Error& error) {
    if (error_number == 0) throw;
    if (error_number != EADDRINUSE) {
      throw Error(
          Code::kBadConfig,
          error.message() + "\n  fix: the rendezvous host is an address of node 0, the machine that rank 0 runs on");
    }
    const std::string holder = port_holder(address.port);
    throw Error(Code::kBadConfig, "the rendezvous port " + std::to_string(address.port) + " is taken" +
                                      (holder.empty() ? "" : " by " + holder) +
                                      "\n  fix: give each job a port of its own (--rendezvous " + address.host +
                                      ":PORT), or stop the other one");
  }
}

}  // namespace

StoreServer::State::State(const StoreAddress& address, const std::string& token, int num_clients)
    : expected_clients(static_cast<size_t>(num_clients)),
      context(derive_store_key(token)),
      listener(listen_at(context, address, num_clients)),
      epoll(epoll_create1(EPOLL_CLOEXEC)),
      wake_fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (epoll.fd < 0 || wake_fd.fd < 0) throw_errno(Code::kStorage, "create descriptors for the store", errno);
  const bool v6 = address.host.find(':') != std::string::npos;
  rendezvous = (v6 ? "[" + address.host + "]" : address.host) + ":" + std::to_string(listener->port());
  watch(epoll.fd, EPOLL_CTL_ADD, wake_fd.fd, EPOLLIN);
  watch(epoll.fd, EPOLL_CTL_ADD, listener->descriptor(), EPOLLIN);
  thread = std::thread([this] { serve(); });
}

StoreServer::State::~State() {
  {
    std::lock_guard lock(mutex);
    stopping = true;
  }
  wake();
  thread.join();
}

void StoreServer::State::serve() {
  while (true) {
    std::array<epoll_event, 64> events{};
    const int ready = epoll_wait(epoll.fd, events.data(), static_cast<int>(events.size()), 1000);
    bool has_connections = false;
    for (int i = 0; i < ready; ++i) {
      const int descriptor = events[static_cast<size_t>(i)].data.fd;
      if (descriptor == listener->descriptor()) has_connections = true;
      if (clients.contains(descriptor)) receive(descriptor);
    }
    if (has_connections) accept_clients();  // comes last: a new connection may reuse the descriptor of a closed one
    listener->throttle(expected_clients > 0 && clients.size() >= expected_clients);
    uint64_t drained;
    [[maybe_unused]] const auto count = read(wake_fd.fd, &drained, sizeof drained);
    std::vector<StoreTable::Answer> answers;
    bool stop;
    {
      std::lock_guard lock(mutex);
      answers.swap(to_send);
      stop = stopping;
    }
    send(answers);
    if (stop) return flush_last_messages();
  }
}

void StoreServer::State::accept_clients() {
  for (auto& socket : listener->accept()) {
    const std::string name = socket->peer_name();
    const int descriptor = socket->descriptor();
    if (const auto old = descriptor_of.find(name); old != descriptor_of.end()) drop(old->second);
    watch(epoll.fd, EPOLL_CTL_ADD, descriptor, EPOLLIN);
    descriptor_of[name] = descriptor;
    clients.insert_or_assign(descriptor, Client{MessageStream(std::move(socket))});
    receive(descriptor);
  }
  if (listener->refused() > refused) report_refusal(listener->last_refusal(), listener->refused() - refused);
  refused = listener->refused();
}

void StoreServer::State::drop(int descriptor) {
  const auto found = clients.find(descriptor);
  if (found == clients.end()) return;
  const std::string& name = found->second.stream.socket().peer_name();
  descriptor_of.erase(name);
  {
    std::lock_guard lock(mutex);
    table.disconnect(name, Clock::now());
  }
  epoll_ctl(epoll.fd, EPOLL_CTL_DEL, descriptor, nullptr);
  clients.erase(found);
}

void StoreServer::State::report_refusal(const std::string& what, int64_t count) {
  unreported += count;
  if (Clock::now() - last_report < 1s) return;
  log_warning("the store at " + rendezvous + " refused a connection (" + what + ")" +
              (unreported > 1 ? ", and " + std::to_string(unreported - 1) + " before it" : ""));
  last_report = Clock::now();
  unreported = 0;
}

void StoreServer::State::receive(int descriptor) {
  MessageStream& stream = clients.at(descriptor).stream;
  while (const auto frame = stream.next()) {
    std::vector<StoreTable::Answer> answers;
    std::string dropped;
    {
      std::lock_guard lock(mutex);
      answers = table.handle(stream.socket().peer_name(), *frame, Clock::now(), &dropped);
    }
    if (!dropped.empty()) report_refusal(dropped);
    send(answers);
    changed.notify_all();
  }
  if (!stream.end_reason().empty()) return drop(descriptor);
  flush(descriptor);
}

void StoreServer::State::send(const std::vector<StoreTable::Answer>& answers) {
  for (const auto& [peer, message] : answers) {
    const auto found = descriptor_of.find(peer);
    if (found == descriptor_of.end()) continue;  // the peer is gone; its launcher watches its process
    clients.at(found->second).stream.post(encode(message));
    flush(found->second);
  }
}

void StoreServer::State::flush(int descriptor) {
  Client& client = clients.at(descriptor);
  const bool blocked = !client.stream.flush();
  if (blocked == client.watches_writable) return;
  client.watches_writable = blocked;
  watch(epoll.fd, EPOLL_CTL_MOD, descriptor, blocked ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

// Sends the last messages, for which clients may still wait.
void StoreServer::State::flush_last_messages() {
  const auto until = Clock::now() + kServerFlushLimit;
  const auto waits = [](auto& one) { return !one.second.stream.flush() && one.second.stream.end_reason().empty(); };
  while (std::count_if(clients.begin(), clients.end(), waits) > 0 && Clock::now() < until) {
    std::this_thread::sleep_for(1ms);
  }
}

StoreServer::StoreServer(const StoreAddress& address, const std::string& token, int clients)
    : state_(std::make_unique<State>(address, token, clients)) {}
StoreServer::~StoreServer() = default;

const std::string& StoreServer::rendezvous() const { return state_->rendezvous; }

void StoreServer::fail(uint32_t scope, const Failure& failure) {
  {
    std::lock_guard lock(state_->mutex);
    for (auto& answer : state_->table.fail(scope, failure)) state_->to_send.push_back(std::move(answer));
  }
  state_->wake();
}

std::optional<std::string> StoreServer::value(uint32_t scope, const std::string& key) const {
  std::lock_guard lock(state_->mutex);
  return state_->table.value(scope, key);
}

std::optional<Failure> StoreServer::failure(uint32_t scope) const {
  std::lock_guard lock(state_->mutex);
  return state_->table.failure(scope);
}

std::optional<Refusal> StoreServer::refusal(uint32_t scope) const {
  std::lock_guard lock(state_->mutex);
  return state_->table.refusal(scope);
}

std::vector<ClientState> StoreServer::peers(uint32_t scope) const {
  std::lock_guard lock(state_->mutex);
  return state_->table.peers(scope);
}

bool StoreServer::wait_peers(uint32_t scope, const std::function<bool(const std::vector<ClientState>&)>& done,
                             SteadyTime deadline) const {
  std::unique_lock lock(state_->mutex);
  while (!done(state_->table.peers(scope))) {
    if (Clock::now() >= deadline) return false;
    state_->changed.wait_for(lock, 20ms);
  }
  return true;
}

}  // namespace herd::launch
