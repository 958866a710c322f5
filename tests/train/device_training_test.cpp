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
  std::vector<std::string> keys;
};

std::ostream& operator<<(std::ostream& out, const Case& one) { return out << one.name; }

spec::RunFile run_of(const Case& one, const std::string& device) {
  std::vector<std::string> keys = {"device.kind=" + device};
  keys.insert(keys.end(), one.keys.begin(), one.keys.end());
  return spec::parse_run_text(spec::to_toml(tiny_run()), "test", keys);
}

const std::vector<std::string> kLlama = {"model.kind=llama", "model.norm=rmsnorm", "model.kv_heads=1", "model.ffn=32",
                                         "model.dropout=0"};

std::vector<std::string> llama(std::vector<std::string> more) {
  more.insert(more.end(), kLlama.begin(), kLlama.end());
  return more;
}

class DeviceTraining : public testing::TestWithParam<Case> {};

TEST_P(DeviceTraining, HasTheLossesOfTheCpu) {
  later::install(/*seed=*/7);
  const Case& one = GetParam();
  const int steps = 4;
  const Trained cpu = train_in_threads(run_of(one, "cpu"), one.ranks, steps),
                device = train_in_threads(run_of(one, "extension"), one.ranks, steps);
  const bool exact = run_of(one, "cpu").strategy.precision == "fp32";
  for (size_t s = 0; s < cpu.losses.size(); ++s) {
    EXPECT_NEAR(device.losses[s], cpu.losses[s], (exact ? 1e-6 : 2e-3) * cpu.losses[s]) << "step " << s;
    EXPECT_NEAR(device.norms[s], cpu.norms[s], (exact ? 1e-5 : 3e-2) * cpu.norms[s]) << "step " << s;
  }
  EXPECT_NEAR(device.validation, cpu.validation, (exact ? 1e-6 : 2e-3) * cpu.validation);
}

INSTANTIATE_TEST_SUITE_P(
    OneRank, DeviceTraining,
    testing::Values(Case{"gpt", 1, {}}, Case{"llama", 1, llama({})},
                    Case{"llama_bf16", 1, llama({"strategy.precision=bf16"})},
                    Case{"momentum_bf16", 1, llama({"strategy.precision=bf16", "optimizer.momentum_precision=bf16"})},
                    Case{"recompute", 1, {"strategy.recompute=full"}}, Case{"fp16", 1, {"strategy.precision=fp16"}},
                    Case{"sgd_bf16", 1, {"optimizer.kind=sgd", "strategy.precision=bf16"}},
                    Case{"states_on_host", 1, {"strategy.offload=states"}},
                    Case{"window", 1, {"strategy.offload=window"}}),
    [](const auto& one) { return one.param.name; });

INSTANTIATE_TEST_SUITE_P(SeveralRanks, DeviceTraining,
                         testing::Values(Case{"dp2", 2, {}}, Case{"zero1", 3, {"strategy.zero=1"}},
                                         Case{"zero2", 2, {"strategy.zero=2"}},
                                         Case{"zero3", 2, {"mesh.fsdp=2", "strategy.zero=3"}},
                                         Case{"tp2", 2, llama({"mesh.tp=2"})}, Case{"pp2", 2, {"mesh.pp=2"}},
                                         Case{"tp2_pp2", 4, {"mesh.tp=2", "mesh.pp=2", "strategy.recompute=full"}},
                                         Case{"cp2", 2, llama({"mesh.cp=2"})}),
                         [](const auto& one) { return one.param.name; });

}  // namespace
}  // namespace herd::train
