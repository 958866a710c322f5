// The kernels of device_kernels.h for CUDA, a source for each kind.   Threads: any.
#pragma once

#include "herd/kernels/device_kernels.h"

namespace herd::kernels::cuda {

void rms_norm(const OnStream& on, const RmsNormCall& call);
void rms_norm_backward(const OnStream& on, const RmsNormBackwardCall& call);
void dropout(const OnStream& on, const DropoutCall& call);
void adamw(const OnStream& on, const AdamWCall& call);
void sgd(const OnStream& on, const SgdCall& call);
void sum_of_squares(const OnStream& on, const SumOfSquaresCall& call);
void clip(const OnStream& on, const ClipCall& call);
void first_non_finite(const OnStream& on, const FirstNonFiniteCall& call);
void hash(const OnStream& on, const HashCall& call);
void split_float(const OnStream& on, const SplitFloatCall& call);
void join_float(const OnStream& on, const JoinFloatCall& call);
void reduce(const OnStream& on, const ReductionCall& call);
void rotary(const OnStream& on, const RotaryCall& call);
void gated(const OnStream& on, const GatedCall& call);
void gated_backward(const OnStream& on, const GatedBackwardCall& call);
void cross_entropy(const OnStream& on, const CrossEntropyCall& call);
void embedding_gradient(const OnStream& on, const EmbeddingGradientCall& call);
void encode(const OnStream& on, const EncodeCall& call);
void decode_sum(const OnStream& on, const DecodeSumCall& call);
void encode_sum(const OnStream& on, const EncodeSumCall& call);

}  // namespace herd::kernels::cuda
