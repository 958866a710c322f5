// A checkpoint of a small GPT with AdamW's moments, made of random numbers, in any shards.
#pragma once

#include <cstring>
#include <functional>
#include <random>
#include <vector>

#include "herd/convert/reshard.h"
#include "herd/convert/weight_source.h"
#include "herd/storage/checkpoint_folder.h"
#include "herd/storage/checkpoint_reader.h"
#include "herd/storage/checkpoint_writer.h"
#include "tests/support/faulty_file_system.h"
#include "tests/support/temporary_folder.h"

namespace herd::convert {

inline FileSystem& unsynced_files() {
  static FaultyFileSystem files(FaultyFileSystem::Fault::kNone, 0);
  return files;
}

inline spec::RunFile small_run(const std::vector<std::string>& more = {}) {
  std::vector<std::string> overrides = {"model.layers=2",  "model.width=36", "model.heads=3",  "model.context=7",
                                        "model.vocab=101", "model.ffn=50",   "strategy.zero=3"};
  overrides.insert(overrides.end(), more.begin(), more.end());
  return spec::parse_run_text("", "test", overrides);
}

using ChangeTensor = std::function<void(const std::string& name, std::vector<float>& values)>;

// Saves random weights and moments of `run` in the shards of `ranks` ranks, after `change` has had each tensor.
inline std::filesystem::path save_model(const std::filesystem::path& root, const spec::RunFile& run, int ranks = 2,
                                        const ChangeTensor& change = {}) {
  Manifest manifest{
      .herd_version = "0.1.0", .step = 5, .samples = 60, .config = spec::to_toml(run), .notes = {{"ranks", "2"}}};
  std::map<std::string, std::vector<float>> values;
  std::mt19937 random(7);
  std::normal_distribution<float> normal(0, 0.1f);
  for (const Weight& weight : weights_of(run)) {
    for (const char* suffix : {"", ".exp_avg", ".exp_avg_sq"}) {
      auto& numbers = values[weight.name + suffix];
      numbers.resize(static_cast<size_t>(weight.rows() * weight.columns()));
      for (float& number : numbers) number = normal(random);
      if (change) change(weight.name + suffix, numbers);
      manifest.tensors[weight.name + suffix] = {DType::kF32, weight.shape, {}};
    }
  }
  const auto folder = new_checkpoint_folder(root, manifest.step, unsynced_files());
  std::vector<Manifest> parts;
  const auto shards = shards_of(manifest, ranks);
  for (size_t rank = 0; rank < shards.size(); ++rank) {
    std::vector<TensorPiece> pieces;
    for (const ShardPiece& piece : shards[rank]) {
      const auto bytes =
          std::as_bytes(std::span(values.at(piece.name)))
              .subspan(static_cast<size_t>(4 * piece.slice.elements.begin), static_cast<size_t>(piece.bytes()));
      pieces.push_back({piece.name, piece.dtype, piece.shape, piece.slice, bytes});
    }
    parts.push_back(write_shard(folder, static_cast<Rank>(rank), pieces, unsynced_files()));
  }
  manifest.tensors.clear();
  commit_checkpoint(folder, manifest, parts, unsynced_files());
  return folder;
}

// All bytes of a tensor.
inline std::vector<std::byte> bytes_of(CheckpointReader& reader, const std::string& tensor) {
  const auto& found = reader.manifest().tensors.at(tensor);
  const TensorSlice whole = whole_slice(found.shape);
  std::vector<std::byte> bytes(static_cast<size_t>(whole.elements.size() * size_of(found.dtype)));
  reader.read(tensor, whole, bytes);
  return bytes;
}

inline std::vector<std::byte> bytes_of(const std::filesystem::path& checkpoint, const std::string& tensor) {
  CheckpointReader reader(checkpoint);
  return bytes_of(reader, tensor);
}

inline std::vector<float> floats_of(const std::filesystem::path& checkpoint, const std::string& tensor) {
  const auto bytes = bytes_of(checkpoint, tensor);
  std::vector<float> values(bytes.size() / 4);
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

// Every file of a folder by name, with its bytes.
inline std::map<std::string, std::string> contents_of(const std::filesystem::path& folder) {
  std::map<std::string, std::string> contents;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    contents[entry.path().filename().string()] = read_text(entry.path());
  return contents;
}

}  // namespace herd::convert
