#include "herd/train/data_source.h"

#include "herd/data/token_file.h"

namespace herd::train {

std::unique_ptr<SampleSource> open_samples(const spec::RunFile& run, Split split) {
  const uint64_t seed = static_cast<uint64_t>(run.train.seed);
  if (run.data.kind == "random")
    return random_samples(run.model.vocab, run.model.context, split == Split::kTrain ? seed : ~seed);
  TokenFile(std::filesystem::path(run.data.path) / "train.tokens").require_vocabulary(run.model.vocab);
  return open_tokens(run.data.path, split, run.model.context, seed);
}

}  // namespace herd::train
