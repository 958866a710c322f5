// Connects a rank to the job's store: herd::Store over TCP inside TLS (herd/net). One thread sends a heartbeat every
// 200 ms, so that liveness does not depend on any deadline. set, add and erase wait at most 30 s.
// Errors: kBadConfig where the store refuses the client (another token, a rank that is in the job twice). kTimeout has
// what the store knows about the ranks. kPeerLost comes within 2 s after the store's process is gone. get() also throws
// the job's failure.
// Threads: any. REQUIRES that the process does not fork while a client exists; posix_spawn is fine.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "herd/base/store.h"
#include "herd/launch/environment.h"
#include "herd/launch/store_table.h"

namespace herd::launch {

// Tells the store who a client is.
struct ClientIdentity {
  int rank = 0, size = 1;
  uint32_t scope = 0;  // attempt of the job, counted by its restarts; or kLaunchers (store_protocol.h)
};

class StoreClient final : public Store {
 public:
  // Connects to the store at `rendezvous`, "HOST:PORT". `host` owns the store's server where this process hosts it,
  // else it is null. Returns when the store knows the client. Tries until the deadline while nobody listens, since the
  // store may start later.
  StoreClient(const std::string& rendezvous, const std::string& token, const ClientIdentity& identity,
              SteadyTime deadline, std::shared_ptr<void> host = nullptr);
  ~StoreClient() override;  // says goodbye, then releases `host`

  void set(const std::string& key, const std::string& value) override;
  std::string get(const std::string& key, SteadyTime deadline) override;
  int64_t add(const std::string& key, int64_t delta) override;
  void erase(const std::string& key) override;

  // Sends the status with the next heartbeat; the call only copies the text. `sequence` numbers the
  // operation, from 0 up.
  void note_status(int64_t sequence, std::string_view text);
  // Fails the whole job: every rank's get() throws this. A launcher gives the scope of its ranks.
  void fail(const Failure& failure);
  void fail(uint32_t scope, const Failure& failure);
  // Returns the job's failure as far as this client knows, the loss of the store included. A launcher hears of the
  // failures of every scope.
  std::optional<Failure> failure() const;
  std::optional<Failure> failure(uint32_t scope) const;
  std::optional<Failure> reported_failure(uint32_t scope) const;  // the same without the loss of the store
  SteadyTime last_heard() const;                                  // time of the store's last message
  std::optional<Failure> lost() const;                            // says why the store is lost; nothing while it is not
  // Makes calls throw kPeerLost once the store has left heartbeats unanswered for this long; 0 = never, as at first.
  void give_up_after(std::chrono::milliseconds silence);
  std::string secret() const;  // returns 32 bytes, the same for every process that holds the token

 private:
  struct State;
  std::shared_ptr<void> host_;  // dies after state_
  std::unique_ptr<State> state_;
};

// Connects to the store of this process's job. Under herd run it is in the launcher. Under torchrun, mpirun and srun
// rank 0 hosts it in its own process. The store's destructor there waits, up to 10 s, for the other ranks'
// goodbyes. A job of one rank that herd run did not start gets a MemoryStore. Waits 30 s for the store to appear.
std::unique_ptr<Store> connect_store(const Environment& environment);
std::unique_ptr<Store> connect_store(const Environment& environment, SteadyTime deadline);  // waits so long

// Completes the settings of read_settings() for connect_store(), for ranks that a program numbers itself. `init_method`
// is "tcp://HOST:PORT": rank 0 hosts the store there, and all ranks hold the token. Without a token, an address of
// loopback is a name by which processes of this user meet (local_meeting.h). Throws kBadConfig for another form, a rank
// out of range, or an address that others reach where there is no token.
Environment numbered_environment(Environment settings, const std::string& init_method, int rank, int size);

// Returns 32 bytes that only the processes of this job know, for the data plane's own authentication: those of a
// StoreClient, or else of the environment's token. Throws kBadConfig where there is neither.
std::string job_secret(const Store& store, const Environment& environment);

}  // namespace herd::launch
