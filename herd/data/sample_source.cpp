#include "herd/data/sample_source.h"

#include <algorithm>
#include <string>

#include "herd/base/check.h"
#include "herd/base/error.h"
#include "herd/data/sample_order.h"
#include "herd/data/token_file.h"
#include "herd/data/token_folder.h"
#include "herd/storage/file_kind.h"

namespace herd {
namespace {

constexpr uint64_t kValidationSeed = 0;
constexpr uint64_t kPositionMask = (uint64_t{1} << 63) - 1;

int64_t whole_windows(const TokenFile& file, int64_t context, Split split) {
  HERD_CHECK_GE(context, 1);
  if (file.count() > context) return (file.count() - 1) / context;
  throw Error(Code::kBadConfig, file.path().string() + " holds " + std::to_string(file.count()) +
                                    " tokens, a sample of context " + std::to_string(context) + " needs " +
                                    std::to_string(context + 1) +
                                    fix_of_few_tokens(split, "a shorter model.context, or more text"));
}

class TokenSamples final : public WindowSource {
 public:
  TokenSamples(const std::filesystem::path& folder, Split split, int64_t context, uint64_t seed)
      : file_(split_path(folder, split)),
        context_(context),
        order_(whole_windows(file_, context, split), seed_of(split, seed)) {}
  int64_t context() const override { return context_; }
  int64_t vocabulary() const override { return file_.vocabulary(); }
  int64_t samples_per_epoch() const override { return order_.windows(); }
  void read(int64_t sample, std::span<int64_t> out) const override {
    HERD_CHECK_EQ(static_cast<int64_t>(out.size()), context_ + 1);
    file_.read(order_.window_of(sample) * context_, out);
  }

 private:
  TokenFile file_;
  int64_t context_;
  SampleOrder order_;
};

// Draws endless random samples. The id at position p of sample s is window s * (context + 1) + p of one order, modulo
// the vocabulary.
class RandomSamples final : public WindowSource {
 public:
  RandomSamples(int64_t vocabulary, int64_t context, uint64_t seed)
      : vocabulary_(vocabulary), context_(context), draw_(int64_t{1} << 48, seed) {
    HERD_CHECK_GE(vocabulary, 1);
    HERD_CHECK_GE(context, 1);
  }
  int64_t context() const override { return context_; }
  int64_t vocabulary() const override { return vocabulary_; }
  int64_t samples_per_epoch() const override { return (int64_t{1} << 48) / (context_ + 1); }
  void read(int64_t sample, std::span<int64_t> out) const override {
    HERD_CHECK_EQ(static_cast<int64_t>(out.size()), context_ + 1);
    const uint64_t first = static_cast<uint64_t>(sample) * static_cast<uint64_t>(context_ + 1);  // may wrap around
    for (size_t p = 0; p < out.size(); ++p) {
      out[p] = draw_.window_of(static_cast<int64_t>((first + p) & kPositionMask)) % vocabulary_;
    }
  }

 private:
  int64_t vocabulary_, context_;
  SampleOrder draw_;
};

}  // namespace

void WindowSource::read_row(int64_t sample, SampleRow& row) const {
  std::vector<int64_t> ids(row.inputs_T.size() + 1);
  read(sample, ids);
  std::copy(ids.begin(), ids.end() - 1, row.inputs_T.begin());
  std::copy(ids.begin() + 1, ids.end(), row.targets_T.begin());
  row.document_begins.clear();
}

std::filesystem::path split_path(const std::filesystem::path& folder, Split split) {
  const auto path = folder / (split == Split::kTrain ? "train.tokens" : "val.tokens");
  if (!is_file(path)) {
    throw Error(Code::kBadConfig, "data.path = \"" + folder.string() + "\": there is no file " + path.string() +
                                      "\n  fix: herd tokenize FILES... --out " + folder.string());
  }
  read_token_folder(folder);
  return path;
}

uint64_t seed_of(Split split, uint64_t seed) { return split == Split::kTrain ? seed : kValidationSeed; }

std::string fix_of_few_tokens(Split split, const std::string& fix) {
  const std::string first = split == Split::kTrain ? "" : "train.eval_every = 0, a larger herd tokenize --validation, ";
  return "\n  fix: " + first + fix;
}

std::unique_ptr<WindowSource> open_tokens(const std::filesystem::path& folder, Split split, int64_t context,
                                          uint64_t seed) {
  return std::make_unique<TokenSamples>(folder, split, context, seed);
}

std::unique_ptr<WindowSource> random_samples(int64_t vocabulary, int64_t context, uint64_t seed) {
  return std::make_unique<RandomSamples>(vocabulary, context, seed);
}

}  // namespace herd
