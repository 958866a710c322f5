#include "herd/launch/store_server.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <condition_variable>
#include <mutex>
#include <thread>
#include <zmq.hpp>

#include "herd/base/log.h"
#include "herd/launch/address_internal.h"
#include "herd/launch/keys.h"
#include "herd/launch/poll_internal.h"

namespace herd::launch {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

struct StoreServer::State {
  State(const StoreAddress& address, const std::string& token);
  ~State();
  void serve();
  void receive();
  void authenticate();
  void watch_strangers();
  void report_stranger(const std::string& what);
  void send(const std::vector<StoreTable::Answer>& answers);
  void wake() {
    const uint64_t one = 1;
    [[maybe_unused]] const auto written = write(wake_fd, &one, sizeof one);
  }

  CurveKeys keys;
  zmq::context_t context;
  zmq::socket_t router, zap, monitor;
  std::string rendezvous;
  int wake_fd = -1;
  mutable std::mutex mutex;
  mutable std::condition_variable changed;
  StoreTable table;                         // under mutex
  std::vector<StoreTable::Answer> to_send;  // under mutex: what fail() produced
  bool stopping = false;                    // under mutex
  Clock::time_point last_report = {};       // serving thread alone
  int64_t unreported = 0;
  std::thread thread;
};

StoreServer::State::State(const StoreAddress& address, const std::string& token)
    : keys(derive_keys(token)),
      router(context, zmq::socket_type::router),
      zap(context, zmq::socket_type::rep),
      monitor(context, zmq::socket_type::pair) {
  zap.bind("inproc://zeromq.zap.01");
  router.set(zmq::sockopt::curve_server, 1);
  router.set(zmq::sockopt::curve_secretkey, keys.server_secret);
  router.set(zmq::sockopt::zap_domain, "herd");
  router.set(zmq::sockopt::ipv6, true);
  router.set(zmq::sockopt::linger, 200);
  router.set(zmq::sockopt::sndhwm, 0);
  router.set(zmq::sockopt::rcvhwm, 0);
  router.set(zmq::sockopt::maxmsgsize, static_cast<int64_t>(kHeaderBytes + kMaxKeyBytes + kMaxValueBytes));
  router.set(zmq::sockopt::handshake_ivl, 5000);
  const int watched = ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL | ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL;
  if (zmq_socket_monitor(router.handle(), "inproc://strangers", watched) != 0) throw zmq::error_t();
  monitor.connect("inproc://strangers");
  const std::string endpoint = tcp_endpoint(address);
  try {
    router.bind(address.port == 0 ? endpoint.substr(0, endpoint.rfind(':')) + ":*" : endpoint);
  } catch (const zmq::error_t& error) {
    const std::string place = address.host + ":" + std::to_string(address.port);
    if (error.num() == EADDRINUSE) {
      const std::string holder = port_holder(address.port);
      throw Error(Code::kBadConfig, "the rendezvous port " + std::to_string(address.port) + " is taken" +
                                        (holder.empty() ? "" : " by " + holder) +
                                        "\n  fix: give each job a port of its own (--rendezvous " + address.host +
                                        ":PORT), or stop the other one");
    }
    throw Error(Code::kBadConfig,
                "can't listen on " + place + ": " + error.what() +
                    "\n  fix: the rendezvous host is an address of node 0, the machine that rank 0 runs on");
  }
  const std::string bound = router.get(zmq::sockopt::last_endpoint);
  rendezvous = address.host + bound.substr(bound.rfind(':'));
  if (address.host.find(':') != std::string::npos)
    rendezvous = "[" + address.host + "]" + bound.substr(bound.rfind(':'));
  wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake_fd < 0) throw_errno(Code::kStorage, "eventfd", errno);
  thread = std::thread([this] { serve(); });
}

StoreServer::State::~State() {
  if (thread.joinable()) {
    {
      std::lock_guard lock(mutex);
      stopping = true;
    }
    wake();
    thread.join();
  }
  zmq_socket_monitor(router.handle(), nullptr, 0);
  if (wake_fd >= 0) close(wake_fd);
}

void StoreServer::State::serve() {
  zmq::pollitem_t items[] = {{router.handle(), 0, ZMQ_POLLIN, 0},
                             {zap.handle(), 0, ZMQ_POLLIN, 0},
                             {monitor.handle(), 0, ZMQ_POLLIN, 0},
                             {nullptr, wake_fd, ZMQ_POLLIN, 0}};
  while (true) {
    poll_sockets(items, 1000ms);
    if (items[1].revents) authenticate();
    if (items[2].revents) watch_strangers();
    if (items[0].revents) receive();
    uint64_t drained;
    [[maybe_unused]] const auto count = read(wake_fd, &drained, sizeof drained);
    std::vector<StoreTable::Answer> answers;
    bool stop;
    {
      std::lock_guard lock(mutex);
      answers.swap(to_send);
      stop = stopping;
    }
    send(answers);
    if (stop) return;
  }
}

// ZAP, RFC 27: version, request id, domain, address, identity, mechanism, credentials. Only our client key may enter.
void StoreServer::State::authenticate() {
  std::vector<std::string> frames;
  zmq::message_t part;
  do {
    if (!zap.recv(part, zmq::recv_flags::none)) return;
    frames.push_back(part.to_string());
  } while (part.more());
  char key[41] = "";
  if (frames.size() == 7 && frames[5] == "CURVE" && frames[6].size() == 32) {
    zmq_z85_encode(key, reinterpret_cast<const uint8_t*>(frames[6].data()), 32);
  }
  const bool welcome = keys.client_public == key;
  if (!welcome) report_stranger("a client key that is not of this job");
  const std::string request_id = frames.size() > 1 ? frames[1] : "";
  const std::string reply[] = {"1.0",  request_id, welcome ? "200" : "400", welcome ? "OK" : "not of this job",
                               "rank", ""};
  for (size_t i = 0; i < 6; ++i) {
    zap.send(zmq::buffer(reply[i]), i < 5 ? zmq::send_flags::sndmore : zmq::send_flags::none);
  }
}

void StoreServer::State::watch_strangers() {
  zmq::message_t event, endpoint;
  while (monitor.recv(event, zmq::recv_flags::dontwait)) {
    if (event.more() && !monitor.recv(endpoint, zmq::recv_flags::none)) return;
    report_stranger("no handshake with this job's token");
  }
}

void StoreServer::State::report_stranger(const std::string& what) {
  ++unreported;
  if (Clock::now() - last_report < 1s) return;
  log::warning("the store at " + rendezvous + " refused a connection (" + what + ")" +
               (unreported > 1 ? ", and " + std::to_string(unreported - 1) + " before it" : ""));
  last_report = Clock::now();
  unreported = 0;
}

void StoreServer::State::receive() {
  zmq::message_t peer, frame, more;
  while (router.recv(peer, zmq::recv_flags::dontwait)) {
    if (!peer.more() || !router.recv(frame, zmq::recv_flags::none)) continue;
    bool extra = frame.more();
    while (extra && router.recv(more, zmq::recv_flags::none)) extra = more.more();
    std::vector<StoreTable::Answer> answers;
    std::string dropped;
    {
      std::lock_guard lock(mutex);
      answers = table.handle(peer.to_string(), frame.to_string_view(), Clock::now(), &dropped);
    }
    if (!dropped.empty()) report_stranger(dropped);
    send(answers);
    changed.notify_all();
  }
}

void StoreServer::State::send(const std::vector<StoreTable::Answer>& answers) {
  for (const auto& [peer, message] : answers) {
    try {
      router.send(zmq::buffer(peer), zmq::send_flags::sndmore);
      router.send(zmq::buffer(encode(message)), zmq::send_flags::dontwait);
    } catch (const zmq::error_t&) {  // the peer is gone: its process is watched elsewhere
    }
  }
}

StoreServer::StoreServer(const StoreAddress& address, const std::string& token)
    : state_(std::make_unique<State>(address, token)) {}
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

std::vector<PeerState> StoreServer::peers(uint32_t scope) const {
  std::lock_guard lock(state_->mutex);
  return state_->table.peers(scope);
}

bool StoreServer::wait_peers(uint32_t scope, const std::function<bool(const std::vector<PeerState>&)>& done,
                             SteadyTime deadline) const {
  std::unique_lock lock(state_->mutex);
  while (!done(state_->table.peers(scope))) {
    if (Clock::now() >= deadline) return false;
    state_->changed.wait_for(lock, 20ms);
  }
  return true;
}

}  // namespace herd::launch
