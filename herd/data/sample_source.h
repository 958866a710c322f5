// Reads the endless sequence of training samples, by global index. A sample is context + 1 ids, of which the first
// `context` are inputs and the last `context` are targets.
//   tokens  window w of a token file: ids [w * context, (w + 1) * context + 1), in the order of sample_order.h;
//           windows = (count - 1) / context
//   random  uniform ids, a pure function of seed, sample and position (for benches)
// Threads: any.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>

namespace herd {

enum class Split { kTrain, kValidation };

class SampleSource {
 public:
  virtual ~SampleSource() = default;
  virtual int64_t context() const = 0;
  virtual int64_t vocabulary() const = 0;
  virtual int64_t samples_per_epoch() const = 0;
  virtual void read(int64_t sample, std::span<int64_t> out) const = 0;  // REQUIRES out.size() == context() + 1
};

// Opens train.tokens or val.tokens in a folder that `herd tokenize` wrote. The validation split has one fixed order,
// whatever the seed: samples [0, n) are the same in every evaluation. Throws kBadConfig if the folder or file is not
// there, was not finished, or holds no whole window; kCorruptFile as TokenFile.
std::unique_ptr<SampleSource> open_tokens(const std::filesystem::path& folder, Split split, int64_t context,
                                          uint64_t seed);
std::unique_ptr<SampleSource> random_samples(int64_t vocabulary, int64_t context, uint64_t seed);

}  // namespace herd
