#include "herd/train/same_model.h"

#include <sstream>

#include "herd/base/error.h"

namespace herd::train {

void check_same_model(const Manifest& manifest, const spec::RunFile::Model& wanted, const std::string& checkpoint) {
  if (manifest.config.empty()) return;
  const spec::RunFile::Model saved = spec::parse_run_text(manifest.config, checkpoint).model;
  std::string differ;
  const auto compare = [&](const char* name, const auto& of_weights, const auto& of_run) {
    std::ostringstream line;
    line << std::boolalpha << "\n  model." << name << ": " << of_weights << " in the weights, " << of_run
         << " in this run";
    if (of_weights != of_run) differ += line.str();
  };
  compare("kind", saved.kind, wanted.kind);
  compare("layers", saved.layers, wanted.layers);
  compare("width", saved.width, wanted.width);
  compare("heads", saved.heads, wanted.heads);
  compare("kv_heads", saved.kv_heads, wanted.kv_heads);
  compare("head_width", saved.head_width, wanted.head_width);
  compare("ffn", saved.ffn, wanted.ffn);
  compare("context", saved.context, wanted.context);
  compare("vocab", saved.vocab, wanted.vocab);
  compare("tie_embeddings", saved.tie_embeddings, wanted.tie_embeddings);
  compare("norm", saved.norm, wanted.norm);
  if (differ.empty()) return;
  throw Error(Code::kBadConfig, "model.weights = \"" + checkpoint + "\" is of another model:" + differ +
                                    "\n  fix: the [model] it was saved with");
}

}  // namespace herd::train
