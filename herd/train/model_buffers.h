// Holds the buffers of a model's blocks over all ranks: tensors that passes change and no optimizer updates, such as a
// batch norm's running mean and a router's bias (nn/block.h). Each rank changes its own by the samples that it meets;
// those of the first rank that runs a block count, as in torch's DistributedDataParallel.
// Threads: one at a time; collective where it says so.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "herd/checkpoint/named_tensor.h"
#include "herd/comm/communicator.h"
#include "herd/nn/block.h"
#include "herd/spec/model_table.h"

namespace herd::train {

class ModelBuffers {
 public:
  // `table` lists the buffers of all blocks, `blocks` has those that this rank runs. Collective.
  ModelBuffers(const std::vector<std::shared_ptr<nn::Block>>& blocks, const spec::ModelTable& table,
               Communicator& comm);

  // Gives every rank the values of the first one. A validation and a checkpoint come after it. Collective.
  void synchronize();

  const std::set<std::string>& names() const { return names_; }  // of all ranks
  std::vector<NamedTensor> own() const;                          // those of the blocks that this rank runs
  std::vector<NamedTensor> saved() const;                        // those among them that this rank is the first to have

 private:
  struct Buffer {
    std::string name;
    int64_t elements = 0;
    at::Tensor value;  // undefined where this rank does not run the block
    int first_rank = 0;
  };
  Communicator comm_;
  std::vector<Buffer> buffers_;  // the same on all ranks, but for the values
  std::set<std::string> names_;
};

}  // namespace herd::train
