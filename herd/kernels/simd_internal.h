// Sets what every SIMD source of this folder needs before it includes Highway. On x86 the targets are AVX-512, AVX2 and
// the baseline, since more would only cost build time. Sources are compiled without contraction into fused
// multiply-add, so all targets give the same bits.
#pragma once

#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
