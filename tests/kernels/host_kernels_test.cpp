#include "herd/kernels/host_kernels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "herd/base/error.h"
#include "herd/kernels/half.h"
#include "herd/kernels/hash.h"
#include "herd/kernels/philox_stream.h"
#include "herd/kernels/rms_norm.h"
#include "herd/kernels/split_float_kernel.h"
#include "herd/kernels/sum_of_squares.h"

namespace herd::kernels {
namespace {

using Floats = std::vector<float>;
using Halves = std::vector<uint16_t>;

Floats drawn(int64_t count, uint32_t seed, float width = 1.0f) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> values(-width, width);
  Floats out(static_cast<size_t>(count));
  for (float& x : out) x = values(random);
  return out;
}
Halves as_bf16(const Floats& values) {
  Halves out;
  for (const float value : values) out.push_back(bf16_from_float(value));
  return out;
}

TEST(HostKernels, NormaliseASumWithTheResidual_AsTheTwoStepsDo) {
  const int64_t rows = 5, width = 37;
  const Floats x = drawn(rows * width, 1), residual = drawn(rows * width, 2), gain = drawn(width, 3);
  Floats sum(x.size()), y(x.size()), r(rows), expected_sum = x, expected_y(x.size()), expected_r(rows);
  host_kernels().rms_norm(
      {}, {DType::kF32, rows, width, x.data(), residual.data(), gain.data(), 1e-5f, sum.data(), y.data(), r.data()});
  for (size_t i = 0; i < x.size(); ++i) expected_sum[i] += residual[i];
  rms_norm({DType::kF32, rows, width}, expected_sum.data(), gain.data(), 1e-5f, expected_y.data(), expected_r.data());
  EXPECT_EQ(sum, expected_sum);
  EXPECT_EQ(y, expected_y);
  EXPECT_EQ(r, expected_r);
}

TEST(HostKernels, AddTheGradientAroundTheNorm_AndSumTheGainsInParts) {
  const int64_t rows = 7, width = 19;
  const Floats dy = drawn(rows * width, 1), x = drawn(rows * width, 2), gain = drawn(width, 3), r = drawn(rows, 4),
               around = drawn(rows * width, 5);
  Floats dx = around, dgain(width), parts(3 * width), direct(x.size()), whole(width);
  host_kernels().rms_norm_backward({}, {DType::kF32, rows, width, dy.data(), x.data(), gain.data(), dx.data(), r.data(),
                                        dx.data(), dgain.data(), parts.data(), 3});
  rms_norm_backward({DType::kF32, rows, width}, dy.data(), x.data(), gain.data(), r.data(), direct.data(),
                    whole.data());
  for (size_t i = 0; i < dx.size(); ++i) EXPECT_EQ(dx[i], direct[i] + around[i]);
  for (size_t i = 0; i < dgain.size(); ++i) EXPECT_NEAR(dgain[i], whole[i], 1e-5);
}

TEST(HostKernels, DropTheElementsWhoseWordsAreBelowTheThreshold) {
  const Floats x = drawn(100, 1);
  Floats y(100);
  const uint64_t key = 0x123456789abcdef0u;
  host_kernels().dropout({}, {DType::kF32, 100, {{key, 5, 10, 50}}, 3, 2, 1u << 31, 2.0f, x.data(), y.data()});
  std::vector<uint32_t> words(60);
  philox_words({{static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)}, 3, 2}, 0, 15, words.data());
  for (size_t i = 0; i < 100; ++i) {
    const bool in_range = i >= 10 && i < 60;
    EXPECT_EQ(y[i], !in_range ? x[i] : words[i - 5] >= 1u << 31 ? 2 * x[i] : 0.0f) << i;
  }
}

TEST(HostKernels, StepSplitWeightsToTheBitsOfTheirFp32) {
  const int64_t count = 10001;
  Floats weights = drawn(count, 1), m = drawn(count, 2), v(static_cast<size_t>(count), 0.5f), split_m = m, split_v = v;
  const Halves gradient = as_bf16(drawn(count, 3));
  Floats wide;
  for (const uint16_t half : gradient) wide.push_back(float_from_bf16(half));
  Halves high(weights.size()), low(weights.size());
  split_float(weights.data(), high.data(), low.data(), count);
  const float factor = 0.25f;
  const AdamWHyper hyper{.rate = 0.1, .t = 2};
  const std::vector<ElementRange> decay = {{10, 9000}};
  adamw({weights.data(), wide.data(), m.data(), v.data(), count, 5}, hyper, decay, &factor);
  StepMemory memory;
  memory.weights_type = memory.gradient_type = DType::kBF16;
  memory.weights = high.data(), memory.low = low.data(), memory.gradient = gradient.data();
  memory.moment1 = split_m.data(), memory.moment2 = split_v.data();
  memory.count = count, memory.offset = 5, memory.decay = decay, memory.factor = &factor;
  host_kernels().adamw({}, {memory, hyper});
  Floats joined(weights.size());
  join_float(high.data(), low.data(), joined.data(), count);
  EXPECT_EQ(joined, weights);
  EXPECT_EQ(split_m, m);
  EXPECT_EQ(split_v, v);
}

TEST(HostKernels, LeaveAllAsItIsWhereTheFactorIsNegative) {
  Floats weights = drawn(100, 1), gradient = drawn(100, 2), moment = drawn(100, 3);
  const Floats before = weights, moment_before = moment;
  const float factor = -1;
  StepMemory memory;
  memory.weights = weights.data(), memory.gradient = gradient.data(), memory.moment1 = moment.data();
  memory.count = 100, memory.factor = &factor;
  host_kernels().sgd({}, {memory, {.rate = 0.1, .momentum = 0.9}});
  EXPECT_EQ(weights, before);
  EXPECT_EQ(moment, moment_before);
}

TEST(HostKernels, AddSumsOfSquares_AndFindTheFirstThatIsNotFinite) {
  Floats values = drawn(20000, 1);
  double sum = 1.5;
  host_kernels().sum_of_squares({}, {DType::kF32, values.data(), 20000, &sum, nullptr});
  EXPECT_NEAR(sum, 1.5 + sum_of_squares(values.data(), 20000), 1e-9);
  int64_t index = 0;
  host_kernels().first_non_finite({}, {DType::kF32, values.data(), 20000, &index});
  EXPECT_EQ(index, -1);
  values[17001] = std::numeric_limits<float>::infinity();
  host_kernels().first_non_finite({}, {DType::kF32, values.data(), 20000, &index});
  EXPECT_EQ(index, 17001);
}

TEST(HostKernels, ClipByTheNorm_AndSkipAnOverflow) {
  const std::vector<double> sums = {9.0 * 4, 16.0 * 4};
  double norm = 0;
  float factor = 0;
  host_kernels().clip({}, {sums.data(), 2, 1.0, 2.0, true, &norm, &factor});
  EXPECT_DOUBLE_EQ(norm, 5.0);
  EXPECT_FLOAT_EQ(factor, 0.2f / 2);
  const std::vector<double> overflow = {1.0, std::numeric_limits<double>::infinity()};
  host_kernels().clip({}, {overflow.data(), 2, 1.0, 2.0, true, &norm, &factor});
  EXPECT_EQ(factor, -1.0f);
  host_kernels().clip({}, {overflow.data(), 2, 1.0, 2.0, false, &norm, &factor});
  EXPECT_EQ(factor, 0.5f);
}

TEST(HostKernels, TurnHeadsAndBack) {
  const Floats x = drawn(2 * 3 * 17, 1);
  Floats turned = x;
  RotaryCall call;
  call.x = turned.data(), call.batch = 2, call.tokens = 3, call.heads = 2;
  call.batch_stride = 3 * 17, call.token_stride = 17, call.frequencies = {1.0f, 0.5f, 0.25f, 0.125f}, call.first = 100;
  host_kernels().rotary({}, call);
  const float angle = 101.0f * 0.5f;  // of pair 1 of token 1
  EXPECT_NEAR(turned[17 + 1], x[17 + 1] * std::cos(angle) - x[17 + 5] * std::sin(angle), 1e-6);
  EXPECT_NEAR(turned[17 + 5], x[17 + 5] * std::cos(angle) + x[17 + 1] * std::sin(angle), 1e-6);
  EXPECT_EQ(turned[16], x[16]);  // behind the heads
  call.sign = -1;
  host_kernels().rotary({}, call);
  for (size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(turned[i], x[i], 1e-5);
}

TEST(HostKernels, GateWithAGradientThatDifferencesConfirm) {
  const int64_t count = 50;
  const Floats gate = drawn(count, 1, 3.0f), up = drawn(count, 2), ones(static_cast<size_t>(count), 1.0f);
  Floats dgate(gate.size()), dup(gate.size()), y(gate.size());
  host_kernels().gated({}, {DType::kF32, count, gate.data(), up.data(), y.data()});
  host_kernels().gated_backward({},
                                {DType::kF32, count, ones.data(), gate.data(), up.data(), dgate.data(), dup.data()});
  const auto exact = [](double g, double u) { return g / (1 + std::exp(-g)) * u; };
  for (size_t i = 0; i < gate.size(); ++i) {
    const double g = gate[i], u = up[i], h = 1e-4;
    EXPECT_NEAR(y[i], exact(g, u), 1e-6);
    EXPECT_NEAR(dgate[i], (exact(g + h, u) - exact(g - h, u)) / (2 * h), 1e-5);
    EXPECT_NEAR(dup[i], exact(g, 1.0), 1e-6);
  }
}

TEST(HostKernels, TurnLogitsIntoTheirGradient) {
  const int64_t rows = 4, words = 9;
  const Floats logits = drawn(rows * words, 1, 4.0f);
  Floats gradient = logits;
  const std::vector<int64_t> targets = {3, -1, 9, 0};  // the second and the third do not count
  double loss = 1, row_losses[4], expected = 1;
  int64_t counted = 7;
  host_kernels().cross_entropy(
      {}, {DType::kF32, rows, words, gradient.data(), targets.data(), 0.5f, true, &loss, &counted, row_losses});
  for (const int64_t row : {0, 3}) {
    const float* of_row = logits.data() + row * words;
    double sum = 0;
    for (int64_t j = 0; j < words; ++j) sum += std::exp(static_cast<double>(of_row[j]));
    expected += std::log(sum) - of_row[targets[static_cast<size_t>(row)]];
    for (int64_t j = 0; j < words; ++j) {
      const double softmax = std::exp(static_cast<double>(of_row[j])) / sum;
      EXPECT_NEAR(gradient[static_cast<size_t>(row * words + j)],
                  0.5 * (softmax - (j == targets[static_cast<size_t>(row)] ? 1 : 0)), 1e-6);
    }
  }
  for (int64_t i = words; i < 3 * words; ++i) EXPECT_EQ(gradient[static_cast<size_t>(i)], 0.0f);
  EXPECT_NEAR(loss, expected, 1e-6);
  EXPECT_EQ(counted, 9);
}

TEST(HostKernels, AddRowsOfAnEmbeddingsGradient) {
  const Floats dy = {1, 2, 10, 20, 100, 200, 1000, 2000};
  const std::vector<int64_t> ids = {-1, 1, 1, 2}, order = {3, 0, 2, 1};
  Floats gradient = {0.5f, 0.5f, 0.5f, 0.5f};  // two rows: id 2 is another rank's
  EmbeddingGradientCall call{.count = 4, .width = 2, .rows = 2};
  call.sorted_ids = ids.data(), call.order = order.data(), call.dy = dy.data(), call.gradient = gradient.data();
  host_kernels().embedding_gradient({}, call);
  EXPECT_EQ(gradient, (Floats{0.5f, 0.5f, 101.5f, 202.5f}));
  call.overwrites = true;
  host_kernels().embedding_gradient({}, call);
  EXPECT_EQ(gradient, (Floats{0.5f, 0.5f, 101, 202}));
}

TEST(HostKernels, HashSplitAndReduceAsTheFunctionsDo) {
  const Floats values = drawn(10000, 1);
  uint64_t result = 0;
  host_kernels().hash({}, {values.data(), 39999, 5, &result});
  EXPECT_EQ(result, hash(values.data(), 39999, 5));
  Halves high(values.size()), alone(values.size()), low(values.size());
  host_kernels().split_float({}, {values.data(), high.data(), low.data(), 10000});
  host_kernels().split_float({}, {values.data(), alone.data(), nullptr, 10000});
  EXPECT_EQ(high, alone);
  Floats joined(values.size()), sum(values.size());
  host_kernels().join_float({}, {high.data(), low.data(), joined.data(), 10000});
  EXPECT_EQ(joined, values);
  host_kernels().reduce({}, {sum.data(), {values.data(), values.data()}, 10000, DType::kF32, ReduceOp::kSum, 0.5});
  EXPECT_EQ(sum, values);
}

TEST(HostKernels, EncodeAndDecodeAsTheFunctionsDo) {
  const int64_t count = 1000;
  const Floats values = drawn(count, 1);
  for (const CodecSettings codec : {CodecSettings{.kind = CodecKind::kInt8}, CodecSettings{.kind = CodecKind::kInt4}}) {
    const auto size = static_cast<size_t>(encoded_bytes(codec, count));
    std::vector<std::byte> encoded(2 * size), expected(2 * size), sum(size), expected_sum(size);
    for (size_t term = 0; term < 2; ++term) {
      host_kernels().encode({}, {codec, DType::kF32, values.data(), count, encoded.data() + term * size});
      encode(codec, values.data(), count, expected.data() + term * size);
    }
    EXPECT_EQ(encoded, expected);
    Floats decoded(values.size(), 9.0f), expected_values = decoded;
    for (const auto& [num_terms, adds] : {std::pair(1, false), {1, true}, {2, false}, {2, true}}) {
      host_kernels().decode_sum({}, {codec, DType::kF32, encoded.data(), num_terms, count, adds, decoded.data()});
      decode_sum(codec, DType::kF32, encoded.data(), num_terms, count, adds, expected_values.data());
      EXPECT_EQ(decoded, expected_values) << num_terms << (adds ? " added" : "");
    }
    const auto apart = static_cast<int64_t>(size);
    host_kernels().encode_sum({}, {codec, encoded.data(), 2, apart, count, sum.data()});
    encode_sum(codec, encoded.data(), 2, apart, count, expected_sum.data());
    EXPECT_EQ(sum, expected_sum);
  }
}

}  // namespace
}  // namespace herd::kernels
