// What tests and the Python scripts beside them tell each other: raw files, little endian, of numbers that follow each
// other, and the names and sizes of a model's parameters.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "training_run_internal.h"

namespace herd::models {

template <typename T>
void write_file(const std::filesystem::path& path, const at::Tensor& tensor) {
  std::ofstream(path, std::ios::binary)
      .write(static_cast<const char*>(tensor.const_data_ptr()), tensor.numel() * static_cast<int64_t>(sizeof(T)));
}

template <typename T>
std::vector<T> read_file(const std::filesystem::path& path) {
  std::vector<T> values(std::filesystem::file_size(path) / sizeof(T));
  std::ifstream(path, std::ios::binary)
      .read(reinterpret_cast<char*>(values.data()), static_cast<int64_t>(values.size() * sizeof(T)));
  return values;
}

// names.txt (a line per parameter: name, sizes), weights.bin (fp32, in that order) and tokens.bin (int64).
inline void write_input(const std::filesystem::path& folder, const TrainingRun& run, const at::Tensor& tokens) {
  std::ofstream names(folder / "names.txt");
  for (const auto& group : run.model().groups) {
    for (const nn::Parameter& parameter : group->parameters()) {
      names << parameter.spec().name;
      for (int64_t size : parameter.spec().sizes) names << ' ' << size;
      names << '\n';
    }
  }
  write_file<int64_t>(folder / "tokens.bin", tokens);
  write_file<float>(folder / "weights.bin", run.weights());
}

// Larger than any initialisation and nowhere zero, so that every gradient matters.
inline void enlarge(const TrainingRun& run) {
  for (const auto& group : run.model().groups)
    group->weights().add_(at::arange(group->elements(), at::kFloat).mul_(0.7f).sin_(), 0.05);
}

inline void expect_near(const at::Tensor& mine, const at::Tensor& theirs, const std::string& what) {
  constexpr double kShareOfLargest = 1e-5;  // of a tensor's largest element
  const double largest = theirs.abs().max().item<double>();
  EXPECT_GT(largest, 0) << what;
  EXPECT_LE((mine - theirs).abs().max().item<double>(), kShareOfLargest * largest) << what;
}

// The file has the gradients of all parameters in the order of names.txt; those of the run are `share` of them.
inline void expect_gradients_near(const TrainingRun& run, const std::filesystem::path& file, double share = 1) {
  std::vector<float> gradients = read_file<float>(file);
  float* at = gradients.data();
  for (const auto& group : run.model().groups) {
    for (const nn::Parameter& parameter : group->parameters()) {
      expect_near(parameter.gradient() / share, at::from_blob(at, parameter.spec().sizes, at::kFloat),
                  parameter.spec().name);
      at += parameter.spec().elements();
    }
  }
  EXPECT_EQ(at, gradients.data() + gradients.size());
}

}  // namespace herd::models
