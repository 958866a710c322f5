#include "herd/convert/transformers_folder.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <optional>
#include <set>

#include "herd/base/error.h"
#include "herd/base/printable.h"
#include "herd/convert/cast.h"
#include "herd/convert/companions.h"
#include "herd/convert/stream_internal.h"
#include "herd/convert/transformers_files_internal.h"
#include "herd/storage/atomic_file.h"
#include "herd/storage/file_kind.h"
#include "herd/storage/readable_file.h"
#include "herd/storage/safetensors.h"

namespace herd::convert {
namespace {

namespace fs = std::filesystem;

constexpr char kConfig[] = "config.json";

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text;
  for (const int64_t size : shape) text += (text.empty() ? "" : " x ") + std::to_string(size);
  return text;
}

std::string all_digits(float value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", static_cast<double>(value));
  return text;
}

std::string read_text(const fs::path& path) {
  refuse_lfs_pointer(path);
  return ReadableFile(path).text();
}

using Place = TransformersFiles::Place;

// Reads the weights of a Hugging Face folder, and checks them against its config.json.
class TransformersWeights final : public WeightSource {
 public:
  explicit TransformersWeights(const fs::path& folder) : WeightSource(folder) {
    const fs::path config_path = folder / kConfig, generation_path = folder / kGenerationConfig;
    const std::string text = read_text(config_path);
    format_ = &transformers_format(text, config_path.string());
    TransformersConfig config = format_->parse_config(text, config_path.string());
    if (is_taken(generation_path))
      config.ends = parse_generation_config(read_text(generation_path), generation_path.string());
    run_ = run_of_config(config, *format_, text, config_path.string());
    manifest_.config = spec::to_toml(run_);
    manifest_.notes = {{"tokenizer", "of the Hugging Face folder that the weights came from"}};
    write_text_ends(config.ends, manifest_.notes);
    files_.open(folder, *format_);
    weights_ = weights_of(run_);
    for (Weight& weight : weights_) claim(weight);
    check_unclaimed();
  }

  void read(const Weight& weight, IndexRange rows, IndexRange columns, std::span<float> out) override {
    const bool is_vector = weight.shape.size() < 2;  // then its one row is of all tensors' elements
    int64_t first = 0;                               // the weight's row, or element, at which the tensor begins
    for (const StoredTensor& theirs : format_->tensors(weight, run_.model)) {
      const IndexRange asked = is_vector ? columns : rows;
      const IndexRange some{std::max(asked.begin, first), std::min(asked.end, first + theirs.shape[0])};
      const IndexRange of_tensor{some.begin - first, some.end - first};
      if (some.begin < some.end)
        read_rows(place_of(theirs), theirs.shape.back(), is_vector ? rows : of_tensor, is_vector ? of_tensor : columns,
                  out.subspan(static_cast<size_t>((some.begin - asked.begin) * (is_vector ? 1 : columns.size()))));
      first += theirs.shape[0];
    }
  }

 private:
  // Returns where a tensor is, by the one or the other of its names.
  const Place& place_of(const StoredTensor& theirs) const {
    const auto& all = files_.tensors();
    const auto other = theirs.other_name.empty() || all.contains(theirs.name) ? all.end() : all.find(theirs.other_name);
    return other != all.end() ? other->second : files_.at(theirs.name);
  }

  static void read_rows(const Place& place, int64_t width, IndexRange rows, IndexRange columns, std::span<float> out) {
    TensorReader tensor(*place.file, *place.entry);
    const DType dtype = *dtype_of_tensor(place.entry->type);
    const int64_t element_bytes = size_of(dtype);
    const auto num_columns = static_cast<size_t>(columns.size());
    std::vector<std::byte> bytes(num_columns * static_cast<size_t>(element_bytes));
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      tensor.read((row * width + columns.begin) * element_bytes, bytes);
      to_float(dtype, bytes, out.subspan(static_cast<size_t>(row - rows.begin) * num_columns, num_columns));
    }
  }

  void claim(Weight& weight) {
    for (const StoredTensor& theirs : format_->tensors(weight, run_.model)) claim(weight, theirs);
  }

  void claim(Weight& weight, const StoredTensor& theirs) {
    const Place& place = place_of(theirs);
    const TensorEntry& entry = *place.entry;
    const std::vector<int64_t>& shape = theirs.shape;
    const auto dtype = dtype_of_tensor(entry.type);
    const std::string what = place.file->path().string() + ": \"" + entry.name + "\" is " + entry.type + " " +
                             shape_text(entry.shape) + ", ";
    if (entry.shape != shape)
      throw Error(Code::kBadConfig, what + "config.json asks for " + shape_text(shape) +
                                        "\n  fix: the config.json that belongs to these weights");
    if (!dtype || !is_weight_type(*dtype)) {
      throw Error(Code::kBadConfig,
                  what + "but weights are read in F32, BF16 or F16\n  fix: " +
                      (dtype == DType::kF64 ? "in Python, " + std::string(format_->loader) + ".from_pretrained(\"" +
                                                  path_.string() + "\", dtype=\"float32\").save_pretrained(FOLDER)"
                                            : "the weights as they were before they were quantized"));
    }
    weight.transposed = theirs.transposed;
    weight.dtype = *dtype;
    claimed_.insert(theirs.name);
    if (!theirs.other_name.empty()) claim_other_name(theirs, place);
  }

  void claim_other_name(const StoredTensor& theirs, const Place& place) {
    claimed_.insert(theirs.other_name);
    const auto other = files_.tensors().find(theirs.other_name);
    if (theirs.stored_twice || other == files_.tensors().end() || other->second.entry == place.entry) return;
    check_copy(other->second, theirs.name, other->second.file->path().string() + ": \"" + theirs.other_name + "\" ",
               "\n  fix: one of the two left out: they are names of one tensor");
  }

  // Checks the tensors that are no weight of the model. It allows masks, which follow from the model, parts that herd's
  // model does not have, and the head of a tied model if it equals the embedding.
  void check_unclaimed() {
    for (const auto& [name, where] : files_.tensors()) {
      if (claimed_.contains(name) || format_->is_derived(name)) continue;
      if (name == format_->head && run_.model.tie_embeddings) {
        check_tied_head(where);
        continue;
      }
      if (format_->is_left_out != nullptr && format_->is_left_out(name)) {
        left_out_.push_back(name);
        continue;
      }
      throw Error(Code::kBadConfig, where.file->path().string() + " holds \"" + name + "\", which " +
                                        std::string(format_->model) +
                                        " of its config.json does not have\n  fix: the folder as it was published, or "
                                        "that tensor left out");
    }
  }

  void check_tied_head(const Place& head) {
    check_copy(head, std::string(format_->embedding),
               head.file->path().string() + ": config.json ties the output layer to the embedding, but \"" +
                   std::string(format_->head) + "\" ",
               "\n  fix: \"tie_word_embeddings\": false in " + (path_ / kConfig).string() +
                   " to take it as it is, or weights without it to use the embedding");
  }

  // Throws kBadConfig unless the copy has the shape and values of the tensor `name`; the message begins with `what`.
  void check_copy(const Place& copy, const std::string& name, const std::string& what, const std::string& fix) const {
    const Place& original = files_.at(name);
    const auto type = dtype_of_tensor(copy.entry->type);
    if (copy.entry->shape != original.entry->shape || !type || !is_weight_type(*type)) {
      throw Error(Code::kBadConfig, what + "is " + copy.entry->type + " " + shape_text(copy.entry->shape) +
                                        ", which can't be \"" + name + "\", " + original.entry->type + " " +
                                        shape_text(original.entry->shape) + fix);
    }
    const auto difference = first_difference(copy, original);
    if (!difference) return;
    const int64_t width = copy.entry->shape.back();
    throw Error(Code::kBadConfig, what + "differs from \"" + name + "\" in row " +
                                      std::to_string(difference->index / width) + ", column " +
                                      std::to_string(difference->index % width) + ": " + all_digits(difference->a) +
                                      " and " + all_digits(difference->b) + fix);
  }

  struct Difference {
    int64_t index;
    float a, b;
  };

  // Finds the first difference of two tensors of one shape, which may be stored in different types.
  static std::optional<Difference> first_difference(const Place& a, const Place& b) {
    constexpr int64_t kElementsAtOnce = 64 << 10;  // of each tensor, as fp32
    std::vector<float> left(kElementsAtOnce), right(kElementsAtOnce);
    const auto values = [](const Place& place, int64_t begin, std::span<float> out) {
      const DType type = *dtype_of_tensor(place.entry->type);
      std::vector<std::byte> bytes(out.size() * static_cast<size_t>(size_of(type)));
      place.file->read(*place.entry, begin * size_of(type), bytes);
      to_float(type, bytes, out);
    };
    const int64_t num_elements = a.entry->size() / size_of(*dtype_of_tensor(a.entry->type));
    for (int64_t begin = 0; begin < num_elements; begin += kElementsAtOnce) {
      const auto count = static_cast<size_t>(std::min(kElementsAtOnce, num_elements - begin));
      values(a, begin, std::span(left).first(count));
      values(b, begin, std::span(right).first(count));
      for (size_t i = 0; i < count; ++i) {
        const bool both_nan = std::isnan(left[i]) && std::isnan(right[i]);  // is refused when the weight is read
        if (left[i] != right[i] && !both_nan) return Difference{begin + static_cast<int64_t>(i), left[i], right[i]};
      }
    }
    return std::nullopt;
  }

  const TransformersFormat* format_ = nullptr;
  TransformersFiles files_;
  std::set<std::string> claimed_;
};

std::string_view torch_name(DType dtype) {
  return dtype == DType::kBF16 ? "bfloat16" : dtype == DType::kF16 ? "float16" : "float32";
}

}  // namespace

bool is_transformers_folder(const fs::path& folder) {
  return is_taken(folder / kConfig) && !is_taken(folder / kManifestName);
}

std::unique_ptr<WeightSource> open_transformers_folder(const fs::path& folder) {
  return std::make_unique<TransformersWeights>(folder);
}

void write_transformers_folder(const fs::path& folder, const TransformersFormat& format, WeightSource& source,
                               DType dtype, const Progress& progress, FileSystem& files) {
  const spec::RunFile::Model& model = source.run().model;
  format.check_model(model);
  const bool prefixed = !model.tie_embeddings || format.prefix_when_tied;
  std::vector<TensorEntry> entries;
  for (const Weight& weight : source.weights()) {
    for (StoredTensor& theirs : format.tensors(weight, model)) {
      if (prefixed && theirs.name != format.head) theirs.name.insert(0, format.prefix);
      entries.push_back({std::move(theirs.name), std::string(tensor_type_of(dtype)), theirs.shape});
      if (theirs.stored_twice)
        entries.push_back({std::move(theirs.other_name), std::string(tensor_type_of(dtype)), theirs.shape});
    }
  }
  SafetensorsWriter writer(folder / "model.safetensors", entries, {{"format", "pt"}}, files);
  const int64_t total_bytes = std::max<int64_t>(1, writer.entries().empty() ? 1 : writer.entries().back().end);
  for (const Weight& weight : source.weights()) {
    const StoredTensor first = format.tensors(weight, model)[0];
    for (int copy = 0; copy < (first.stored_twice ? 2 : 1); ++copy) {
      stream_weight(source, weight, first.transposed, dtype, [&](std::span<const std::byte> bytes) {
        writer.append(bytes);
        if (progress) progress(std::min(total_bytes, writer.size()), total_bytes);
      });
    }
  }
  writer.commit();
  const TransformersConfig config{model, text_ends_of(source.manifest().notes, default_text_ends())};
  write_file_atomically(folder / kConfig, format.format_config(config, torch_name(dtype)), files);
}

}  // namespace herd::convert
