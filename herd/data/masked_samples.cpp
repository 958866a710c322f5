#include "herd/data/masked_samples.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "herd/base/check.h"
#include "herd/data/random_bits.h"

namespace herd {
namespace {

class MaskedSamples final : public SampleSource {
 public:
  MaskedSamples(std::unique_ptr<SampleSource> source, const Masking& masking)
      : source_(std::move(source)), masking_(masking) {
    HERD_CHECK(!source_->packs_documents(), "documents that are packed are not masked");
    HERD_CHECK(masking.tokens >= 1 && masking.tokens <= source_->context(), "tokens of a sequence are predicted");
  }
  int64_t context() const override { return source_->context(); }
  int64_t vocabulary() const override { return source_->vocabulary(); }
  int64_t samples_per_epoch() const override { return source_->samples_per_epoch(); }
  int64_t targets_of(int64_t) const override { return masking_.tokens; }
  std::string summary() const override {
    return std::to_string(masking_.tokens) + " of " + std::to_string(context()) +
           " tokens of each sequence are predicted, most of them hidden behind token " +
           std::to_string(masking_.mask_token);
  }

  void read_row(int64_t sample, SampleRow& row) const override {
    source_->read_row(sample, row);
    const uint64_t key = mix_bits(mix_bits(masking_.seed) + static_cast<uint64_t>(sample));
    const auto T = static_cast<uint64_t>(row.inputs_T.size());
    std::vector<std::pair<uint64_t, uint64_t>> places(T);  // by a random number each
    for (uint64_t t = 0; t < T; ++t) places[t] = {mix_bits(key ^ t), t};
    std::nth_element(places.begin(), places.begin() + masking_.tokens - 1, places.end());
    std::fill(row.targets_T.begin(), row.targets_T.end(), kIgnoredTarget);
    for (int64_t i = 0; i < masking_.tokens; ++i) {
      const auto [bits, t] = places[static_cast<size_t>(i)];
      int64_t& token = row.inputs_T[t];
      row.targets_T[t] = token;
      const uint64_t drawn = mix_bits(bits ^ key);
      const uint64_t tenth = drawn % 10;
      if (tenth < 8)
        token = masking_.mask_token;
      else if (tenth == 8)
        token = static_cast<int64_t>(mix_bits(drawn) % static_cast<uint64_t>(source_->vocabulary()));
    }
  }

 private:
  std::unique_ptr<SampleSource> source_;
  Masking masking_;
};

}  // namespace

std::unique_ptr<SampleSource> masked_samples(std::unique_ptr<SampleSource> source, const Masking& masking) {
  return std::make_unique<MaskedSamples>(std::move(source), masking);
}

}  // namespace herd
