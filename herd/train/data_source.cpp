#include "herd/train/data_source.h"

#include "herd/data/packed_samples.h"
#include "herd/data/token_file.h"

namespace herd::train {

std::unique_ptr<SampleSource> open_samples(const spec::RunFile& run, Split split) {
  const uint64_t seed = static_cast<uint64_t>(run.train.seed);
  const bool packs = run.data.packs_documents();
  if (run.data.kind == "random") {
    const uint64_t seed_of_split = split == Split::kTrain ? seed : ~seed;
    if (packs) return random_documents(run.model.vocab, run.model.context, seed_of_split);
    return random_samples(run.model.vocab, run.model.context, seed_of_split);
  }
  TokenFile(std::filesystem::path(run.data.path) / "train.tokens").require_vocabulary(run.model.vocab);
  if (packs) return open_documents(run.data.path, split, run.model.context, seed);
  return open_tokens(run.data.path, split, run.model.context, seed);
}

}  // namespace herd::train
