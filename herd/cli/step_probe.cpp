#include "herd/cli/step_probe.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include "herd/base/elapsed.h"

namespace herd::cli {
namespace {

constexpr int kSteps = 64, kRuns = 5;

Schedule copies(Rank rank, int num_ranks) {
  Schedule schedule;
  schedule.self = rank;
  schedule.num_ranks = num_ranks;
  schedule.elements = kSteps;
  schedule.dtype = DType::kF32;
  for (int i = 0; i < kSteps; ++i) {
    schedule.steps.push_back({.kind = StepKind::kCopy,
                              .targets = {{rank, Space::kOutput, i, i + 1}},
                              .sources = {{rank, Space::kInput, i, i + 1}}});
  }
  return schedule;
}

}  // namespace

StepProbe::StepProbe(transport::Channel& channel)
    : program_(copies(channel.rank(), channel.size())), operation_(channel, nullptr) {}

double StepProbe::us() {
  std::array<float, kSteps> input = {}, output;
  double least = 1e9;
  for (int run = 0; run < kRuns; ++run) {
    comm::OperationCall call;
    call.program = &program_;
    call.input = reinterpret_cast<std::byte*>(input.data());
    call.output = reinterpret_cast<std::byte*>(output.data());
    operation_.begin(call);
    const double begin = now_us();
    while (!operation_.done()) operation_.advance();
    least = std::min(least, (now_us() - begin) / kSteps);
  }
  return least;
}

}  // namespace herd::cli
