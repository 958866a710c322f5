// Trains on the device "later" (tests/device), whose work runs late and whose memory the host can't touch: a wait that
// is forgotten, or a host that reads a device's bytes, fails here as it would on a GPU.
#include <gtest/gtest.h>

#include "tests/device/later_device.h"
#include "tests/train/train_in_threads.h"

namespace herd::train {
namespace {

struct Case {
  std::string name;
  int ranks = 1;
  std::string keys;
};

std::ostream& operator<<(std::ostream& out, const Case& one) { return out << one.name; }

spec::RunFile run_of(const Case& one, const std::string& device) {
  return tiny_run("[device]\nkind = \"" + device + "\"\n" + one.keys);
}

class DeviceTraining : public testing::TestWithParam<Case> {};

TEST_P(DeviceTraining, HasTheLossesOfTheCpu) {
  later::install(/*seed=*/7);
  const Case& one = GetParam();
  const int steps = 4;
  const Trained cpu = train_in_threads(run_of(one, "cpu"), one.ranks, steps),
                device = train_in_threads(run_of(one, "extension"), one.ranks, steps);
  for (size_t s = 0; s < cpu.losses.size(); ++s) {
    EXPECT_NEAR(device.losses[s], cpu.losses[s], 1e-5 * cpu.losses[s]) << "step " << s;
    EXPECT_NEAR(device.norms[s], cpu.norms[s], 1e-4 * cpu.norms[s]) << "step " << s;
  }
  EXPECT_NEAR(device.validation, cpu.validation, 1e-5 * cpu.validation);
}

INSTANTIATE_TEST_SUITE_P(Layouts, DeviceTraining,
                         testing::Values(Case{"one_rank", 1, ""}, Case{"dp", 2, "[mesh]\ndp = 2\n"},
                                         Case{"zero3", 2, "[mesh]\nfsdp = 2\n[strategy]\nzero = 3\n"}),
                         [](const auto& one) { return one.param.name; });

}  // namespace
}  // namespace herd::train
