// Defines the kernels that a kind of device has: one table a kind, so that code above is written once. A kernel is
// enqueued on a stream and runs later. All pointers are to the device's memory, scalars included, and are aligned to
// their element; a vector lies on the host and is copied by the call. Kernels compute in fp32 (sums of squares and of
// losses in fp64) and round a 16-bit result once. The order of every sum is fixed by the sizes alone, so a kernel gives
// the same bits in every run; "as x.h" says that these are the bits of the CPU's kernel.
// Workspaces are the caller's, so that they count in its memory. Nothing waits for the device.   Threads: any.
#pragma once

#include <cstdint>
#include <vector>

#include "herd/base/buffer.h"
#include "herd/base/reduce_op.h"
#include "herd/kernels/adamw_kernel.h"
#include "herd/kernels/codec.h"
#include "herd/kernels/element_range.h"
#include "herd/kernels/sgd_kernel.h"

namespace herd::kernels {

struct OnStream {
  int device = 0;
  StreamHandle stream = nullptr;
};

// y = x r gain, r = 1 / sqrt(mean(x^2) + epsilon), row by row (rms_norm.h). With a residual, x is first replaced by
// sum = round(x + residual).
struct RmsNormCall {
  DType type = DType::kF32;  // of x, residual, gain, sum and y: fp32, bf16 or fp16
  int64_t rows = 0, width = 0;
  const void *x = nullptr, *residual = nullptr, *gain = nullptr;  // residual may be null
  float epsilon = 0;
  void *sum = nullptr, *y = nullptr;  // sum: with a residual only; may be x
  float* r = nullptr;                 // [rows]
};
// dx as in rms_norm.h, plus dsum where it is not null (the gradient that reaches x around the norm);
// dgain = sum over rows of dy x r. The rows are cut into num_parts equal runs, whose sums are then added in order.
struct RmsNormBackwardCall {
  DType type = DType::kF32;
  int64_t rows = 0, width = 0;
  const void *dy = nullptr, *x = nullptr, *gain = nullptr, *dsum = nullptr;
  const float* r = nullptr;
  void* dx = nullptr;      // may be dy or dsum
  float* dgain = nullptr;  // [width], overwritten; null: not wanted
  float* parts = nullptr;  // workspace [num_parts, width], with dgain only
  int64_t num_parts = 1;   // at least 1
};

// y_i = x_i scale where the word of element i is >= threshold, else 0 (nn/dropout.h). Elements that no range holds stay
// x. The words are those of philox_words() for {key, layer, site}, and element i of a sample has word i.
struct DropoutRange {
  uint64_t key = 0;
  int64_t first = 0, at = 0, count = 0;  // elements [first, first + count) of a sample lie from element `at` on
};
struct DropoutCall {
  DType type = DType::kF32;
  int64_t count = 0;
  std::vector<DropoutRange> ranges;  // in the order of `at`, disjoint
  uint32_t layer = 0, site = 0, threshold = 0;
  float scale = 1;
  const void* x = nullptr;
  void* y = nullptr;  // may be x
};

// The memory of an optimizer's step on elements [offset, offset + count) of a flat tensor. The step itself is on fp32
// weights (optim/mixed_step.h): they are `weights` where these are fp32; those that bf16 weights and `low` are the
// halves of; else `master`, of which `weights` become the rounded copy (as split_float() rounds them to bf16).
struct StepMemory {
  DType weights_type = DType::kF32, gradient_type = DType::kF32, moment1_type = DType::kF32;
  void* weights = nullptr;
  uint16_t* low = nullptr;
  float* master = nullptr;
  const void* gradient = nullptr;  // fp32, bf16 or fp16
  void* moment1 = nullptr;         // fp32 or bf16; null for SGD without momentum
  float* moment2 = nullptr;        // AdamW's second
  int64_t count = 0, offset = 0;
  std::vector<ElementRange> decay;  // as in adamw_kernel.h
  const float* factor = nullptr;    // multiplies the gradient; < 0: the step changes nothing; null: 1
};
struct AdamWCall {
  StepMemory memory;
  AdamWHyper hyper;
};
struct SgdCall {
  StepMemory memory;
  SgdHyper hyper;
};

// *sum += sum of the squares, in fp64.
constexpr int64_t kSumParts = 1024;
struct SumOfSquaresCall {
  DType type = DType::kF32;  // fp32, bf16 or fp16
  const void* values = nullptr;
  int64_t count = 0;
  double* sum = nullptr;
  double* parts = nullptr;  // workspace [kSumParts]
};

// The norm and the factor of a step (optim/clip.h): with s = sums[0] + sums[1] + ..,
//   norm = sqrt(s) / loss_scale;  factor = min(1, max_norm / (norm + 1e-6)) / loss_scale
// max_norm 0, or a norm that is not finite, leaves out the minimum. With skips_overflow a sum that is not finite gives
// norm = sqrt(s) and factor -1: the step is skipped.
struct ClipCall {
  const double* sums = nullptr;
  int64_t count = 0;
  double max_norm = 0, loss_scale = 1;
  bool skips_overflow = false;
  double* norm = nullptr;
  float* factor = nullptr;
};

struct FirstNonFiniteCall {
  DType type = DType::kF32;  // fp32, bf16 or fp16
  const void* values = nullptr;
  int64_t count = 0;
  int64_t* index = nullptr;  // of the first value that is not finite; -1 if all are
};

struct HashCall {                // as hash.h
  const void* memory = nullptr;  // aligned to 4 bytes
  int64_t bytes = 0;
  uint64_t seed = 0;
  uint64_t* result = nullptr;
};

struct SplitFloatCall {  // as split_float_kernel.h
  const float* exact = nullptr;
  uint16_t *high = nullptr, *low = nullptr;  // low may be null
  int64_t count = 0;
};
struct JoinFloatCall {
  const uint16_t *high = nullptr, *low = nullptr;
  float* exact = nullptr;
  int64_t count = 0;
};

struct ReductionCall {     // as reduce_kernel.h, with one target
  void* target = nullptr;  // may be one of the sources
  std::vector<const void*> sources;
  int64_t count = 0;
  DType type = DType::kF32;
  ReduceOp op = ReduceOp::kSum;
  double scale = 1;
};

// Turns heads in place (nn/rotary.h): element i and i + d/2 of each head, by sign * position * frequencies[i].
struct RotaryCall {
  DType type = DType::kF32;  // fp32, bf16 or fp16
  void* x = nullptr;         // [batch, tokens, heads * d] with these distances between rows, in elements
  int64_t batch = 0, tokens = 0, heads = 0;
  int64_t batch_stride = 0, token_stride = 0;
  std::vector<float> frequencies;  // d/2, at most 256
  int64_t first = 0;               // position of the first token
  float sign = 1;
};

// y = silu(gate) up, silu(g) = g / (1 + exp(-g));  dgate = dy up silu'(gate), dup = dy silu(gate).
struct GatedCall {
  DType type = DType::kF32;  // fp32, bf16 or fp16
  int64_t count = 0;
  const void *gate = nullptr, *up = nullptr;
  void* y = nullptr;
};
struct GatedBackwardCall {
  DType type = DType::kF32;
  int64_t count = 0;
  const void *dy = nullptr, *gate = nullptr, *up = nullptr;
  void *dgate = nullptr, *dup = nullptr;  // may be gate and up
};

// The loss of rows of logits, and its gradient in their place (nn/chunked_cross_entropy.h):
//   *loss += sum of log(sum_j exp(logit_j)) - logit_target;  *counted += rows that count
//   logit_j becomes weight * (softmax_j - [j = target]); 0 in a row that does not count
struct CrossEntropyCall {
  DType type = DType::kF32;  // of the logits: fp32, bf16 or fp16
  int64_t rows = 0, words = 0;
  void* logits = nullptr;            // [rows, words]
  const int64_t* targets = nullptr;  // [rows]; a row whose target is not in [0, words) does not count
  float weight = 1;
  bool with_gradients = true;  // false: the logits stay
  double* loss = nullptr;
  int64_t* counted = nullptr;
  double* row_losses = nullptr;  // workspace [rows]
};

// gradient[id] += sum of dy[order[i]] over the places i with sorted_ids[i] = id, in the order of i, in fp32. With
// `overwrites` the sum replaces those rows; rows without an id stay as they are in either case.
struct EmbeddingGradientCall {
  DType type = DType::kF32, gradient_type = DType::kF32;  // of dy, and of the gradient
  int64_t count = 0, width = 0, rows = 0;                 // ids; elements of a row; rows of the gradient
  const int64_t *sorted_ids = nullptr, *order = nullptr;  // [count] each; ids outside [0, rows) are passed over
  const void* dy = nullptr;                               // [count, width]
  void* gradient = nullptr;                               // [rows, width]
  bool overwrites = false;
};

// Arrays in int8 or int4 by multiples, with the bits of codec.h but those of a NaN; they begin at any byte. REQUIRES
// blocks of at most 1024 elements.
struct EncodeCall {
  CodecSettings codec;
  DType type = DType::kF32;  // of the values: fp32, bf16 or fp16
  const void* values = nullptr;
  int64_t count = 0;
  std::byte* encoded = nullptr;
};
// The sum of `num_terms` arrays that follow each other, rounded once; one array is decoded. `adds`: `sums` is the first
// term.
struct DecodeSumCall {
  CodecSettings codec;
  DType type = DType::kF32;  // of the sums
  const std::byte* encoded = nullptr;
  int64_t num_terms = 1;
  int64_t count = 0;  // elements of a term
  bool adds = false;
  void* sums = nullptr;
};
struct EncodeSumCall {  // encodes the sum of arrays that begin `term_bytes` apart
  CodecSettings codec;
  const std::byte* encoded = nullptr;
  int64_t num_terms = 1, term_bytes = 0;
  int64_t count = 0;
  std::byte* sum = nullptr;
};

// Functions throw kBadConfig with the device's own words where it refuses a launch.
class DeviceKernels {
 public:
  virtual ~DeviceKernels() = default;
  virtual void rms_norm(const OnStream& on, const RmsNormCall& call) = 0;
  virtual void rms_norm_backward(const OnStream& on, const RmsNormBackwardCall& call) = 0;
  virtual void dropout(const OnStream& on, const DropoutCall& call) = 0;
  virtual void adamw(const OnStream& on, const AdamWCall& call) = 0;
  virtual void sgd(const OnStream& on, const SgdCall& call) = 0;
  virtual void sum_of_squares(const OnStream& on, const SumOfSquaresCall& call) = 0;
  virtual void clip(const OnStream& on, const ClipCall& call) = 0;
  virtual void first_non_finite(const OnStream& on, const FirstNonFiniteCall& call) = 0;
  virtual void hash(const OnStream& on, const HashCall& call) = 0;
  virtual void split_float(const OnStream& on, const SplitFloatCall& call) = 0;
  virtual void join_float(const OnStream& on, const JoinFloatCall& call) = 0;
  virtual void reduce(const OnStream& on, const ReductionCall& call) = 0;
  virtual void rotary(const OnStream& on, const RotaryCall& call) = 0;
  virtual void gated(const OnStream& on, const GatedCall& call) = 0;
  virtual void gated_backward(const OnStream& on, const GatedBackwardCall& call) = 0;
  virtual void cross_entropy(const OnStream& on, const CrossEntropyCall& call) = 0;
  virtual void embedding_gradient(const OnStream& on, const EmbeddingGradientCall& call) = 0;
  virtual void encode(const OnStream& on, const EncodeCall& call) = 0;
  virtual void decode_sum(const OnStream& on, const DecodeSumCall& call) = 0;
  virtual void encode_sum(const OnStream& on, const EncodeSumCall& call) = 0;
};

// Returns the kernels of a kind of device; those of the CPU (host_kernels.h) run at once. Throws kBadConfig with the
// reason and the fix where there are none.
DeviceKernels& device_kernels(DeviceKind kind);
// The table must live as long as the process. A later one of the same kind takes its place.
void register_device_kernels(DeviceKind kind, DeviceKernels* kernels);

}  // namespace herd::kernels
