// A small checkpoint for tests: one tensor of 4 x 6 floats in two flat shards, one of int64 without dimensions.
#pragma once

#include <cstring>
#include <numeric>
#include <vector>

#include "herd/storage/checkpoint_folder.h"
#include "herd/storage/checkpoint_reader.h"
#include "herd/storage/checkpoint_writer.h"
#include "herd/storage/run_id.h"
#include "tests/support/faulty_file_system.h"

namespace herd {

inline FileSystem& unsynced_files() {
  static FaultyFileSystem files(FaultyFileSystem::Fault::kNone, 0);
  return files;
}

inline std::vector<float> numbers(int64_t step) {
  std::vector<float> values(24);
  std::iota(values.begin(), values.end(), static_cast<float>(1000 * step));
  return values;
}

inline std::filesystem::path save_numbers(const std::filesystem::path& root, int64_t step,
                                          FileSystem& files = unsynced_files(), const std::string& run = "") {
  const std::vector<float> values = numbers(step);
  const auto bytes = std::as_bytes(std::span(values));
  const std::vector<int64_t> shape = {4, 6};
  const auto folder = new_checkpoint_folder(root, step, files);
  const auto count = std::as_bytes(std::span(&step, 1));
  std::vector<Manifest> parts;
  parts.push_back(write_shard(folder, 0,
                              {{"w", DType::kF32, shape, slice_of_elements(shape, 0, 7), bytes.first(28)},
                               {"count", DType::kI64, {}, whole_slice({}), count}},
                              files));
  parts.push_back(
      write_shard(folder, 1, {{"w", DType::kF32, shape, slice_of_elements(shape, 7, 24), bytes.subspan(28)}}, files));
  Manifest manifest{.herd_version = "0.1.0", .step = step, .samples = 12 * step, .config = "[train]\nsteps = 3\n"};
  if (!run.empty()) manifest.notes[kRunNote] = run;
  commit_checkpoint(folder, manifest, parts, files);
  return folder;
}

inline std::vector<float> load_numbers(const std::filesystem::path& folder) {
  CheckpointReader reader(folder);
  std::vector<float> values(24);
  reader.read("w", whole_slice({4, 6}), std::as_writable_bytes(std::span(values)));
  return values;
}

}  // namespace herd
