// Reads the weights of a model as fp32, from a herd checkpoint or a folder of Hugging Face's transformers. Only the
// range that is asked for is in memory. Throws kBadConfig (a model or type that can't be
// converted), kCorruptFile and kStorage (as CheckpointReader and SafetensorsFile; a herd checkpoint's checksums are
// compared before a byte is used). Threads: one at a time.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "herd/spec/run_file.h"
#include "herd/storage/manifest.h"

namespace herd::convert {

struct Weight {
  std::string name;            // herd's name of it
  std::vector<int64_t> shape;  // in herd's model; one to three dims, of a chain any number
  DType dtype = DType::kF32;   // as the file stores it
  bool transposed = false;     // the file stores it with its dims swapped
  // A matrix for each expert, one below the other, is one matrix.
  int64_t rows() const {
    return shape.empty() ? 1 : std::accumulate(shape.begin(), shape.end() - 1, int64_t{1}, std::multiplies<>());
  }
  int64_t columns() const { return shape.empty() ? 1 : shape.back(); }
};

class WeightSource {
 public:
  virtual ~WeightSource() = default;
  const std::filesystem::path& path() const { return path_; }      // the folder that holds the files
  const spec::RunFile& run() const { return run_; }                // describes the model
  const Manifest& manifest() const { return manifest_; }           // has step, samples, run file and notes, no tensors
  const std::vector<Weight>& weights() const { return weights_; }  // in the order of the model
  // Returns the names of tensors that the files have for parts which herd's model does not have.
  const std::vector<std::string>& left_out() const { return left_out_; }
  // Reads rows x columns of the weight's tensor. Both index it as the file stores it: for a transposed weight, `rows`
  // are herd's columns. A vector is one row. REQUIRES out.size() == rows.size() * columns.size().
  virtual void read(const Weight& weight, IndexRange rows, IndexRange columns, std::span<float> out) = 0;

 protected:
  explicit WeightSource(std::filesystem::path path) : path_(std::move(path)) {}
  std::filesystem::path path_;
  spec::RunFile run_;
  Manifest manifest_;
  std::vector<Weight> weights_;
  std::vector<std::string> left_out_;
};

// Returns the folder that holds the weights which `path` names. `path` may be a checkpoint, or a folder with
// config.json and *.safetensors. Of a folder of checkpoints, or of a run, it takes the newest whole one. Throws
// kBadConfig that names what is there instead, and as resolve_checkpoint().
std::filesystem::path find_weights(const std::filesystem::path& path);
// Opens find_weights(path) and checks every name, shape and type.
std::unique_ptr<WeightSource> open_weights(const std::filesystem::path& path);

// Calls visit() with the elements of a slice of the weight in herd's layout, in order, some at a time. REQUIRES a slice
// of the weight's shape. Throws kBadConfig where a row that it reads holds NaN or infinity.
void read_slice(WeightSource& source, const Weight& weight, const TensorSlice& slice,
                const std::function<void(std::span<const float>)>& visit);

// Returns the names and shapes of a model's weights, in the order of the model, and after them its buffers.
std::vector<Weight> weights_of(const spec::RunFile& run);

}  // namespace herd::convert
