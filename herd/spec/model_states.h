// Counts the bytes of weights, gradients and optimizer states. Symbols: psi parameters, N ranks that share them.
// Threads: pure.
#pragma once

#include <cstdint>

#include "herd/spec/run_file.h"

namespace herd::spec {

// Bytes per parameter of each kind; moments, master weights and gradient copies count as states.
struct StateBytes {
  double weight = 4, gradient = 4, states = 8;
  double total() const { return weight + gradient + states; }
  bool operator==(const StateBytes&) const = default;
};

inline constexpr StateBytes kFp32Adam = {4, 4, 8};      // 16 bytes a parameter
inline constexpr StateBytes kBf16Adam = {2, 2, 10};     // fp32 weight in two halves, bf16 gradient, fp32 moments: 14
inline constexpr StateBytes kBf16Momentum = {2, 2, 8};  // the same with a bf16 momentum: 4 + 2 + 2 + 4 = 12
inline constexpr StateBytes kFp16Master = {2, 2, 12};   // fp32 master weight and moments: 16
inline constexpr StateBytes kFp16MasterGradient = {2, 2, 16};  // and an fp32 gradient copy: 20

// Returns the bytes that a run keeps per parameter. Weight and gradient have strategy.precision;
// strategy.gradient_precision may make the gradient fp32. AdamW keeps two fp32 moments, SGD with momentum one;
// optimizer.momentum_precision may make the first one bf16.
// States also hold what makes 16-bit weights exact: an fp32 master copy of fp16, the lower 2 bytes of an fp32 weight
// for bf16. Offloaded states lie apart from the weights, so they hold a master copy for bf16, too.
StateBytes state_bytes(const RunFile& run);

// Returns the bytes per rank under ZeRO stage 0..3 over N ranks (weight + gradient = 4, states K = 12 in the paper's
// units):
//   0: (4+K)psi   1: 4psi + K*psi/N   2: 2psi + (2+K)psi/N   3: (4+K)psi/N
// Check: psi = 7.5e9, N = 64, K = 12 gives 120 / 31.4 / 16.6 / 1.9 GB.   Throws kBadConfig unless 0 <= stage <= 3.
// Source: Rajbhandari et al. 2020, arXiv:1910.02054, section 5.
double zero_state_bytes(double parameters, int ranks, int stage, StateBytes per_parameter = kFp16Master);

// Returns the bytes of a rank's shard of `bytes`, cut over `ranks`. All shards are alike and made of 64-byte lines, so
// the last ones may hold less of it, or nothing but padding. Together they take at most 64 * ranks - 1 bytes more than
// the whole.
int64_t shard_bytes(int64_t bytes, int ranks);

// Returns the elements that a rank sends in a step: 2psi(N-1)/N for stage 0..2 (reduce-scatter and all-gather),
// 3psi(N-1)/N for stage 3, which gathers weights once more for backward. Source: Rajbhandari et al. 2020, section 7.
double zero_elements_sent(double parameters, int ranks, int stage);

// Returns the elements that a rank sends in a step with f `shards` (ranks of a host) and d `replicas` of each shard:
// (stage 3 ? 3 : 2) psi(f-1)/f + 2 psi/f (d-1)/d. The gradient of a shard is all-reduced among its replicas.
// Source: Zhao et al. 2023, arXiv:2304.11277, section 3.2.2 (hybrid sharding).
double hybrid_elements_sent(double parameters, int shards, int replicas, int stage);

// Return the elements of 2 bytes, of M parameters, that cross hosts in a step. ZeRO-3 sends 3M: two gathers,
// one reduce-scatter. ZeRO++ sends 0.75M: weights once as int8 (0.5M), no second time since each host keeps a copy for
// backward, and gradients as int4 (0.25M). Source: Wang et al. 2023, arXiv:2306.10209, table 1.
double zero3_elements_across_hosts(double parameters);
double zero_plus_plus_elements_across_hosts(double parameters);

// Returns the bytes that a value of `bytes` takes in a file on NVMe, and in the host memory from which it is read and
// written: whole blocks of 4096 bytes, with room for parts that each begin on a cache line.
int64_t nvme_bytes(int64_t bytes);

}  // namespace herd::spec
