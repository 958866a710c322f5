// Decides which window of the data the s-th sample of a run is. A window is one training sequence cut from the data
// (sample_source.h). The decision is a pure function of seed and s, the same for any
// number of ranks.
//   epoch = s / windows;  window = permutation(seed, epoch)(s mod windows)
// Each epoch visits every window once. The permutation is stored nowhere. It is a balanced Feistel network on the
// smallest 2k-bit numbers that hold `windows`, walked again until the result is below `windows`. That takes fewer than
// 4 walks on average. So the position of a run is one number, the global sample count, and it survives a resume.
// Source: Luby & Rackoff 1988, doi:10.1137/0217022; Black & Rogaway 2002, doi:10.1007/3-540-45760-7_9 (cycle walking).
// Threads: pure.
#pragma once

#include <cstdint>

namespace herd {

class SampleOrder {
 public:
  SampleOrder(int64_t windows, uint64_t seed);  // REQUIRES windows >= 1
  int64_t windows() const { return windows_; }
  int64_t window_of(int64_t sample) const;  // REQUIRES sample >= 0

 private:
  int64_t windows_;
  uint64_t seed_;
  int half_bits_ = 1;  // k: the network permutes numbers of 2k bits
};

}  // namespace herd
