#include "herd/convert/gpt2_folder.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include "herd/base/error.h"
#include "herd/convert/cast.h"
#include "herd/convert/gpt2_names.h"
#include "herd/convert/stream_internal.h"
#include "herd/storage/atomic_file.h"
#include "herd/storage/mapped_file.h"
#include "herd/storage/safetensors.h"

namespace herd::convert {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "transformer.";

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text;
  for (const int64_t size : shape) text += (text.empty() ? "" : " x ") + std::to_string(size);
  return text;
}

bool is_left_out(std::string_view name, bool tied) {
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias") || (tied && name == "lm_head.weight");
}

class Gpt2Weights final : public WeightSource {
 public:
  explicit Gpt2Weights(const fs::path& folder) : folder_(folder) {
    const MappedFile text(folder / "config.json");
    const Gpt2Config config = parse_gpt2_config(
        {reinterpret_cast<const char*>(text.bytes().data()), text.bytes().size()}, text.path().string());
    run_.model = config.model;
    run_ = spec::parse_run_text(spec::to_toml(run_), text.path().string());  // fills in, and checks the rules
    facts_.config = spec::to_toml(run_);
    facts_.notes = {{"tokenizer", "of the Hugging Face folder that the weights came from"},
                    {"begin_of_text", std::to_string(config.begin_of_text)},
                    {"end_of_text", std::to_string(config.end_of_text)}};
    open_files();
    weights_ = weights_of(run_);
    for (Weight& weight : weights_) claim(weight);
    for (const auto& [name, where] : tensors_) {
      if (!claimed_.contains(name) && !is_left_out(name, run_.model.tie_embeddings))
        throw Error(Code::kBadConfig, where.file->path().string() + " holds \"" + name +
                                          "\", which GPT-2 of its config.json does not have");
    }
  }

  void read(const Weight& weight, IndexRange rows, IndexRange columns, std::span<float> out) override {
    const Place& place = tensors_.at(gpt2_name(weight.name).name);
    const auto bytes = place.file->bytes(*place.entry);
    const int64_t width = weight.transposed ? weight.rows() : weight.columns(), element = size_of(weight.dtype);
    const auto run = static_cast<size_t>(columns.size());
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      const auto from = static_cast<size_t>((row * width + columns.begin) * element);
      to_float(weight.dtype, bytes.subspan(from, run * static_cast<size_t>(element)),
               out.subspan(static_cast<size_t>(row - rows.begin) * run, run));
    }
  }

 private:
  struct Place {
    const SafetensorsFile* file;
    const TensorEntry* entry;
  };

  void open_files() {
    for (const auto& entry : fs::directory_iterator(folder_)) {
      if (entry.path().extension() == ".safetensors") files_.push_back(std::make_unique<SafetensorsFile>(entry.path()));
    }
    if (files_.empty()) {
      throw Error(Code::kBadConfig, folder_.string() + " has a config.json and no *.safetensors" +
                                        "\n  fix: model.save_pretrained(FOLDER, safe_serialization=True)");
    }
    for (const auto& file : files_) {
      for (const TensorEntry& entry : file->tensors()) {
        const bool has_prefix = entry.name.starts_with(kPrefix);
        const std::string name = has_prefix ? entry.name.substr(kPrefix.size()) : entry.name;
        if (!tensors_.try_emplace(name, Place{file.get(), &entry}).second) {
          throw Error(Code::kBadConfig, folder_.string() + ": tensor \"" + name + "\" is there twice, the second in " +
                                            file->path().filename().string() +
                                            "\n  fix: keep the files of one model in the folder");
        }
      }
    }
  }

  void claim(Weight& weight) {
    const Gpt2Name theirs = gpt2_name(weight.name);
    const auto found = tensors_.find(theirs.name);
    if (found == tensors_.end()) {
      throw Error(Code::kBadConfig,
                  folder_.string() + " lacks \"" + theirs.name +
                      "\", which its config.json states\n  fix: all files of the model in the folder");
    }
    const TensorEntry& entry = *found->second.entry;
    std::vector<int64_t> shape = weight.shape;
    if (theirs.transposed) std::reverse(shape.begin(), shape.end());
    const auto dtype = dtype_of_tensor(entry.type);
    if (entry.shape != shape || !dtype || !is_weight_type(*dtype)) {
      throw Error(Code::kBadConfig, found->second.file->path().string() + ": \"" + entry.name + "\" is " + entry.type +
                                        " " + shape_text(entry.shape) + ", config.json asks for " + shape_text(shape) +
                                        " in F32, BF16 or F16");
    }
    weight.transposed = theirs.transposed;
    weight.dtype = *dtype;
    claimed_.insert(theirs.name);
  }

  fs::path folder_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, Place> tensors_;  // without the prefix
  std::set<std::string> claimed_;
};

int64_t id_note(const WeightSource& source, const char* name, int64_t otherwise) {
  const auto found = source.facts().notes.find(name);
  return found == source.facts().notes.end() ? otherwise : std::stoll(found->second);
}

std::string_view torch_name(DType dtype) {
  return dtype == DType::kBF16 ? "bfloat16" : dtype == DType::kF16 ? "float16" : "float32";
}

}  // namespace

bool is_gpt2_folder(const fs::path& folder) {
  return fs::exists(folder / "config.json") && !fs::exists(folder / kManifestName);
}

std::unique_ptr<WeightSource> open_gpt2_folder(const fs::path& folder) { return std::make_unique<Gpt2Weights>(folder); }

void write_gpt2_folder(const fs::path& folder, WeightSource& source, DType dtype, const Progress& progress,
                       FileSystem& files) {
  require_gpt2(source.run().model);
  const bool tied = source.run().model.tie_embeddings;
  std::vector<TensorEntry> entries;
  for (const Weight& weight : source.weights()) {
    Gpt2Name theirs = gpt2_name(weight.name);
    std::vector<int64_t> shape = weight.shape;
    if (theirs.transposed) std::reverse(shape.begin(), shape.end());
    if (!tied && weight.name != "head.weight") theirs.name.insert(0, kPrefix);  // so that lm_head stands outside
    entries.push_back({theirs.name, std::string(tensor_type_of(dtype)), shape});
  }
  SafetensorsWriter writer(folder / "model.safetensors", entries, {{"format", "pt"}}, files);
  const int64_t all = std::max<int64_t>(1, writer.entries().empty() ? 1 : writer.entries().back().end);
  for (const Weight& weight : source.weights()) {
    stream_weight(source, weight, gpt2_name(weight.name).transposed, dtype, [&](std::span<const std::byte> bytes) {
      writer.append(bytes);
      if (progress) progress(std::min(all, writer.size()), all);
    });
  }
  writer.commit();
  const Gpt2Config config{source.run().model, id_note(source, "begin_of_text", 1), id_note(source, "end_of_text", 2)};
  write_file_atomically(folder / "config.json", format_gpt2_config(config, torch_name(dtype)), files);
}

}  // namespace herd::convert
