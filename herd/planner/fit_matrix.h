// Says which models fit which devices, and at which ZeRO stage: a row a model, a column a device. The bytes are those
// of memory_by_equations(), activations and buffers included. Threads: pure.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "herd/planner/prediction.h"

namespace herd::planner {

struct FitMatrix {
  struct Device {
    std::string name;   // "80GB"
    int64_t bytes = 0;  // memory of a rank's device
  };
  struct Row {
    std::string model;
    int64_t parameters = 0;
    std::array<double, 4> bytes{};  // what a rank's device holds at most, by ZeRO stage
    std::string why_not = {};       // why the model has no such layout; then all else is 0
    // Returns the least stage that fits the device; -1 where none does.
    int stage_on(const Device& device) const;
  };
  int ranks = 1;
  std::vector<Device> devices;
  std::vector<Row> rows;
};

// Predicts the run under each ZeRO stage, all else as the run file states it.
FitMatrix::Row fit_row(const std::string& model, const spec::RunFile& run, int ranks, const Cluster& cluster);

std::string matrix_text(const FitMatrix& matrix);
std::string matrix_svg(const FitMatrix& matrix);

}  // namespace herd::planner
