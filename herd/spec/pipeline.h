// Computes, for pipelines of p stages and m micro-batches, how long stages stand idle and how many micro-batches they
// hold. Every function throws kBadConfig unless p, m >= 1, chunks >= 1 and 0 <= stage < p. Threads: pure.
#pragma once

#include <cstdint>
#include <string_view>

namespace herd::spec {

enum class Pipeline : uint8_t { kGpipe, k1F1B, kInterleaved, kZeroBubbleH1, kZeroBubbleV };
// Reads "gpipe", "1f1b", "interleaved", "zero_bubble_h1" or "zero_bubble_v"; throws kBadConfig.
Pipeline parse_pipeline(std::string_view name);

// Returns the share of the step that a stage is idle, in [0, 1).
//   gpipe, 1f1b   (p-1) / (m+p-1)
//   interleaved   (p-1) / (v*m+p-1)    v = chunks: the parts of the layers that each rank has
//   zero_bubble_h1   (p-1) / (3m+p-1)     ZB-H1: backward's weight half fills two thirds of the gap; memory as 1f1b
//   zero_bubble_v    g / (6m+g), g = max(3(p-m), 2p-2-m, 0), from the first pass of the rank that begins last to the
//                    step's end: 0 for m >= 2p-2
// Sources: Huang et al. 2019, arXiv:1811.06965, section 2 (gpipe); Narayanan et al. 2019 (PipeDream; 1f1b); Narayanan
// et al. 2021, arXiv:2104.04473, section 2.2 (interleaved); Qi et al. 2023, arXiv:2401.10241, section 2.3, with equal
// thirds (zero_bubble_h1); Qi et al. 2024, arXiv:2405.15362, section 3 (zero_bubble_v, whose g follows from the order
// that strategies/pipeline_orders.cpp writes).
double bubble_fraction(Pipeline kind, int stages, int micro_batches, int chunks = 1);

// Returns the micro-batches whose activations a stage holds at its worst.
//   gpipe m;   1f1b, zero_bubble_h1 min(m, p-stage);   interleaved min(m, ((v-1)p + 2(p-1-stage) + 1) / v)
//     where p divides m and v = chunks;
//   zero_bubble_v min(m, p), of both of its stages
double micro_batches_in_flight(Pipeline kind, int stages, int micro_batches, int stage, int chunks = 1);

}  // namespace herd::spec
