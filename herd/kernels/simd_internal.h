// Defines what every SIMD source of this folder needs before Highway: x86 targets are AVX-512, AVX2, and the baseline;
// the rest would only cost build time. Sources are compiled without floating contraction, so all targets give one
// result.
#pragma once

#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
