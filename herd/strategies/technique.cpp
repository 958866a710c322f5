#include "herd/strategies/technique.h"

#include "herd/spec/stage_cut.h"

namespace herd::strategies {
namespace {

std::vector<int> layers_of(const spec::ModelTable& model) {
  std::vector<int> layers;
  for (const spec::BlockShape& block : model.blocks) layers.push_back(block.layer);
  return layers;
}

}  // namespace

std::vector<spec::KeyValue> values_if(bool condition, spec::KeyValue value) {
  return condition ? std::vector<spec::KeyValue>{std::move(value)} : std::vector<spec::KeyValue>{};
}

int64_t data_ranks(const spec::RunFile& run, const RankCounts& ranks) {
  return ranks.total / (run.mesh.tp * run.mesh.pp * run.mesh.cp);
}

StepContext::StepContext(const spec::RunFile& run_file, const spec::ModelTable& model_table,
                         const spec::Layout& run_layout)
    : run(run_file),
      model(model_table),
      layout(run_layout),
      split(model.is_split() && layout.tensor_axis != kNoAxis),
      layers(layers_of(model)),
      stage_of_blocks(spec::stage_of_blocks(model, layout.pp, layout.pipeline)),
      stages(stages_of(model, layout.pp, layout.pipeline)) {
  require_joined_groups(model, layout);
}

}  // namespace herd::strategies
