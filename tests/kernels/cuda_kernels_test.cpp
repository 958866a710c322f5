// Each kernel of CUDA beside the CPU's: the same bits where the order of sums is the same, else within the bound that
// the test states. The figures are of sizes beyond the cache; one line each: figure NAME VALUE UNIT.
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "herd/base/device_driver.h"
#include "herd/base/error.h"
#include "herd/kernels/half_array.h"
#include "herd/kernels/host_kernels.h"

namespace herd::kernels {
namespace {

const std::vector<int64_t> kSizes = {0, 1, 7, 8, 9, 1000, 4099, 1000003};
const std::vector<DType> kTypes = {DType::kF32, DType::kBF16, DType::kF16};

void cuda_ok(cudaError_t status) { ASSERT_EQ(status, cudaSuccess) << cudaGetErrorString(status); }

// Returns the bytes of random numbers of a type; `positive` leaves out those below 0.
std::vector<std::byte> random_values(DType type, int64_t count, uint32_t seed, bool positive = false,
                                     float width = 2.0f) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> distribution(positive ? 0.0f : -width, width);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = distribution(random);
  std::vector<std::byte> bytes(static_cast<size_t>(count * size_of(type)));
  if (type == DType::kF32)
    std::memcpy(bytes.data(), values.data(), bytes.size());
  else
    narrow(type, values.data(), reinterpret_cast<uint16_t*>(bytes.data()), count);
  return bytes;
}

std::vector<float> as_floats(DType type, const std::vector<std::byte>& bytes) {
  std::vector<float> values(bytes.size() / static_cast<size_t>(size_of(type)));
  if (type == DType::kF32)
    std::memcpy(values.data(), bytes.data(), bytes.size());
  else
    widen(type, reinterpret_cast<const uint16_t*>(bytes.data()), values.data(), static_cast<int64_t>(values.size()));
  return values;
}

// Holds an array on the host and its copy on the device, which begins `shift` bytes after an aligned address.
class Twin {
 public:
  Twin() = default;
  explicit Twin(std::vector<std::byte> bytes, size_t shift = 0) : host_(std::move(bytes)), shift_(shift) {
    host_.resize(host_.size() + 1);  // never null
    cuda_ok(cudaMalloc(&device_, host_.size() + shift));
    cuda_ok(cudaMemcpy(at_device(), host_.data(), host_.size(), cudaMemcpyHostToDevice));
  }
  template <typename T>
  explicit Twin(const std::vector<T>& values)
      : Twin(std::vector<std::byte>(reinterpret_cast<const std::byte*>(values.data()),
                                    reinterpret_cast<const std::byte*>(values.data() + values.size()))) {}
  Twin(Twin&& other) noexcept { *this = std::move(other); }
  Twin& operator=(Twin&& other) noexcept {
    std::swap(host_, other.host_), std::swap(device_, other.device_), std::swap(shift_, other.shift_);
    return *this;
  }
  ~Twin() { cudaFree(device_); }
  void* at_host() { return host_.data(); }
  void* at_device() { return static_cast<char*>(device_) + shift_; }
  std::vector<std::byte> of_host() const { return {host_.begin(), host_.end() - 1}; }
  std::vector<std::byte> of_device() const {
    std::vector<std::byte> bytes(host_.size() - 1);
    cuda_ok(cudaMemcpy(bytes.data(), static_cast<char*>(device_) + shift_, bytes.size(), cudaMemcpyDeviceToHost));
    return bytes;
  }

 private:
  std::vector<std::byte> host_;
  void* device_ = nullptr;
  size_t shift_ = 0;
};

Twin empty_twin(int64_t bytes, size_t shift = 0) {
  return Twin(std::vector<std::byte>(static_cast<size_t>(bytes)), shift);
}

// Finds the memory of a twin on one side.
struct Side {
  bool device;
  void* operator()(Twin& twin) const { return device ? twin.at_device() : twin.at_host(); }
  template <typename T>
  T* of(Twin& twin) const {
    return static_cast<T*>((*this)(twin));
  }
};

class CudaKernels : public testing::Test {
 protected:
  void SetUp() override {
    try {
      kernels_ = &device_kernels(DeviceKind::kCuda);
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
    stream_ = device_driver(DeviceKind::kCuda).create_stream(0);
  }
  void TearDown() override {
    if (stream_ != nullptr) device_driver(DeviceKind::kCuda).destroy_stream(0, stream_);
  }
  // Calls use(kernels, where, side) for the CPU and for the device.
  template <typename Use>
  void on_both(const Use& use) {
    use(host_kernels(), OnStream{}, Side{false});
    use(*kernels_, OnStream{0, stream_}, Side{true});
    synchronise();
  }
  void synchronise() { cuda_ok(cudaStreamSynchronize(static_cast<cudaStream_t>(stream_))); }

  // Prints the gigabytes a second of `run`, which moves so many bytes.
  void figure(const std::string& name, double bytes, const std::function<void()>& run) {
    constexpr int kRuns = 10;
    cudaEvent_t begin = nullptr, end = nullptr;
    cuda_ok(cudaEventCreate(&begin));
    cuda_ok(cudaEventCreate(&end));
    const auto stream = static_cast<cudaStream_t>(stream_);
    for (int i = 0; i < 3; ++i) run();
    cuda_ok(cudaEventRecord(begin, stream));
    for (int i = 0; i < kRuns; ++i) run();
    cuda_ok(cudaEventRecord(end, stream));
    cuda_ok(cudaEventSynchronize(end));
    float milliseconds = 0;
    cuda_ok(cudaEventElapsedTime(&milliseconds, begin, end));
    const double rate = bytes * kRuns / (static_cast<double>(milliseconds) * 1e6);
    std::printf("figure %s %.1f GB/s\n", name.c_str(), rate);
    std::fflush(stdout);
    RecordProperty(name, std::to_string(rate));
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
  }

  DeviceKernels* kernels_ = nullptr;
  StreamHandle stream_ = nullptr;
};

// Both sides hold the same numbers; a NaN equals any NaN.
void expect_same(const Twin& twin, DType type, const std::string& what) {
  const std::vector<std::byte> host = twin.of_host(), device = twin.of_device();
  if (host == device) return;
  const std::vector<float> a = as_floats(type, host), b = as_floats(type, device);
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) && std::isnan(b[i])) continue;
    ASSERT_EQ(std::memcmp(&a[i], &b[i], sizeof(float)), 0)
        << what << ", element " << i << " of " << a.size() << ": " << a[i] << " on the CPU, " << b[i];
  }
}
void expect_same_bytes(const Twin& twin, const std::string& what) {
  EXPECT_EQ(twin.of_host(), twin.of_device()) << what;
}

// |a - b| <= relative * |a| + absolute; a 16-bit type adds one unit in the last place.
void expect_close(const Twin& twin, DType type, double relative, double absolute, const std::string& what) {
  if (type == DType::kBF16) relative += 0x1p-7;
  if (type == DType::kF16) relative += 0x1p-10, absolute += 0x1p-24;
  const std::vector<float> a = as_floats(type, twin.of_host()), b = as_floats(type, twin.of_device());
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_LE(std::abs(a[i] - b[i]), relative * std::abs(a[i]) + absolute)
        << what << ", element " << i << " of " << a.size() << ": " << a[i] << " on the CPU, " << b[i];
  }
}

std::string case_name(DType type, int64_t count, size_t shift = 0) {
  return std::string(dtype_name(type)) + ", " + std::to_string(count) + " elements, shift " + std::to_string(shift);
}

TEST_F(CudaKernels, normalises_rows_and_takes_gradients_within_a_bound) {
  for (const DType type : kTypes) {
    for (const auto& [rows, width] : std::vector<std::pair<int64_t, int64_t>>{
             {0, 8}, {1, 1}, {3, 7}, {33, 64}, {17, 1000}, {70, 2048}, {5, 9001}, {3, 20008}}) {
      for (const bool fused : {false, true}) {
        const int64_t count = rows * width, bytes = count * size_of(type), parts = std::max<int64_t>(1, rows / 2);
        Twin x(random_values(type, count, 1)), residual(random_values(type, count, 2)),
            gain(random_values(type, width, 3)), dy(random_values(type, count, 4)), dsum(random_values(type, count, 5)),
            sum = empty_twin(bytes), y = empty_twin(bytes), dx = empty_twin(bytes), r = empty_twin(4 * rows),
            dgain = empty_twin(4 * width), workspace = empty_twin(4 * parts * width);
        on_both([&](DeviceKernels& kernels, const OnStream& on, const Side& at) {
          kernels.rms_norm(on, {type, rows, width, at(x), fused ? at(residual) : nullptr, at(gain), 1e-5f,
                                fused ? at(sum) : nullptr, at(y), at.of<float>(r)});
          kernels.rms_norm_backward(
              on, {type, rows, width, at(dy), fused ? at(sum) : at(x), at(gain), fused ? at(dsum) : nullptr,
                   at.of<float>(r), at(dx), at.of<float>(dgain), at.of<float>(workspace), parts});
        });
        const std::string what = case_name(type, count) + (fused ? ", fused" : "");
        if (fused) expect_same(sum, type, what + ": sum");
        expect_close(r, DType::kF32, 1e-5, 0, what + ": r");
        expect_close(y, type, 1e-5, 1e-6, what + ": y");
        // The sum over a row has terms that cancel: its error is that of the largest terms.
        expect_close(dx, type, 1e-4, type == DType::kF32 ? 1e-4 : 5e-2, what + ": dx");
        expect_close(dgain, DType::kF32, 1e-4, 1e-4 * static_cast<double>(rows), what + ": dgain");
      }
    }
  }
}

TEST_F(CudaKernels, gives_the_same_gradient_of_the_gain_in_every_run) {
  const int64_t rows = 1003, width = 1000, parts = 101;
  Twin x(random_values(DType::kBF16, rows * width, 1)), gain(random_values(DType::kBF16, width, 2)),
      dy(random_values(DType::kBF16, rows * width, 3)), r(random_values(DType::kF32, rows, 4, true)),
      dx = empty_twin(2 * rows * width), dgain = empty_twin(4 * width), workspace = empty_twin(4 * parts * width);
  std::vector<std::byte> first;
  for (int run = 0; run < 3; ++run) {
    const Side at{true};
    kernels_->rms_norm_backward({0, stream_},
                                {DType::kBF16, rows, width, at(dy), at(x), at(gain), nullptr, at.of<float>(r), at(dx),
                                 at.of<float>(dgain), at.of<float>(workspace), parts});
    synchronise();
    if (run == 0) first = dgain.of_device();
    EXPECT_EQ(dgain.of_device(), first);
  }
}

TEST_F(CudaKernels, drops_the_elements_that_the_cpu_drops) {
  for (const DType type : kTypes) {
    for (const int64_t first : {0, 3, 8, 1001}) {
      for (const size_t shift : {size_t{0}, static_cast<size_t>(size_of(type))}) {
        const int64_t count = 10007;
        std::vector<DropoutRange> ranges;
        for (int64_t k = 0; k < 203; ++k)
          ranges.push_back({static_cast<uint64_t>(k) * 0x123456789abcdu, first, 45 * k, 45});
        Twin x(random_values(type, count, 1), shift), y = empty_twin(count * size_of(type), shift);
        on_both([&](DeviceKernels& kernels, const OnStream& on, const Side& at) {
          kernels.dropout(on, {type, count, ranges, 5, 2, 0x40000000u, 1.0f / 0.75f, at(x), at(y)});
        });
        expect_same(y, type, case_name(type, count, shift));
      }
    }
  }
}

struct StepCase {
  DType weights;
  bool low;
  DType gradient, moments;
};

void step_like_the_cpu(
    const std::function<void(const std::function<void(DeviceKernels&, const OnStream&, const Side&)>&)>& on_both,
    const StepCase& c, int64_t count, size_t shift, float factor, bool is_adamw) {
  const auto bytes_of = [&](DType type) { return shift * static_cast<size_t>(size_of(type)); };
  Twin master(random_values(DType::kF32, count, 1), bytes_of(DType::kF32));
  Twin weights(random_values(c.weights, count, 2), bytes_of(c.weights));
  Twin low(random_values(DType::kBF16, count, 3), bytes_of(DType::kBF16));
  Twin gradient(random_values(c.gradient, count, 4), bytes_of(c.gradient));
  Twin moment1(random_values(c.moments, count, 5), bytes_of(c.moments));
  Twin moment2(random_values(DType::kF32, count, 6, true), bytes_of(DType::kF32));
  Twin factor_twin(std::vector<float>{factor});
  std::vector<ElementRange> decay = {{0, 20}, {105, 106}, {513, 900}};
  for (int64_t k = 0; k < 150; ++k) decay.push_back({1000 + 11 * k, 1000 + 11 * k + 5});
  on_both([&](DeviceKernels& kernels, const OnStream& on, const Side& at) {
    StepMemory memory;
    memory.weights_type = c.weights, memory.gradient_type = c.gradient, memory.moment1_type = c.moments;
    memory.weights = at(weights);
    memory.low = c.low ? at.of<uint16_t>(low) : nullptr;
    memory.master = c.weights == DType::kF32 || c.low ? nullptr : at.of<float>(master);
    memory.gradient = at(gradient), memory.moment1 = at(moment1),
    memory.moment2 = is_adamw ? at.of<float>(moment2) : nullptr;
    memory.count = count, memory.offset = 3, memory.decay = decay, memory.factor = at.of<float>(factor_twin);
    if (is_adamw)
      kernels.adamw(on, {memory, {.rate = 0.01, .beta1 = 0.9, .beta2 = 0.95, .weight_decay = 0.1, .t = 3}});
    else
      kernels.sgd(on, {memory, {.rate = 0.01, .momentum = 0.9, .weight_decay = 0.1, .nesterov = true}});
  });
  const std::string what = case_name(c.weights, count, shift) + (c.low ? ", low" : "") + ", gradient " +
                           std::string(dtype_name(c.gradient)) + ", moments " + std::string(dtype_name(c.moments)) +
                           ", factor " + std::to_string(factor);
  expect_same(weights, c.weights, what + ": weights");
  expect_same_bytes(low, what + ": low halves");
  expect_same(master, DType::kF32, what + ": master");
  expect_same(moment1, c.moments, what + ": moment 1");
  expect_same(moment2, DType::kF32, what + ": moment 2");
}

TEST_F(CudaKernels, steps_to_the_bits_of_the_cpu) {
  const auto both = [&](const auto& use) { on_both(use); };
  const std::vector<StepCase> cases = {
      {DType::kF32, false, DType::kF32, DType::kF32},   {DType::kF32, false, DType::kBF16, DType::kBF16},
      {DType::kBF16, true, DType::kBF16, DType::kF32},  {DType::kBF16, true, DType::kF32, DType::kBF16},
      {DType::kBF16, false, DType::kBF16, DType::kF32}, {DType::kF16, false, DType::kF16, DType::kF32},
      {DType::kF16, false, DType::kF32, DType::kBF16}};
  for (const StepCase& c : cases) {
    for (const int64_t count : {0, 1, 7, 8, 1000, 4099, 100003}) {
      for (const size_t shift : {0, 1}) {
        for (const bool is_adamw : {true, false}) step_like_the_cpu(both, c, count, shift, 0.37f, is_adamw);
      }
    }
    step_like_the_cpu(both, c, 1000, 0, -1.0f, true);  // changes nothing
    step_like_the_cpu(both, c, 1000003, 0, 1.0f, true);
  }
}

TEST_F(CudaKernels, scans_values) {
  for (const DType type : kTypes) {
    for (const int64_t count : kSizes) {
      for (const size_t shift : {size_t{0}, static_cast<size_t>(size_of(type))}) {
        std::vector<std::byte> bytes = random_values(type, count, 1);
        for (const bool finite : {true, false}) {
          if (!finite && count < 7) continue;
          if (!finite) {
            const std::vector<std::byte> ones(static_cast<size_t>(2 * size_of(type)), std::byte{0xff});  // a NaN
            std::copy(ones.begin(), ones.end(), bytes.begin() + static_cast<int64_t>(count * 2 / 3) * size_of(type));
          }
          Twin values(bytes, shift), sum(std::vector<double>{0.5}), parts = empty_twin(8 * kSumParts),
                                                                    index = empty_twin(8);
          on_both([&](DeviceKernels& kernels, const OnStream& on, const Side& at) {
            kernels.sum_of_squares(on, {type, at(values), count, at.of<double>(sum), at.of<double>(parts)});
            kernels.first_non_finite(on, {type, at(values), count, at.of<int64_t>(index)});
          });
          expect_same_bytes(index, case_name(type, count, shift) + ": first non-finite");
          double on_host = 0, on_device = 0;
          std::memcpy(&on_host, sum.of_host().data(), 8);
          std::memcpy(&on_device, sum.of_device().data(), 8);
          if (finite)
            EXPECT_NEAR(on_device, on_host, 1e-13 * on_host) << case_name(type, count, shift);
          else
            EXPECT_TRUE(std::isnan(on_device) && std::isnan(on_host));
        }
      }
    }
  }
}

TEST_F(CudaKernels, gives_the_same_sum_of_squares_at_any_alignment) {
  const int64_t count = 1000003;
  const std::vector<std::byte> bytes = random_values(DType::kF32, count, 1);
  std::vector<std::byte> first;
  for (const size_t shift : {0, 0, 4, 12}) {
    Twin values(bytes, shift), sum(std::vector<double>{0}), parts = empty_twin(8 * kSumParts);
    kernels_->sum_of_squares({0, stream_},
                             {DType::kF32, values.at_device(), count, static_cast<double*>(sum.at_device()),
                              static_cast<double*>(parts.at_device())});
    synchronise();
    if (first.empty()) first = sum.of_device();
    EXPECT_EQ(sum.of_device(), first);
  }
}

TEST_F(CudaKernels, clips_by_the_same_factor) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const std::vector<double>& sums : {std::vector<double>{4.0}, std::vector<double>(1500, 0.1),
                                          std::vector<double>{1.0, infinity}, std::vector<double>{0.0}}) {
    for (const double max_norm : {0.0, 1.0, 1e9}) {
      for (const bool skips : {false, true}) {
        Twin from(sums), norm = empty_twin(8), factor = empty_twin(4);
        on_both([&](DeviceKernels& kernels, const OnStream& on, const Side& at) {
          kernels.clip(on, {at.of<double>(from), static_cast<int64_t>(sums.size()), max_norm, 3.0, skips,
                            at.of<double>(norm), at.of<float>(factor)});
        });
        expect_same_bytes(norm, "norm");
        expect_same_bytes(factor, "factor");
      }
    }
  }
}

TEST_F(CudaKernels, hashes_to_the_number_of_the_cpu) {
  for (const int64_t bytes : {0, 1, 3, 4, 127, 128, 129, 2047, 2048, 4096, 4097, 100003, 1000003}) {
    Twin memory(random_values(DType::kF32, (bytes + 3) / 4, 1)), result = empty_twin(8);
    on_both([&](DeviceKernels& kernels, const OnStream& on, const Side& at) {
      kernels.hash(on, {at(memory), bytes, 42, at.of<uint64_t>(result)});
    });
    expect_same_bytes(result, std::to_string(bytes) + " bytes");
  }
}

TEST_F(CudaKernels, splits_and_joins_numbers) {
  for (const int64_t count : kSizes) {
    for (const size_t shift : {0, 1}) {
      std::vector<uint32_t> bits(static_cast<size_t>(count));
      std::mt19937 random(7);
      for (uint32_t& word : bits) word = random();  // NaNs and infinities too
      std::vector<std::byte> bytes(bits.size() * 4);
      std::memcpy(bytes.data(), bits.data(), bytes.size());
      Twin exact(bytes, 4 * shift), high = empty_twin(2 * count, 2 * shift), low = empty_twin(2 * count, 2 * shift),
                                    alone = empty_twin(2 * count, 2 * shift), joined = empty_twin(4 * count, 4 * shift);
      on_both([&](DeviceKernels& kernels, const OnStream& on, const Side& at) {
        kernels.split_float(on, {at.of<float>(exact), at.of<uint16_t>(high), at.of<uint16_t>(low), count});
        kernels.split_float(on, {at.of<float>(exact), at.of<uint16_t>(alone), nullptr, count});
        kernels.join_float(on, {at.of<uint16_t>(high), at.of<uint16_t>(low), at.of<float>(joined), count});
      });
      for (const Twin* twin : {&high, &low, &alone, &joined}) expect_same_bytes(*twin, std::to_string(count));
    }
  }
}

TEST_F(CudaKernels, reduces_to_the_bits_of_the_cpu) {
  for (const DType type : kAllDTypes) {
    for (const ReduceOp op : kReduceOps) {
      if (!supports(op, type)) continue;
      for (const int64_t count : {0, 1, 15, 17, 1000, 10007}) {
        for (const size_t num_sources : {1, 2, 5}) {
          std::vector<Twin> sources;
          for (size_t k = 0; k < num_sources; ++k) {
            std::vector<std::byte> bytes;
            if (type == DType::kF32 || type == DType::kBF16 || type == DType::kF16) {
              bytes = random_values(type, count, static_cast<uint32_t>(k));
            } else if (type == DType::kF64) {
              std::mt19937 random(static_cast<uint32_t>(k));
              std::vector<double> values(static_cast<size_t>(count));
              for (double& value : values) value = std::uniform_real_distribution<double>(-1, 1)(random);
              bytes.resize(values.size() * 8);
              std::memcpy(bytes.data(), values.data(), bytes.size());
            } else {
              std::mt19937 random(static_cast<uint32_t>(k));
              bytes.resize(static_cast<size_t>(count * size_of(type)));
              for (std::byte& byte : bytes) byte = static_cast<std::byte>(random() % (type == DType::kBool ? 2 : 256));
            }
            sources.emplace_back(std::move(bytes), k == 4 ? static_cast<size_t>(size_of(type)) : 0);
          }
          Twin target = empty_twin(count * size_of(type));
          on_both([&](DeviceKernels& kernels, const OnStream& on, const Side& at) {
            std::vector<const void*> memory;
            for (Twin& source : sources) memory.push_back(at(source));
            kernels.reduce(on, {at(target), memory, count, type, op, is_floating(type) ? 0.3 : 1.0});
          });
          const std::string what = case_name(type, count) + ", " + std::string(reduce_op_name(op));
          if (type == DType::kBF16 || type == DType::kF16 || type == DType::kF32)
            expect_same(target, type, what);
          else
            expect_same_bytes(target, what);
        }
      }
    }
  }
}

// Arrays lie apart and begin at any byte, as those of shards do; some blocks are zeros, or hold what is not finite.
TEST_F(CudaKernels, encodes_and_decodes_to_the_bits_of_the_cpu) {
  for (const CodecKind kind : {CodecKind::kInt8, CodecKind::kInt4}) {
    for (const DType type : kTypes) {
      for (const int64_t count : {0, 1, 2, 255, 256, 257, 4099}) {
        for (const size_t shift : {0, 3}) {
          const std::string what = std::string(codec_row(kind).name) + " of " + case_name(type, count, shift);
          const CodecSettings codec{.kind = kind};
          const int64_t bytes = encoded_bytes(codec, count);
          Twin encoded = empty_twin(3 * bytes, shift), apart = empty_twin(3 * bytes + 14, shift),
               sum = empty_twin(bytes, shift);
          for (int64_t term = 0; term < 3; ++term) {
            std::vector<std::byte> values = random_values(type, count, static_cast<uint32_t>(term));
            const auto size = static_cast<size_t>(size_of(type));
            if (count > 1000) std::fill_n(values.begin(), 256 * size, std::byte{0});
            if (count > 1000 && term == 1) std::fill_n(values.begin() + 300 * size, size, std::byte{0xff});
            Twin from(std::move(values));
            on_both([&](DeviceKernels& kernels, const OnStream& on, const Side& at) {
              kernels.encode(on, {codec, type, at(from), count, at.of<std::byte>(encoded) + term * bytes});
              kernels.encode(on, {codec, type, at(from), count, at.of<std::byte>(apart) + term * (bytes + 7)});
            });
          }
          expect_same_bytes(encoded, what);
          for (const int64_t num_terms : {1, 3}) {
            for (const bool adds : {false, true}) {
              Twin decoded(random_values(type, count, 7));
              on_both([&](DeviceKernels& kernels, const OnStream& on, const Side& at) {
                kernels.decode_sum(on, {codec, type, at.of<std::byte>(encoded), num_terms, count, adds, at(decoded)});
              });
              expect_same(decoded, type, what);
            }
          }
          on_both([&](DeviceKernels& kernels, const OnStream& on, const Side& at) {
            kernels.encode_sum(on, {codec, at.of<std::byte>(apart), 3, bytes + 7, count, at.of<std::byte>(sum)});
          });
          expect_same_bytes(sum, what);
        }
      }
    }
  }
}

TEST_F(CudaKernels, turns_heads_within_a_bound) {
  for (const DType type : kTypes) {
    for (const int64_t half : {1, 3, 8, 32, 64}) {
      const int64_t batch = 3, tokens = 37, heads = 5, width = heads * 2 * half + (half == 3 ? 1 : 16);
      Twin x(random_values(type, batch * tokens * width, 1));
      std::vector<float> frequencies;
      for (int64_t i = 0; i < half; ++i)
        frequencies.push_back(std::pow(10000.0f, -static_cast<float>(i) / static_cast<float>(half)));
      on_both([&](DeviceKernels& kernels, const OnStream& on, const Side& at) {
        kernels.rotary(on, {type, at(x), batch, tokens, heads, tokens * width, width, frequencies, 5000, -1.0f});
      });
      expect_close(x, type, 1e-5, type == DType::kBF16 ? 1e-3 : 1e-5, case_name(type, half));
    }
  }
}

TEST_F(CudaKernels, gates_within_a_bound) {
  for (const DType type : kTypes) {
    for (const int64_t count : kSizes) {
      for (const size_t shift : {size_t{0}, static_cast<size_t>(size_of(type))}) {
        const int64_t bytes = count * size_of(type);
        Twin gate(random_values(type, count, 1, false, 20.0f), shift), up(random_values(type, count, 2), shift),
            dy(random_values(type, count, 3), shift), y = empty_twin(bytes, shift), dgate = empty_twin(bytes, shift),
                                                      dup = empty_twin(bytes, shift);
        on_both([&](DeviceKernels& kernels, const OnStream& on, const Side& at) {
          kernels.gated(on, {type, count, at(gate), at(up), at(y)});
          kernels.gated_backward(on, {type, count, at(dy), at(gate), at(up), at(dgate), at(dup)});
        });
        for (const Twin* twin : {&y, &dgate, &dup})
          expect_close(*twin, type, 1e-5, 1e-5, case_name(type, count, shift));
      }
    }
  }
}

TEST_F(CudaKernels, computes_the_loss_and_its_gradient_within_a_bound) {
  for (const DType type : kTypes) {
    for (const auto& [rows, words] :
         std::vector<std::pair<int64_t, int64_t>>{{0, 10}, {1, 1}, {3, 7}, {21, 1000}, {5, 32003}, {4, 50257}}) {
      for (const bool with_gradients : {true, false}) {
        Twin logits(random_values(type, rows * words, 1, false, 8.0f));
        std::vector<int64_t> places;
        for (int64_t row = 0; row < rows; ++row) places.push_back(row % 3 == 2 ? -1 : (row * 7919) % words);
        Twin targets(places), loss(std::vector<double>{1.0}), counted(std::vector<int64_t>{5}),
            row_losses = empty_twin(8 * rows);
        on_both([&](DeviceKernels& kernels, const OnStream& on, const Side& at) {
          kernels.cross_entropy(on, {type, rows, words, at(logits), at.of<int64_t>(targets), 0.5f, with_gradients,
                                     at.of<double>(loss), at.of<int64_t>(counted), at.of<double>(row_losses)});
        });
        const std::string what = case_name(type, rows * words);
        expect_same_bytes(counted, what);
        double on_host = 0, on_device = 0;
        std::memcpy(&on_host, loss.of_host().data(), 8);
        std::memcpy(&on_device, loss.of_device().data(), 8);
        EXPECT_NEAR(on_device, on_host, 1e-5 * on_host) << what;
        expect_close(logits, type, 1e-4, 1e-6, what);
      }
    }
  }
}

TEST_F(CudaKernels, adds_gradients_of_an_embedding_in_the_order_of_the_cpu) {
  for (const DType type : kTypes) {
    for (const DType gradient_type : {DType::kF32, type}) {
      for (const bool overwrites : {false, true}) {
        for (const int64_t width : {1, 7, 64, 2048}) {
          const int64_t count = 301, rows = 50;
          std::mt19937 random(3);
          std::vector<std::pair<int64_t, int64_t>> places;
          for (int64_t i = 0; i < count; ++i) places.emplace_back(static_cast<int64_t>(random() % 52) - 1, i);
          std::sort(places.begin(), places.end());
          std::vector<int64_t> ids, places_of;
          for (const auto& [id, place] : places) ids.push_back(id), places_of.push_back(place);
          Twin sorted(ids), order(places_of), dy(random_values(type, count * width, 1)),
              gradient(random_values(gradient_type, rows * width, 2));
          on_both([&](DeviceKernels& kernels, const OnStream& on, const Side& at) {
            kernels.embedding_gradient(on, {type, gradient_type, count, width, rows, at.of<int64_t>(sorted),
                                            at.of<int64_t>(order), at(dy), at(gradient), overwrites});
          });
          expect_same(gradient, gradient_type, case_name(type, width));
        }
      }
    }
  }
}

TEST_F(CudaKernels, waits_for_what_was_enqueued_and_calls_back) {
  DeviceDriver& driver = device_driver(DeviceKind::kCuda);
  EXPECT_GE(driver.count(), 1);
  const int64_t bytes = 1 << 20;
  auto* host = static_cast<char*>(driver.allocate_host(bytes));
  std::memset(host, 7, bytes);
  Twin device = empty_twin(bytes);
  const StreamHandle other = driver.create_stream(0);
  driver.copy(device.at_device(), host, bytes, 0, stream_);
  driver.record(0, stream_)->hold(other);
  bool called = false;
  driver.copy(host, device.at_device(), bytes, 0, other);
  driver.call(0, other, [&] { called = true; });
  const DeviceEventPtr end = driver.record(0, other);
  end->wait();
  EXPECT_TRUE(end->done());
  EXPECT_TRUE(called);
  EXPECT_EQ(host[bytes - 1], 7);
  driver.destroy_stream(0, other);
  driver.free_host(host);
}

TEST_F(CudaKernels, moves_bytes_at_the_speed_of_the_memory) {
  const OnStream on{0, stream_};
  const Side at{true};
  const int64_t count = 1 << 26;  // 128 MiB of bf16
  Twin a = empty_twin(4 * count), b = empty_twin(4 * count), c = empty_twin(4 * count), d = empty_twin(4 * count),
       e = empty_twin(2 * count), small = empty_twin(1 << 25);
  const auto m = static_cast<double>(count);
  const DType bf16 = DType::kBF16;
  figure("copy", 8 * m, [&] {
    cudaMemcpyAsync(at(a), at(b), static_cast<size_t>(4 * count), cudaMemcpyDeviceToDevice,
                    static_cast<cudaStream_t>(stream_));
  });
  const int64_t width = 2048, rows = count / width;
  auto* r = at.of<float>(small);
  figure("rms_norm_bf16", 4 * m, [&] {
    kernels_->rms_norm(on, {bf16, rows, width, at(a), nullptr, at(e), 1e-5f, nullptr, at(b), r});
  });
  figure("rms_norm_residual_bf16", 8 * m, [&] {
    kernels_->rms_norm(on, {bf16, rows, width, at(a), at(c), at(e), 1e-5f, at(d), at(b), r});
  });
  figure("rms_norm_backward_bf16", 6 * m, [&] {
    kernels_->rms_norm_backward(
        on, {bf16, rows, width, at(a), at(b), at(e), nullptr, r, at(c), r + rows, at.of<float>(d), 512});
  });
  figure("dropout_bf16", 4 * m, [&] {
    kernels_->dropout(on, {bf16, count, {{1, 0, 0, count}}, 0, 0, 1u << 30, 1.3f, at(a), at(b)});
  });
  StepMemory memory;
  memory.weights_type = memory.gradient_type = bf16;
  memory.weights = at(a), memory.low = at.of<uint16_t>(e);
  memory.gradient = static_cast<char*>(at(a)) + 2 * count, memory.moment1 = at(b), memory.moment2 = at.of<float>(c);
  memory.count = count, memory.decay = {{0, count - 100}};
  figure("adamw_split_bf16", 26 * m, [&] { kernels_->adamw(on, {memory, {}}); });
  memory.moment1_type = bf16;
  figure("adamw_split_bf16_momentum_bf16", 22 * m, [&] { kernels_->adamw(on, {memory, {}}); });
  memory.weights_type = memory.moment1_type = memory.gradient_type = DType::kF32, memory.low = nullptr;
  memory.gradient = at(d);
  figure("adamw_fp32", 28 * m, [&] { kernels_->adamw(on, {memory, {}}); });
  figure("sum_of_squares_bf16", 2 * m, [&] {
    kernels_->sum_of_squares(on, {bf16, at(a), count, at.of<double>(small), at.of<double>(small) + 1});
  });
  figure("sum_of_squares_fp32", 4 * m, [&] {
    kernels_->sum_of_squares(on, {DType::kF32, at(a), count, at.of<double>(small), at.of<double>(small) + 1});
  });
  figure("first_non_finite_bf16", 2 * m, [&] {
    kernels_->first_non_finite(on, {bf16, at(a), count, at.of<int64_t>(small)});
  });
  figure("hash", m / 2, [&] { kernels_->hash(on, {at(a), count / 2, 0, at.of<uint64_t>(small)}); });
  figure("split_float", 8 * m, [&] {
    kernels_->split_float(on, {at.of<float>(a), at.of<uint16_t>(b), at.of<uint16_t>(c), count});
  });
  const CodecSettings int8{.kind = CodecKind::kInt8};
  figure("encode_int8_bf16", 3 * m, [&] { kernels_->encode(on, {int8, bf16, at(a), count, at.of<std::byte>(b)}); });
  figure("decode_sum_2_int8_bf16", 4 * m, [&] {
    kernels_->decode_sum(on, {int8, bf16, at.of<std::byte>(b), 2, count, false, at(a)});
  });
  figure("reduce_2_bf16", 6 * m, [&] {
    kernels_->reduce(on, {at(a), {at(b), at(c)}, count, bf16, ReduceOp::kSum, 1});
  });
  figure("reduce_4_fp32", 20 * m, [&] {
    kernels_->reduce(on, {at(a), {at(a), at(b), at(c), at(d)}, count, DType::kF32, ReduceOp::kSum, 1});
  });
  const std::vector<float> frequencies(64, 0.01f);
  figure("rotary_bf16", 4 * m, [&] {
    kernels_->rotary(on, {bf16, at(a), 1, rows, width / 128, 0, width, frequencies, 0, 1.0f});
  });
  figure("gated_bf16", 6 * m, [&] { kernels_->gated(on, {bf16, count, at(a), at(b), at(c)}); });
  figure("gated_backward_bf16", 10 * m, [&] {
    kernels_->gated_backward(on, {bf16, count, at(a), at(b), at(c), at(d), at(e)});
  });
  const int64_t words = 32000, logit_rows = 2000;
  std::vector<int64_t> places(static_cast<size_t>(logit_rows), 5);
  Twin targets(places);
  figure("cross_entropy_bf16", 4.0 * static_cast<double>(words * logit_rows), [&] {
    kernels_->cross_entropy(on, {bf16, logit_rows, words, at(a), at.of<int64_t>(targets), 1.0f, true,
                                 at.of<double>(small), at.of<int64_t>(small) + 1, at.of<double>(small) + 2});
  });
  std::vector<int64_t> ids, order;
  for (int64_t i = 0; i < rows / 2; ++i) ids.push_back(i), order.push_back((i * 7919) % (rows / 2));
  Twin sorted(ids), order_twin(order);
  figure("embedding_gradient_bf16", 6 * m / 2, [&] {
    kernels_->embedding_gradient(on, {bf16, bf16, rows / 2, width, rows, at.of<int64_t>(sorted),
                                      at.of<int64_t>(order_twin), at(a), at(b), false});
  });
}

}  // namespace
}  // namespace herd::kernels
