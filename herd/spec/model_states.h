// Bytes of weights, gradients and optimizer states. psi parameters, N ranks that share them.
// Threads: pure.
#pragma once

#include <cstdint>
#include <string_view>

namespace herd::spec {

// Bytes per parameter of each kind; moments, master weights and gradient copies count as states.
struct StateBytes {
  double weight = 4, gradient = 4, states = 8;
  double total() const { return weight + gradient + states; }
};

inline constexpr StateBytes kFp32Adam = {4, 4, 8};      // 16 bytes a parameter
inline constexpr StateBytes kBf16Momentum = {4, 2, 6};  // bf16 gradient and momentum, fp32 weight and variance: 12
inline constexpr StateBytes kFp16Master = {2, 2, 12};   // fp32 master weight and moments: 16
inline constexpr StateBytes kFp16MasterGradient = {2, 2, 16};  // and an fp32 gradient copy: 20

// Bytes per rank under ZeRO stage 0..3 over N ranks (weight + gradient = 4, states K = 12 in the paper's units):
//   0: (4+K)psi   1: 4psi + K*psi/N   2: 2psi + (2+K)psi/N   3: (4+K)psi/N
// Check: psi = 7.5e9, N = 64, K = 12 gives 120 / 31.4 / 16.6 / 1.9 GB.   Throws kBadConfig if stage is none of 0..3.
// Source: Rajbhandari et al. 2020, arXiv:1910.02054, section 5.
double zero_state_bytes(double parameters, int ranks, int stage, StateBytes per_parameter = kFp16Master);

// Elements that a rank sends in a step: 2psi(N-1)/N for stage 0..2, 3psi(N-1)/N for stage 3. Same source, section 7.
double zero_elements_sent(double parameters, int ranks, int stage);

}  // namespace herd::spec
