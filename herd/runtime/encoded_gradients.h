// Holds what a rank needs to sum gradients in a codec that keeps what it loses (comm/encoded_sum.h): for each parameter
// group the residual, the encoded gradient, and room to exchange it. The values e<group> and g<group> in the codec of
// the Program are this memory.
// In the first `warmup_steps` gradients are summed as they are: encode and decode do nothing, and the sum works on the
// plain gradient, which no other op touches between them.
// Threads: one for encode and decode, one for exchange; the Program's hazards order them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "herd/comm/communicator.h"
#include "herd/comm/encoded_sum.h"
#include "herd/kernels/codec.h"
#include "herd/program/program.h"
#include "herd/runtime/flat_parameters.h"

namespace herd::runtime {

class EncodedGradients {
 public:
  struct Options {
    kernels::CodecSettings codec;
    std::map<int, std::vector<kernels::ElementRange>> exact;  // by group: ranges of its flat gradient that stay exact
    int64_t warmup_steps = 0;
  };
  // Borrows `parameters`, which must outlive this. Allocates what `step` names.
  EncodedGradients(const FlatParameters& parameters, const program::Program& step, Options options);

  // `group` is one of groups().
  void encode(int group, int64_t step);
  // As comm::EncodedSum::start_exchange(); in steps of the warm-up one plain sum over `terms`.
  [[nodiscard]] std::vector<Work> start_exchange(int group, int64_t step, Communicator& terms, Communicator& gathers,
                                                 const OpOptions& options);
  void decode(int group, int64_t step);

  std::vector<int> groups() const;
  const at::Tensor& residual(int group) const;  // fp32; zeros at first

  // What encoding has lost since the last call, as a share of the length of what was encoded; 0 without any.
  double take_relative_error();
  // Bytes of a fp32 gradient divided by those that it is encoded in.
  double ratio() const;

 private:
  struct Group {
    at::Tensor residual, message, incoming, exact;
    std::unique_ptr<comm::EncodedSum> sum;
  };
  bool is_warming_up(int64_t step) const { return step < options_.warmup_steps; }
  std::span<float> gradient(int group) const;

  const FlatParameters& parameters_;
  Options options_;
  std::map<int, Group> groups_;
  int64_t plain_bytes_ = 0, encoded_bytes_ = 0;
  double squares_ = 0, lost_squares_ = 0;
};

}  // namespace herd::runtime
