// Averages the gradients of parameters over ranks while backward still runs. It serves any autograd graph over the
// given leaves; DistributedDataParallel holds one.
//
// When a parameter's gradient is complete it is copied into its bucket, and parameter.grad() becomes a view of the
// bucket. A complete bucket is all-reduced at once; buckets start in the same order on every rank. backward() returns
// when all are reduced. Buckets lie in memory that the ranks of a host share, so reducing copies nothing more.
// A parameter that no rank used since the last reduction keeps the gradient it had, usually undefined. So no optimizer
// decays it. torch's DistributedDataParallel does the same. A backward sends the bytes of one all-reduce of the
// gradients, padding and flags. There is a flag for each parameter (ranks that used it) and for each bucket (ranks that
// miss a gradient).
// A sparse gradient, as embeddings give with sparse = true, is no part of a bucket but for its flags: once the buckets
// are reduced, ranks gather the rows that each has, in rank order, and every rank sums them. Each rank then receives
// the rows of all others, so this pays where batches touch few rows of a table. Threads: one thread runs forward and
// backward; hooks run where autograd runs them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "herd/comm/communicator.h"
#include "herd/kernels/codec.h"

namespace herd::ddp {

enum class UnusedParameters : uint8_t {
  kError,  // a parameter without gradient on any rank makes backward throw on all; ranks that miss some name them
  kZero,   // a missing gradient counts as zero, where another rank has one
};

struct ReducerOptions {
  int64_t bucket_bytes = 25 << 20;
  int64_t first_bucket_bytes = 1 << 20;
  UnusedParameters unused = UnusedParameters::kError;
  std::string algorithm = {};  // of the all-reduce; empty = chosen
  // Sends gradients in a shorter form, of kernels/codec.h: bf16, int8, int4, their quantiles or top-k. What encoding
  // loses is added to the next gradients (error feedback), so a bucket takes 4 bytes an element more, and 8 in blocks
  // with two ranks. Gradients must be fp32 on the CPU, and `algorithm` empty. Flags, weights of batches and sparse
  // gradients stay exact.
  std::optional<kernels::CodecSettings> codec = {};
};

struct NamedParameter {
  std::string name;
  at::Tensor tensor;    // a leaf that requires grad
  bool sparse = false;  // its gradient is sparse in the first dimension, as a torch::nn::Embedding's can be
};

class GradientReducer {
 public:
  // Collective. Shares the group of `comm`, which may end before this. Parameters must be the same on every rank, each
  // tensor once, dense, of a floating dtype; else throws kBadConfig. So it does for a codec that they can't have.
  GradientReducer(std::vector<NamedParameter> parameters, Communicator& comm, ReducerOptions options);
  ~GradientReducer();  // parameters keep their gradients

  // Throws kAborted if an exception ended the last backward half-way on this rank.
  void check_ready() const;

  // Counts a forward whose gradients are to be reduced. The buckets' fingerprints contain the count. So where a rank
  // skips a backward, as after a NaN loss, its next one fails and does not meet an earlier one of its peers.
  void count_forward();

  // While off, backward only adds to the local gradients; the next one with reducing on averages the whole sum.
  void set_reducing(bool on);
  bool reducing() const;

  // Sets this rank's weight in the next reduced gradient, sum over ranks of weight * gradient / sum of weights. With
  // losses that are means over `weight` samples, that is the gradient of the mean over all samples. Collective: throws
  // kBadConfig on every rank where a weight is not finite, is below 0, or all are 0.
  void set_weight(double weight);

  // A rank that has no batch left calls this in place of backward. It takes part in the reduction with zeros, or with
  // what backwards without reducing have added up. It counts as many forwards as its last reduction had, at first 1.
  void join_without_batch();

  int num_buckets() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace herd::ddp
