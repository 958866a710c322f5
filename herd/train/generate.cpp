#include "herd/train/generate.h"

#include <cstdio>
#include <filesystem>

#include "herd/checkpoint/loader.h"
#include "herd/comm/communicator.h"
#include "herd/data/text_stream.h"
#include "herd/data/tokenizer.h"
#include "herd/models/gpt.h"
#include "herd/spec/run_file.h"
#include "herd/storage/checkpoint_folder.h"
#include "herd/train/model_tensors.h"

namespace herd::train {
namespace {

// Weights only: the optimizer's tensors stay on disk.
void load_weights(CheckpointReader& reader, const models::Model& model) {
  std::vector<NamedTensor> tensors;
  for (const auto& group : model.groups) {
    group->attach(at::empty({group->elements()}, group->dtype()));
    for (const nn::Parameter& parameter : group->parameters())
      tensors.push_back(whole_tensor(parameter.spec().name, parameter.value().detach()));
  }
  std::set<std::string> all;
  for (const auto& [name, tensor] : reader.manifest().tensors) all.insert(name);
  load_tensors(reader, tensors, all);
}

}  // namespace

void generate(const GenerateOptions& options) {
  CheckpointReader reader(resolve_checkpoint(options.checkpoint));
  const spec::RunFile run = spec::parse_run_text(reader.manifest().config, reader.folder() / kManifestName);
  const std::filesystem::path model_file = options.tokenizer.empty()
                                               ? std::filesystem::path(run.data.path) / "tokenizer.model"
                                               : std::filesystem::path(options.tokenizer);
  const Tokenizer tokenizer = Tokenizer::load(model_file);
  const models::Model model = models::make_model(run.model);
  load_weights(reader, model);

  std::vector<int> ids = tokenizer.encode(options.prompt);
  if (ids.empty()) ids = {tokenizer.end_of_text()};
  const std::vector<int64_t> prompt(ids.begin(), ids.end());
  TextStream stream(tokenizer);
  const auto show = [](const std::string& text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  };
  show(stream.add(ids));
  models::GenerateOptions sample = options.sample;
  sample.on_token = [&](int64_t id) {
    if (id == tokenizer.end_of_text()) return false;
    show(stream.add(static_cast<int>(id)));
    return true;
  };
  models::generate(model, prompt, sample);
  show(stream.rest() + "\n");
}

}  // namespace herd::train
