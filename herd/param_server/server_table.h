// Holds the weights and optimizer states of one server, and the rounds that its workers have pushed so far. An update
// of a key is done as a whole or not at all: a push counts once all of its bytes have come.
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "herd/base/error.h"
#include "herd/param_server/key_table.h"
#include "herd/param_server/server_options.h"

namespace herd::param_server {

using Floats = std::shared_ptr<float[]>;

struct Snapshot {
  Floats weights;  // does not change any more: an update that comes meanwhile writes to a copy
  int64_t count = 0;
  int64_t version = 0;
  int64_t staleness = 0;  // rounds that the worker has pushed and another, at least, has not
};

class ServerTable {
 public:
  ServerTable(KeyTable keys, int server, int num_servers, int num_workers, ServerOptions options);

  const KeyTable& keys() const { return keys_; }
  kernels::ElementRange piece(int64_t index) const { return keys_.piece(index, server_, num_servers_); }
  // Throws kBadConfig where the worker's last pull is too old for another push.
  void check_push(int worker, int64_t index) const;
  // Returns memory for the gradient of this server's piece. It holds old values.
  Floats take_buffer(int64_t index);
  // Takes the gradient; REQUIRES that check_push() throws nothing. `rate` replaces the optimizer's; NaN: it does not.
  void push(int worker, int64_t index, Floats gradient, double rate);
  // Returns nothing as long as the worker has to wait for pushes of others.
  std::optional<Snapshot> pull(int worker, int64_t index);
  int64_t version(int64_t index) const;
  // Takes the worker out of the rounds. `lost` says why, empty where it left in good order.
  void remove_worker(int worker, const std::string& lost);
  // Throws what ended the training here: a lost worker, or fail().
  void check_failed() const;
  void fail(const Error& error);  // ends the training; the first error counts
  // Returns the workers that the update of the next version waits for.
  std::vector<int> missing(int64_t index) const;

 private:
  struct Round {
    std::vector<Floats> gradients;  // by worker
    double rate = 0;                // of the first worker that pushed
  };
  struct Progress {
    int64_t pushed = 0;         // rounds
    int64_t pulled_rounds = 0;  // those of all workers in the weights that it has
  };
  struct Entry {
    Floats weights, moment1, moment2;
    int64_t version = 0;
    std::vector<Progress> workers;
    std::vector<Round> rounds;   // rounds[i] becomes version + 1 + i
    std::vector<Floats> unused;  // gradient buffers
  };
  Entry& entry(int64_t index);
  const Entry* find(int64_t index) const;
  int64_t complete_rounds(const Entry& entry) const;  // which all workers have pushed
  void update_complete_rounds(int64_t index, Entry& entry);
  void update(int64_t index, Entry& entry, Round& round);
  Floats moment(int64_t index, int k) const;
  void step(int64_t index, Entry& entry, const float* gradient, double rate);

  KeyTable keys_;
  int server_, num_servers_;
  ServerOptions options_;
  std::vector<bool> present_;                    // by worker
  std::vector<std::unique_ptr<Entry>> entries_;  // by index; null until it is used
  std::optional<Error> failed_;
};

}  // namespace herd::param_server
