// Holds what a rank needs to sum gradients in a codec that keeps what it loses (comm/encoded_sum.h), or to push them in
// it to parameter servers (param_server/encoded_push.h): for each parameter group the residual, the encoded gradient,
// and room to exchange it. The values e<group> and g<group> in the codec of the Program are this memory. A device's
// gradients are encoded on the host, of the copies that the Program has there.
// In the first `warmup_steps` gradients are summed as they are: encode and decode do nothing, and the sum or the push
// works on the plain gradient, the device's, which no other op touches before it ends. So fetches of gradients, which
// follow decode, must do nothing, too.
// Threads: one for encode and decode, one for exchange, which the Program's hazards order; take_relative_error() from
// any.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "herd/bridge/budget_allocator.h"
#include "herd/comm/communicator.h"
#include "herd/comm/encoded_sum.h"
#include "herd/kernels/codec.h"
#include "herd/param_server/encoded_push.h"
#include "herd/program/program.h"
#include "herd/runtime/flat_parameters.h"
#include "herd/runtime/served_parameters.h"

namespace herd::runtime {

class EncodedGradients {
 public:
  struct Options {
    kernels::CodecSettings codec;
    std::map<int, std::vector<kernels::ElementRange>> exact;  // by group: ranges of its flat gradient that stay exact
    int64_t warmup_steps = 0;
  };
  // Borrows `parameters` and `served`, which must outlive this. Allocates what `step` names. `served` gets the pushes
  // of the step; null where it has none.
  EncodedGradients(const FlatParameters& parameters, const program::Program& step, Options options,
                   const ServedParameters* served = nullptr);

  // `group` is one of groups().
  void encode(int group, int64_t step);
  // As comm::EncodedSum::start_exchange(); in steps of the warm-up one plain sum over `terms`.
  [[nodiscard]] std::vector<Work> start_exchange(int group, int64_t step, Communicator& terms, Communicator& gathers,
                                                 const OpOptions& options);
  void decode(int group, int64_t step);
  // Returns what the group's last encode() has for the servers; null in steps of the warm-up. REQUIRES a step that
  // pushes.
  const PushMessages* messages(int group, int64_t step) const;

  bool is_warming_up(int64_t step) const { return step < options_.warmup_steps; }
  std::vector<int> groups() const;
  const at::Tensor& residual(int group) const;  // fp32; zeros at first

  // What encoding has lost since the last call, as a share of the length of what was encoded; 0 without any.
  double take_relative_error();
  // Bytes of a fp32 gradient divided by those that it is encoded in.
  double ratio() const;

 private:
  struct Group {
    at::Tensor residual, message, incoming, exact;
    std::unique_ptr<comm::EncodedSum> sum;  // null where the group is pushed
    std::unique_ptr<EncodedPush> push;
  };
  void allocate_sum(int group, int axis, const program::Program& step);
  void allocate_push(int group, const ServedParameters& served);
  at::Tensor allocate(int64_t elements, at::ScalarType type, MemoryLabel label) const;  // zeros
  at::Tensor gradient(int group, program::Tier tier) const;
  std::span<float> gradient_to_encode(int group) const;

  const FlatParameters& parameters_;
  Options options_;
  program::Tier tier_ = program::Tier::kDevice;  // of what is encoded
  std::map<int, Group> groups_;
  int64_t plain_bytes_ = 0, encoded_bytes_ = 0;
  std::mutex mutex_;  // guards the squares
  double squares_ = 0, lost_squares_ = 0;
};

}  // namespace herd::runtime
