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

StepOf::StepOf(const spec::RunFile& of_run, const spec::ModelTable& of_model, const spec::Layout& of_layout)
    : run(of_run),
      model(of_model),
      layout(of_layout),
      split(model.is_split() && layout.tensor != kNoAxis),
      layers(layers_of(model)),
      stage_of_blocks(spec::stage_of_blocks(model, layout.pp, layout.pipeline)),
      stages(stages_of(model, layout.pp, layout.pipeline)) {}

}  // namespace herd::strategies
