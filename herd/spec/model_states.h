// Bytes of weights, gradients and optimizer states. psi parameters, N ranks that share them.
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

// What a run keeps per parameter: weight and gradient in strategy.precision, the gradient in fp32 where
// strategy.gradient_precision says so; two fp32 moments of AdamW, one of SGD with momentum, the first in bf16 where
// optimizer.momentum_precision says so. What makes 16-bit weights exact counts as a state: of fp16 an fp32 master copy,
// of bf16 the 2 bytes by which an fp32 number is longer; or a master copy too, where states are offloaded and so not
// beside the weights.
StateBytes state_bytes(const RunFile& run);

// Bytes per rank under ZeRO stage 0..3 over N ranks (weight + gradient = 4, states K = 12 in the paper's units):
//   0: (4+K)psi   1: 4psi + K*psi/N   2: 2psi + (2+K)psi/N   3: (4+K)psi/N
// Check: psi = 7.5e9, N = 64, K = 12 gives 120 / 31.4 / 16.6 / 1.9 GB.   Throws kBadConfig if stage is none of 0..3.
// Source: Rajbhandari et al. 2020, arXiv:1910.02054, section 5.
double zero_state_bytes(double parameters, int ranks, int stage, StateBytes per_parameter = kFp16Master);

// Bytes of a rank's shard of so many, cut over `ranks`: all shards alike, of whole 64-byte lines, so the last ones may
// hold less of it, or nothing but padding. Together they take at most 64 * ranks - 1 bytes more than the whole.
int64_t shard_bytes(int64_t bytes, int ranks);

// Elements that a rank sends in a step: 2psi(N-1)/N for stage 0..2 (reduce-scatter and all-gather), 3psi(N-1)/N for
// stage 3 (weights are gathered for backward once more). Same source, section 7.
double zero_elements_sent(double parameters, int ranks, int stage);

// The same with shards over `shards` ranks (of a host), copies of which stand on `replicas` of them: the shard's
// gradient is all-reduced among its copies.   (stage 3 ? 3 : 2) psi(f-1)/f + 2 psi/f (d-1)/d,   f shards, d replicas
// Source: Zhao et al. 2023, arXiv:2304.11277, section 3.2.2 (hybrid sharding).
double hybrid_elements_sent(double parameters, int shards, int replicas, int stage);

// Bytes of M 16-bit parameters that cross hosts in a step, in units of M * 2 bytes: ZeRO-3 sends 3M (two gathers, one
// reduce-scatter); ZeRO++ 0.75M: weights gathered once as int8 (0.5M), a second copy of them inside the host for
// backward (0), gradients as int4 (0.25M).   Source: Wang et al. 2023, arXiv:2306.10209, table 1.
double zero3_cross_host(double parameters);
double zero_plus_plus_cross_host(double parameters);

}  // namespace herd::spec
