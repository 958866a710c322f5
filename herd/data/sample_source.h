// Reads the endless sequence of training samples, by global index. A sample is a row of `context` inputs and targets.
// Those of a WindowSource are context + 1 ids, of which the first `context` are inputs and the last `context` are
// targets; packed_samples.h has others.
//   tokens  window w of a token file: ids [w * context, (w + 1) * context + 1), in the order of sample_order.h;
//           windows = (count - 1) / context
//   random  uniform ids, a pure function of seed, sample and position (for benches)
// Threads: any.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace herd {

enum class Split { kTrain, kValidation };

inline constexpr int64_t kIgnoredTarget = -100;  // of a place that is not in the loss

struct SampleRow {
  std::span<int64_t> inputs_T, targets_T;     // borrowed; of `context` tokens each
  std::vector<int64_t> document_begins = {};  // where documents begin, in order; empty = the sequence is not packed
};

class SampleSource {
 public:
  virtual ~SampleSource() = default;
  virtual int64_t context() const = 0;
  virtual int64_t vocabulary() const = 0;
  virtual int64_t samples_per_epoch() const = 0;
  virtual void read_row(int64_t sample, SampleRow& row) const = 0;
  virtual int64_t targets_of(int64_t) const { return context(); }  // of a sample, in the loss
  // Tells whether sequences are packed, so that rows have document_begins.
  virtual bool packs_documents() const { return false; }
  virtual std::string summary() const { return {}; }  // says how documents were packed, or tokens hidden; may be empty
};

class WindowSource : public SampleSource {
 public:
  virtual void read(int64_t sample, std::span<int64_t> out) const = 0;  // REQUIRES out.size() == context() + 1
  void read_row(int64_t sample, SampleRow& row) const final;
};

// Returns the token file of a split. Throws kBadConfig if it or its folder is not there, or was not finished.
std::filesystem::path split_path(const std::filesystem::path& folder, Split split);
uint64_t seed_of(Split split, uint64_t seed);  // of its order of samples
// Returns what helps a run whose split has too few tokens: of the validation split, also to go without it.
std::string fix_of_few_tokens(Split split, const std::string& fix);

// Opens train.tokens or val.tokens in a folder that `herd tokenize` wrote. The validation split has one fixed order,
// whatever the seed: samples [0, n) are the same in every evaluation. Throws kBadConfig if the folder or file is not
// there, was not finished, or holds no whole window; kCorruptFile as TokenFile.
std::unique_ptr<WindowSource> open_tokens(const std::filesystem::path& folder, Split split, int64_t context,
                                          uint64_t seed);
std::unique_ptr<WindowSource> random_samples(int64_t vocabulary, int64_t context, uint64_t seed);

}  // namespace herd
