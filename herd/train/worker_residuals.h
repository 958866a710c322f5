// Brings what encoding gradients has lost on ranks that only push (error feedback) to ranks that save, where ranks run
// ahead of each other. Each of the former has a connection with one of the latter, which fails alone: of a rank that is
// lost the checkpoint has none. A rank that saves holds a whole gradient for each of its ranks until it has saved.
// Threads: one at a time.
#pragma once

#include <chrono>
#include <vector>

#include "herd/checkpoint/named_tensor.h"
#include "herd/comm/communicator.h"
#include "herd/comm/connection.h"
#include "herd/runtime/encoded_gradients.h"
#include "herd/runtime/flat_parameters.h"

namespace herd::train {

class WorkerResiduals {
 public:
  // The first `num_savers` ranks of `comm` save; the others take turns with them. Collective over `comm`. Borrows
  // `encoded` and `parameters`.
  WorkerResiduals(const Communicator& comm, int num_savers, const runtime::EncodedGradients& encoded,
                  const runtime::FlatParameters& parameters, std::chrono::milliseconds deadline);

  // Gives this rank's to the rank that saves them. REQUIRES a rank that does not save, whose step is drained.
  void send();
  // Returns those of the other ranks that this one saves for, but of ranks that are lost. Throws kTimeout where one
  // sends nothing within the deadline.
  std::vector<NamedTensor> receive();

 private:
  const runtime::EncodedGradients& encoded_;
  const runtime::FlatParameters& parameters_;
  std::chrono::milliseconds deadline_;
  std::vector<comm::Connection> peers_;  // of a rank that saves: those it saves for; of another: the one that saves
};

}  // namespace herd::train
