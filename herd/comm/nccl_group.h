// Runs the collectives of a group by NCCL, each rank on a GPU of its own. A barrier of the host comes before each: it
// compares fingerprints and shows that all ranks are there, so NCCL is launched only where all launch the same. What
// does not end is a deadline of the operation; a group that fails aborts its communicator.
// Threads: one at a time.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "herd/base/device_driver.h"
#include "herd/base/reduce_op.h"
#include "herd/base/store.h"
#include "herd/comm/device_collectives.h"
#include "herd/comm/nccl_library.h"
#include "herd/transport/transport.h"

namespace herd::comm {

class NcclGroup final : public DeviceCollectives, public std::enable_shared_from_this<NcclGroup> {
 public:
  NcclGroup(Device device, Rank rank, int num_ranks, std::shared_ptr<transport::Transport> transport);
  ~NcclGroup() override;

  // Returns what rank 0 gives to the others. Throws kBadConfig with NCCL's words.
  static NcclUniqueId make_id();
  // Joins the others; returns why it can't, empty where it can. It blocks, until the deadline at most.
  std::string join(const NcclUniqueId& id, SteadyTime deadline);

  Device device() const override { return device_; }
  std::string_view name() const override { return "nccl"; }
  bool supports(Collective collective, DType dtype, ReduceOp op, bool reduces) const override;
  std::vector<std::shared_ptr<DeviceSteps>> steps_of(DeviceCollective collective) override;
  void drain() override;
  void leave_open() override;

 private:
  class Launch;
  std::byte* scratch(int64_t bytes);
  void check(int result, const char* what);
  void await_launch(const char* what);  // of a communicator that does not block

  const NcclLibrary& library_;
  DeviceDriver& driver_;
  Device device_;
  Rank rank_;
  int num_ranks_;
  std::shared_ptr<transport::Transport> transport_;
  StreamHandle stream_ = nullptr;
  NcclComm comm_ = nullptr;
  std::byte* scratch_ = nullptr;
  int64_t scratch_bytes_ = 0;
  bool failed_ = false;
};

}  // namespace herd::comm
