#include "herd/train/model_source.h"

#include <ATen/ops/arange.h>

#include <numeric>
#include <utility>

#include "herd/models/decoder.h"
#include "herd/spec/layout.h"
#include "herd/train/batches.h"
#include "herd/train/data_source.h"

namespace herd::train {
namespace {

class TokenSamples final : public Samples {
 public:
  explicit TokenSamples(std::unique_ptr<SampleSource> source) : source_(std::move(source)) {}
  std::string summary() const override { return source_->summary(); }
  int64_t per_epoch() const override { return source_->samples_per_epoch(); }
  runtime::StepInput read(int64_t first, int64_t batch, int64_t micro_batch,
                          const program::Program& step) const override {
    return {read_micro_batches(*source_, first, batch, micro_batch, step),
            1.0 / static_cast<double>(counted_tokens(*source_, first, batch))};
  }

 private:
  std::unique_ptr<SampleSource> source_;
};

class FamilySource final : public ModelSource {
 public:
  spec::RunFile complete(spec::RunFile run, Communicator&) const override { return run; }
  models::Model make(const spec::RunFile& run, const spec::ModelTable& table, const program::Program& step,
                     at::Device device) const override {
    const spec::Layout layout =
        spec::resolve_mesh(run, step.mesh.world_size + static_cast<int>(run.strategy.dedicated_servers));
    return models::make_model(run.model, table, {step.tensor_place(), layout.expert_place(step.rank)}, device);
  }
  std::unique_ptr<Samples> open(const spec::RunFile& run, Split split, Communicator&) const override {
    return token_samples(open_samples(run, split));
  }
  bool has_validation() const override { return true; }
  runtime::StepInput example(const spec::RunFile& run, int64_t rows) const override {
    const at::Tensor ids =
        at::arange(rows * run.model.context, at::kLong).mul_(7919).remainder_(run.model.vocab).view({rows, -1});
    std::vector<int64_t> samples(static_cast<size_t>(rows));
    std::iota(samples.begin(), samples.end(), 0);
    runtime::Batch batch{.inputs_BT = ids, .targets_BT = ids, .samples = samples};
    for (int64_t row = 0; run.data.packs_documents() && row < rows; ++row)
      batch.document_begins.push_back(row * run.model.context);
    return {.micro_batches = {batch}};
  }
};

}  // namespace

std::shared_ptr<const ModelSource> family_source() { return std::make_shared<FamilySource>(); }

std::unique_ptr<Samples> token_samples(std::unique_ptr<SampleSource> source) {
  return std::make_unique<TokenSamples>(std::move(source));
}

}  // namespace herd::train
