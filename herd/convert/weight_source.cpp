#include "herd/convert/weight_source.h"

#include "herd/base/check.h"
#include "herd/base/error.h"
#include "herd/convert/cast.h"
#include "herd/convert/transformers_folder.h"
#include "herd/spec/build_model_table.h"
#include "herd/storage/checkpoint_folder.h"
#include "herd/storage/checkpoint_reader.h"

namespace herd::convert {
namespace {

// Reads the weights of a herd checkpoint, and checks them against its run file.
class CheckpointWeights final : public WeightSource {
 public:
  explicit CheckpointWeights(const std::filesystem::path& folder) : WeightSource(folder), reader_(folder) {
    manifest_ = reader_.manifest();
    manifest_.tensors.clear();
    manifest_.files.clear();
    const std::string file = (folder / kManifestName).string();
    if (manifest_.config.empty()) {
      throw Error(Code::kBadConfig, file + " holds no run file, so which of its tensors are weights is not known" +
                                        "\n  fix: save it with CheckpointState::config");
    }
    run_ = spec::parse_run_text(manifest_.config, "the run file in " + file);
    weights_ = run_.model.kind == "chain" ? weights_of_chain() : weights_of(run_);
    for (Weight& weight : weights_) check(weight);
  }

  void read(const Weight& weight, IndexRange rows, IndexRange columns, std::span<float> out) override {
    TensorSlice slice = whole_slice(weight.shape);
    if (!slice.box.empty()) slice.box.back() = columns;
    slice.elements = {rows.begin * columns.size(), rows.end * columns.size()};
    bytes_.resize(out.size() * static_cast<size_t>(size_of(weight.dtype)));
    reader_.read(weight.name, slice, bytes_);
    to_float(weight.dtype, bytes_, out);
  }

 private:
  // The blocks of a chain are in its program alone: any tensor may be a weight, and a run takes those that it has.
  std::vector<Weight> weights_of_chain() const {
    std::vector<Weight> weights;
    for (const auto& [name, tensor] : reader_.manifest().tensors) {
      if (is_weight_type(tensor.dtype)) weights.push_back({name, tensor.shape});
    }
    return weights;
  }

  void check(Weight& weight) const {
    const auto& tensors = reader_.manifest().tensors;
    const auto found = tensors.find(weight.name);
    const std::string what = "the checkpoint " + reader_.folder().string() + ": ";
    if (found == tensors.end()) {
      throw Error(Code::kBadConfig, what + "it holds no tensor \"" + weight.name +
                                        "\", which the model of its run file has\n  fix: herd checkpoint inspect shows "
                                        "what it holds");
    }
    if (found->second.shape != weight.shape || !is_weight_type(found->second.dtype)) {
      throw Error(Code::kBadConfig, what + "tensor \"" + weight.name + "\" is of another shape than the model of its " +
                                        "run file states, or is neither fp32, bf16 nor fp16 (" +
                                        std::string(dtype_name(found->second.dtype)) + ")");
    }
    weight.dtype = found->second.dtype;
  }

  CheckpointReader reader_;
  std::vector<std::byte> bytes_;
};

[[noreturn]] void refuse_no_folder(const std::filesystem::path& path) {
  const bool is_file = std::filesystem::exists(path);
  const std::string parent = path.has_parent_path() ? path.parent_path().string() : ".";
  throw Error(Code::kBadConfig,
              is_file
                  ? path.string() + " is a file, weights are named by the folder that holds them" + "\n  fix: " + parent
                  : "there is no folder " + path.string() + " with weights" +
                        "\n  fix: a checkpoint, a run's folder, or a folder of transformers with "
                        "config.json and *.safetensors");
}

// Returns the folder snapshots/<commit> that holds the model in a download cache of transformers, or an empty path.
std::filesystem::path snapshot_in(const std::filesystem::path& folder) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder / "snapshots", ignored)) {
    if (is_transformers_folder(entry.path())) return entry.path();
  }
  return {};
}

// Refuses a folder that has no manifest.json, no checkpoints and no config.json.
[[noreturn]] void refuse_folder(const std::filesystem::path& folder) {
  const std::string names = list_names_for_message(folder);
  if (const auto snapshot = snapshot_in(folder); !snapshot.empty()) {
    throw Error(Code::kBadConfig, folder.string() + " is a download cache (" + names + "), the model lies deeper" +
                                      "\n  fix: " + snapshot.string());
  }
  if (names.find(".safetensors") != names.npos || names.find(".bin") != names.npos) {
    throw Error(Code::kBadConfig,
                folder.string() + " holds " + names +
                    ", but no config.json, which states the model\n  fix: the config.json that belongs "
                    "to these weights, in the same folder");
  }
  throw Error(Code::kBadConfig,
              folder.string() + " is no checkpoint of herd (no " + kManifestName +
                  ", and no folder step-* that has one) and no folder of transformers (no config.json); it holds " +
                  (names.empty() ? "nothing" : names) +
                  "\n  fix: name a run, its folder checkpoints, one of the folders in it, or a folder with config.json "
                  "and *.safetensors");
}

}  // namespace

std::vector<Weight> weights_of(const spec::RunFile& run) {
  std::vector<Weight> weights;
  const spec::ModelTable table = spec::model_table(run, 1);
  for (const auto& group : table.groups) {
    for (const auto& parameter : group.parameters) weights.push_back({parameter.name, parameter.sizes});
  }
  for (const auto& block : table.blocks) {
    for (const auto& buffer : block.buffers) weights.push_back({buffer.name, buffer.sizes});
  }
  return weights;
}

std::filesystem::path find_weights(const std::filesystem::path& path) {
  if (!std::filesystem::is_directory(path)) refuse_no_folder(path);
  if (is_transformers_folder(path)) return path;
  try {
    return resolve_checkpoint(path);
  } catch (const Error& error) {
    if (error.code() == Code::kBadConfig) refuse_folder(path);
    throw;
  }
}

std::unique_ptr<WeightSource> open_weights(const std::filesystem::path& path) {
  const std::filesystem::path folder = find_weights(path);
  if (is_transformers_folder(folder)) return open_transformers_folder(folder);
  return std::make_unique<CheckpointWeights>(folder);
}

}  // namespace herd::convert
