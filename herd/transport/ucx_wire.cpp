// Sends frames as UCX active messages. Their header is seen before any data moves, and a payload is used straight out
// of UCX's receive buffer. On TCP that moves more bytes per second than tagged messages, whose long ones take turns
// (rendezvous). And no peer ever writes into memory of this process that nobody waits for any more.
#include <poll.h>
#include <sys/types.h>
#include <ucp/api/ucp.h>
#include <ucs/config/global_opts.h>

#include <chrono>
#include <cstring>
#include <utility>

#include "herd/base/check.h"
#include "herd/base/error.h"
#include "herd/base/log.h"
#include "herd/transport/network_interface.h"
#include "herd/transport/wire.h"

namespace herd::transport {
namespace {

using std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr unsigned kMessageId = 7;  // of herd's active messages
// A receive buffer has this size: a long piece arrives in one whole, several short ones in one system call.
constexpr const char* kReceiveBuffer = "256K";
constexpr auto kFarewell = 100ms;  // time to push out what is on its way at the end

[[noreturn]] void fail(const std::string& what, ucs_status_t status, const WireOptions& options) {
  throw Error(Code::kBadConfig,
              "UCX can't " + what + " on network interfaces \"" +
                  (options.interfaces.empty() ? "all" : options.interfaces) + "\": " + ucs_status_string(status) +
                  "\n  fix: HERD_NETWORK=NAME of an interface that reaches the other hosts (herd doctor lists them)");
}

// Returns RDMA where the machine has it, and then no TCP, through which strangers could reach this process. Transports
// within a host are never used.
std::string transports() { return has_rdma() ? "ib,self" : "tcp,self"; }

class UcxWire;

// Holds the connection to a rank.
struct Endpoint {
  UcxWire* wire = nullptr;
  Rank rank = -1;
  ucp_ep_h handle = nullptr;
  bool created = false;
  std::string lost;
};

// Holds one send on its way: its header, and its payload where that is a copy. It is kept for a later send.
struct Sending {
  UcxWire* wire = nullptr;
  FrameHeader header;
  std::shared_ptr<int> in_flight;
  std::vector<std::byte> copy;
};

class UcxWire final : public Wire {
 public:
  explicit UcxWire(const WireOptions& options) : options_(options), endpoints_(static_cast<size_t>(options.size)) {
    ucs_global_opts_set_value("LOG_LEVEL", "fatal");  // herd reports lost peers itself
    ucp_config_t* config = nullptr;
    if (const auto status = ucp_config_read(nullptr, nullptr, &config); status != UCS_OK) {
      fail("read its configuration", status, options);
    }
    const std::string names = options.transports.empty() ? transports() : options.transports;
    ucp_config_modify(config, "TLS", names.c_str());
    if (!options.interfaces.empty()) ucp_config_modify(config, "NET_DEVICES", options.interfaces.c_str());
    // Some versions of UCX name a transport's setting without the transport, others with it. They ignore a name that no
    // transport knows.
    for (const char* name : {"RX_SEG_SIZE", "TCP_RX_SEG_SIZE"}) ucp_config_modify(config, name, kReceiveBuffer);
    ucp_params_t params = {};
    params.field_mask = UCP_PARAM_FIELD_FEATURES;
    params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
    const auto init_status = ucp_init(&params, config, &context_);
    ucp_config_release(config);
    if (init_status != UCS_OK) fail("start", init_status, options);
    ucp_worker_params_t worker = {};
    worker.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
    worker.thread_mode = UCS_THREAD_MODE_SERIALIZED;
    if (const auto status = ucp_worker_create(context_, &worker, &worker_); status != UCS_OK) {
      ucp_cleanup(context_);
      fail("start", status, options);
    }
    ucp_worker_get_efd(worker_, &descriptor_);
    ucp_am_handler_param_t handler = {};
    handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
    handler.id = kMessageId;
    handler.cb = &UcxWire::on_message;
    handler.arg = this;
    ucp_worker_set_am_recv_handler(worker_, &handler);
    for (Rank rank = 0; rank < options.size; ++rank) {
      endpoints_[static_cast<size_t>(rank)].wire = this;
      endpoints_[static_cast<size_t>(rank)].rank = rank;
    }
  }

  ~UcxWire() override {
    handler_ = nullptr;
    const auto until = steady_clock::now() + kFarewell;
    std::vector<void*> closing;
    for (Endpoint& endpoint : endpoints_) {
      if (endpoint.handle != nullptr) closing.push_back(close(endpoint.handle, !endpoint.lost.empty()));
      endpoint.handle = nullptr;
    }
    for (void* request : closing) {
      if (request == nullptr || UCS_PTR_IS_ERR(request)) continue;
      while (ucp_request_check_status(request) == UCS_INPROGRESS && steady_clock::now() < until) {
        if (!progress()) wait(10ms);
      }
      ucp_request_free(request);
    }
    ucp_worker_destroy(worker_);
    ucp_cleanup(context_);
    for (Sending* sending : all_) delete sending;
  }

  std::string_view name() const override { return "ucx"; }

  std::string address() const override {
    ucp_address_t* address = nullptr;
    size_t bytes = 0;
    const auto status = ucp_worker_get_address(worker_, &address, &bytes);
    if (status != UCS_OK) fail("name its address", status, options_);
    std::string text(reinterpret_cast<const char*>(address), bytes);
    ucp_worker_release_address(worker_, address);
    return text;
  }

  std::string description() const override {
    return "ucx " + ucx_version() + " over " + (options_.interfaces.empty() ? "any interface" : options_.interfaces);
  }

  void connect(std::vector<std::string> addresses) override { addresses_ = std::move(addresses); }
  void set_handler(Handler handler) override { handler_ = std::move(handler); }

  void send_copy(Rank to, const FrameHeader& header, std::span<const std::byte> payload) override {
    HERD_CHECK_LE(static_cast<int64_t>(payload.size()), kCopyBytes);
    Sending& sending = take_sending(header);
    sending.copy.assign(payload.begin(), payload.end());
    post(to, sending, sending.copy);
  }

  void send(Rank to, const FrameHeader& header, std::span<const std::byte> payload,
            const std::shared_ptr<int>& in_flight) override {
    HERD_CHECK_LE(static_cast<int64_t>(payload.size()), kPieceBytes);
    Sending& sending = take_sending(header);
    sending.in_flight = in_flight;
    ++*in_flight;
    post(to, sending, payload);
  }

  bool progress() override {
    bool moved = false;
    for (int turns = 0; turns < 16 && ucp_worker_progress(worker_) != 0; ++turns) moved = true;
    return moved;
  }

  bool arm() override { return ucp_worker_arm(worker_) == UCS_OK; }

  void wait(std::chrono::milliseconds at_most) override {
    pollfd network = {descriptor_, POLLIN, 0};
    if (arm()) poll(&network, 1, static_cast<int>(at_most.count()));
  }

  int descriptor() const override { return descriptor_; }
  std::string lost(Rank peer) const override { return endpoints_[static_cast<size_t>(peer)].lost; }

 private:
  static ucs_status_t on_message(void* self, const void* header, size_t header_bytes, void* data, size_t bytes,
                                 const ucp_am_recv_param_t* param) {
    auto* wire = static_cast<UcxWire*>(self);
    if (header_bytes != sizeof(FrameHeader) || (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0) return UCS_OK;
    FrameHeader frame;
    std::memcpy(&frame, header, sizeof frame);
    if (wire->handler_) wire->handler_(frame, {static_cast<const std::byte*>(data), bytes});
    return UCS_OK;
  }

  static void on_error(void* endpoint, ucp_ep_h, ucs_status_t status) {
    auto* lost_endpoint = static_cast<Endpoint*>(endpoint);
    if (lost_endpoint->lost.empty()) lost_endpoint->lost = ucs_status_string(status);
  }

  static void on_sent(void* request, ucs_status_t, void* sending) {
    auto* finished = static_cast<Sending*>(sending);
    finished->wire->release_sending(*finished);
    ucp_request_free(request);
  }

  void* close(ucp_ep_h endpoint, bool broken_already) {
    ucp_request_param_t param = {};
    if (broken_already) {
      param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
      param.flags = UCP_EP_CLOSE_FLAG_FORCE;
    }
    return ucp_ep_close_nbx(endpoint, &param);
  }

  // Returns nullptr where the peer can't be reached.
  ucp_ep_h endpoint_to(Rank to) {
    Endpoint& endpoint = endpoints_[static_cast<size_t>(to)];
    if (endpoint.created) return endpoint.lost.empty() ? endpoint.handle : nullptr;
    endpoint.created = true;
    ucp_ep_params_t params = {};
    params.field_mask =
        UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
    params.address = reinterpret_cast<const ucp_address_t*>(addresses_[static_cast<size_t>(to)].data());
    params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
    params.err_handler.cb = &UcxWire::on_error;
    params.err_handler.arg = &endpoint;
    if (const auto status = ucp_ep_create(worker_, &params, &endpoint.handle); status != UCS_OK) {
      endpoint.handle = nullptr;
      endpoint.lost = ucs_status_string(status);
    }
    return endpoint.handle;
  }

  void post(Rank to, Sending& sending, std::span<const std::byte> payload) {
    const ucp_ep_h endpoint = endpoint_to(to);
    if (endpoint == nullptr) return release_sending(sending);
    ucp_request_param_t param = {};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
    param.flags = UCP_AM_SEND_FLAG_EAGER;
    param.cb.send = &UcxWire::on_sent;
    param.user_data = &sending;
    const ucs_status_ptr_t status = ucp_am_send_nbx(endpoint, kMessageId, &sending.header, sizeof sending.header,
                                                    payload.data(), payload.size(), &param);
    if (status == nullptr || UCS_PTR_IS_ERR(status)) release_sending(sending);
  }

  Sending& take_sending(const FrameHeader& header) {
    if (free_.empty()) {
      all_.push_back(new Sending{this, {}, nullptr, {}});
      free_.push_back(all_.back());
    }
    Sending& sending = *free_.back();
    free_.pop_back();
    sending.header = header;
    return sending;
  }

  void release_sending(Sending& sending) {
    if (sending.in_flight != nullptr) --*sending.in_flight;
    sending.in_flight.reset();
    free_.push_back(&sending);
  }

  WireOptions options_;
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  int descriptor_ = -1;
  Handler handler_;
  std::vector<std::string> addresses_;  // by rank
  std::vector<Endpoint> endpoints_;     // by rank
  std::vector<Sending*> all_, free_;    // free_: those that are not on their way
};

}  // namespace

std::unique_ptr<Wire> open_ucx(const WireOptions& options) { return std::make_unique<UcxWire>(options); }

std::string ucx_version() {
  unsigned major = 0, minor = 0, release = 0;
  ucp_get_version(&major, &minor, &release);
  return std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(release);
}

}  // namespace herd::transport
