#include "herd/train/data_source.h"

#include "herd/data/masked_samples.h"
#include "herd/data/packed_samples.h"
#include "herd/data/token_file.h"
#include "herd/spec/masked_tokens.h"

namespace herd::train {
namespace {

std::unique_ptr<SampleSource> open_masked(const spec::RunFile& run, Split split) {
  const uint64_t seed = seed_of(split, static_cast<uint64_t>(run.train.seed));
  const int64_t vocab = run.model.vocab;
  std::unique_ptr<SampleSource> source;
  if (run.data.kind == "random")  // its last token is the mask
    source = random_samples(vocab - 1, run.model.context, split == Split::kTrain ? seed : ~seed);
  else
    source = open_tokens(run.data.path, split, run.model.context, seed);
  const int64_t mask = spec::mask_token(run, source->vocabulary());
  return masked_samples(std::move(source), {.tokens = spec::masked_tokens(run), .mask_token = mask, .seed = seed});
}

}  // namespace

std::unique_ptr<SampleSource> open_samples(const spec::RunFile& run, Split split) {
  const uint64_t seed = static_cast<uint64_t>(run.train.seed);
  const bool packs = run.data.packs_documents();
  if (run.data.kind != "random")
    TokenFile(std::filesystem::path(run.data.path) / "train.tokens").require_vocabulary(run.model.vocab);
  if (run.model.is_bert()) return open_masked(run, split);
  if (run.data.kind == "random") {
    const uint64_t seed_of_split = split == Split::kTrain ? seed : ~seed;
    if (packs) return random_documents(run.model.vocab, run.model.context, seed_of_split);
    return random_samples(run.model.vocab, run.model.context, seed_of_split);
  }
  if (packs) return open_documents(run.data.path, split, run.model.context, seed);
  return open_tokens(run.data.path, split, run.model.context, seed);
}

}  // namespace herd::train
