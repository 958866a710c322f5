// Trains on the device "later" (tests/device), whose work runs late and whose memory the host can't touch: a wait that
// is forgotten, or a host that reads a device's bytes, fails here as it would on a GPU.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <deque>
#include <random>

#include "random_run.h"
#include "tests/device/later_device.h"
#include "tests/support/sample.h"

namespace herd::train {
namespace {

struct Case {
  std::string name;
  int ranks = 1;
  std::vector<std::string> keys;
  std::vector<int> hosts = {};  // of each rank; empty = one host
};

std::ostream& operator<<(std::ostream& out, const Case& one) { return out << one.name; }

spec::RunFile run_of(const Case& one) { return spec::parse_run_text(spec::to_toml(tiny_run()), "test", one.keys); }

const std::vector<std::string> kLlama = {"model.kind=llama", "model.norm=rmsnorm", "model.kv_heads=1", "model.ffn=32",
                                         "model.dropout=0"};

std::vector<std::string> llama(std::vector<std::string> more) {
  more.insert(more.end(), kLlama.begin(), kLlama.end());
  return more;
}

std::vector<std::string> experts(std::vector<std::string> more) {
  std::vector<std::string> keys = {"model.kind=moe",         "model.norm=rmsnorm",  "model.experts=4",
                                   "model.top_k=2",          "model.expert_ffn=24", "model.shared_experts=1",
                                   "model.shared_gate=true", "model.z_loss=0.01",   "model.dropout=0"};
  keys.insert(keys.end(), more.begin(), more.end());
  return keys;
}

std::vector<std::string> packed(std::vector<std::string> more) {
  more.insert(more.end(), {"data.packing=documents", "train.batch=4", "train.micro_batch=2"});
  return more;
}

std::vector<std::string> ring(int ranks, std::vector<std::string> more) {
  more.insert(more.end(),
              {"mesh.cp=" + std::to_string(ranks), "strategy.context=ring", "train.batch=4", "train.micro_batch=2"});
  return more;
}

// Passes that read weights on the host, from buffers that files are read into by turns: the host may write neither
// these nor updated weights while the device reads them. No norm is waited for in between.
const std::vector<std::string> kReadsFilesOnHost = {"strategy.offload=window", "strategy.direct_host=*",
                                                    "strategy.file_layers=4",  "strategy.recompute=full",
                                                    "optimizer.clip=0",        "health.check_finite=false"};

// Gradients of hosts of two ranks, summed in two exchanges.
const std::vector<std::string> kCodecsOfHosts = {"strategy.zero=3", "strategy.secondary_shard=true",
                                                 "mesh.ranks_per_host=2", "strategy.compression=int4",
                                                 "strategy.gather_codec=int8"};

// Gradients in a codec that keeps what it loses, with what else the run has.
std::vector<std::string> encoded(const std::string& codec, std::vector<std::string> more = {}) {
  more.insert(more.end(), {"strategy.compression=" + codec, "train.batch=8", "train.micro_batch=2"});
  if (codec == "topk") more.push_back("strategy.compression_ratio=0.2");
  return more;
}

// The host updates, from gradients that it has encoded, while the next step computes.
const std::vector<std::string> kDelayed = {"strategy.offload=states", "strategy.delayed_update=true"};
const std::vector<std::string> kNoNorm = {"optimizer.clip=0", "health.check_finite=false"};
const std::vector<std::string> kBf16 = {"strategy.precision=bf16", "strategy.gradient_precision=fp32"};

constexpr int kSteps = 4;
constexpr int kMoreSeeds = 8;

// The order in which streams run follows from the device's seed: one of them, and many with HERD_FULL_TESTS=1.
std::vector<uint64_t> device_seeds() {
  std::vector<uint64_t> seeds;
  for (uint64_t seed = 7; seed <= 7 + kMoreSeeds; seed += static_cast<uint64_t>(one_in(kMoreSeeds + 1, kMoreSeeds + 1)))
    seeds.push_back(seed);
  return seeds;
}

// Tells of each step whether its gradient overflowed, so that fp16 skipped it.
std::vector<bool> overflows(const Trained& run) {
  std::vector<bool> found;
  for (const double norm : run.norms) found.push_back(!std::isfinite(norm));
  return found;
}

// The CPU multiplies fp16 in fp32, and a device rounds each product to fp16. So near the largest number of fp16 a
// gradient may overflow on either alone. The CPU's run with a loss scale this little apart then overflows in the same
// steps, and has the same losses: the update divides the scale out.
constexpr std::array kNearScales = {1.0, 1 + 0x1p-9, 1 - 0x1p-9, 1 + 0x1p-6, 1 - 0x1p-6};

// Runs of the CPU with these scales times that of a new run, each trained once it is asked for.
class CpuRuns {
 public:
  CpuRuns(const spec::RunFile& run, int ranks, std::vector<int> hosts)
      : run_(run), ranks_(ranks), hosts_(std::move(hosts)) {
    run_.device.kind = "cpu";
  }
  // Returns the first run that overflows in these steps; if none does, the first of all.
  const Trained& that_overflows_in(const std::vector<bool>& steps) {
    const size_t scales = run_.strategy.precision == "fp16" ? kNearScales.size() : 1;
    for (size_t i = 0; i < scales; ++i) {
      if (i == runs_.size()) runs_.push_back(train(kNearScales[i]));
      if (overflows(runs_[i]) == steps) return runs_[i];
    }
    return runs_[0];
  }

 private:
  Trained train(double scale) const {
    std::optional<optim::LossScale> loss_scale;
    if (run_.strategy.precision == "fp16") loss_scale.emplace(scale * optim::LossScale().scale());
    return train_in_threads(run_, ranks_, kSteps, loss_scale, family_source(), hosts_);
  }

  spec::RunFile run_;
  int ranks_;
  std::vector<int> hosts_;
  std::deque<Trained> runs_;
};

void expect_trains_as_the_cpu(spec::RunFile run, int ranks, const std::vector<int>& hosts = {}) {
  // Sums in another order may round a number of 16 bits, or a code, to the other side.
  const bool has_16_bits = run.strategy.precision != "fp32" || run.strategy.compression == "bf16";
  const double of_losses = has_16_bits ? 2e-3 : loses_in_int8(run) ? 1e-5 : 1e-6;
  const double of_norms = has_16_bits ? 3e-2 : 10 * of_losses;
  const spec::Layout layout =
      strategies::trainable_layout(run, ranks + static_cast<int>(run.strategy.dedicated_servers));
  CpuRuns cpu_runs(run, ranks, hosts);
  run.device.kind = "extension";
  for (const uint64_t seed : device_seeds()) {
    later::install(seed);
    const Trained device = train_in_threads(run, ranks, kSteps, {}, family_source(), hosts);
    const Trained& cpu = cpu_runs.that_overflows_in(overflows(device));
    EXPECT_EQ(overflows(device), overflows(cpu));
    for (size_t s = 0; s < cpu.losses.size(); ++s) {
      EXPECT_NEAR(device.losses[s], cpu.losses[s], of_losses * cpu.losses[s]) << "step " << s;
      if (strategies::needs_norm(run, layout) && std::isfinite(cpu.norms[s])) {
        EXPECT_NEAR(device.norms[s], cpu.norms[s], of_norms * cpu.norms[s]) << "step " << s;
      }
    }
    EXPECT_NEAR(device.validation, cpu.validation, of_losses * cpu.validation);
    EXPECT_EQ(device.skipped, cpu.skipped);
    if (testing::Test::HasFailure()) FAIL() << "device seed " << seed;
  }
}

class DeviceTraining : public testing::TestWithParam<Case> {};

TEST_P(DeviceTraining, HasTheLossesOfTheCpu) {
  later::install(/*seed=*/7);  // before anything of torch asks for devices
  expect_trains_as_the_cpu(run_of(GetParam()), GetParam().ranks, GetParam().hosts);
}

INSTANTIATE_TEST_SUITE_P(
    OneRank, DeviceTraining,
    testing::Values(Case{"gpt", 1, {}}, Case{"llama", 1, llama({})},
                    Case{"llama_bf16", 1, llama({"strategy.precision=bf16"})},
                    Case{"momentum_bf16", 1, llama({"strategy.precision=bf16", "optimizer.momentum_precision=bf16"})},
                    Case{"recompute", 1, {"strategy.recompute=full"}}, Case{"fp16", 1, {"strategy.precision=fp16"}},
                    Case{"sgd_bf16", 1, {"optimizer.kind=sgd", "strategy.precision=bf16"}},
                    Case{"states_on_host", 1, {"strategy.offload=states"}},
                    Case{"window", 1, {"strategy.offload=window"}},
                    Case{"window_read_on_host", 1, {"strategy.offload=window", "strategy.direct_host=embedding head"}},
                    Case{"files_read_on_host", 1, llama(kReadsFilesOnHost)}, Case{"experts", 1, experts({})},
                    Case{"experts_bf16", 1, experts({"strategy.precision=bf16", "strategy.recompute=full"})},
                    Case{"experts_dropped", 1, experts({"model.capacity_factor=0.8", "model.bias_balancing=0.01"})},
                    Case{"packed", 1, packed({})}, Case{"packed_llama", 1, packed(llama({"strategy.recompute=full"}))},
                    Case{"packed_bf16", 1, packed({"model.dropout=0", "strategy.precision=bf16"})}),
    [](const auto& one) { return one.param.name; });

INSTANTIATE_TEST_SUITE_P(
    SeveralRanks, DeviceTraining,
    testing::Values(
        Case{"dp2", 2, {}}, Case{"zero1", 3, {"strategy.zero=1"}}, Case{"zero2", 2, {"strategy.zero=2"}},
        Case{"zero3", 2, {"mesh.fsdp=2", "strategy.zero=3"}},
        Case{"window_zero1", 2, {"strategy.offload=window", "strategy.zero=1"}},
        Case{"window_zero3", 2, {"strategy.offload=window", "strategy.zero=3"}},
        Case{"window_zero2_read_on_host", 2, {"strategy.offload=window", "strategy.zero=2", "strategy.direct_host=*"}},
        Case{"all_in_files", 2, {"strategy.offload=nvme_all", "strategy.zero=3", "strategy.order=layer_major"}},
        Case{"int8", 2, {"strategy.zero=3", "strategy.gather_codec=int8", "strategy.compression=int8"}},
        Case{"int4_of_hosts", 4, kCodecsOfHosts}, Case{"tp2", 2, llama({"mesh.tp=2"})}, Case{"pp2", 2, {"mesh.pp=2"}},
        Case{"tp2_pp2", 4, {"mesh.tp=2", "mesh.pp=2", "strategy.recompute=full"}}, Case{"cp2", 2, llama({"mesh.cp=2"})},
        Case{"experts_zero3", 2, experts({"strategy.zero=3"})}, Case{"experts_tp2", 2, experts({"mesh.tp=2"})},
        Case{"experts_ep2", 2, experts({"mesh.ep=2"})},
        Case{"experts_ep2_bf16", 4, experts({"mesh.ep=2", "strategy.precision=bf16", "strategy.recompute=full"})},
        Case{"experts_ep2_tp2", 4, experts({"mesh.ep=2", "mesh.tp=2", "strategy.zero=1"})},
        Case{"experts_ep2_pp2", 4,
             experts({"mesh.ep=2", "mesh.pp=2", "strategy.pipeline=zero_bubble_h1", "model.capacity_factor=0.8"})},
        Case{"experts_ep4_zero3", 4, experts({"mesh.ep=4", "strategy.zero=3", "model.bias_balancing=0.01"})},
        Case{"experts_of_hosts", 4, experts({"mesh.ep=4", "model.experts=8", "model.top_k=3"}), {0, 0, 1, 1}},
        Case{"experts_of_hosts_bf16",
             4,
             experts({"mesh.ep=4", "model.experts=8", "strategy.precision=bf16", "model.capacity_factor=1"}),
             {0, 1, 0, 1}},
        Case{"experts_cp2", 2, experts({"mesh.cp=2", "model.capacity_factor=1"})},
        Case{"experts_pp2", 2, experts({"mesh.pp=2", "strategy.pipeline=zero_bubble_h1"})},
        Case{"packed_tp2", 2, packed({"mesh.tp=2", "model.dropout=0"})},
        Case{"packed_cp2", 2, packed({"mesh.cp=2", "model.dropout=0"})}, Case{"ring2", 2, ring(2, llama({}))},
        Case{"ring2_dropout", 2, ring(2, {"strategy.recompute=full"})},
        Case{"ring3", 3, ring(3, llama({"strategy.zero=3"}))},
        Case{"ring3_bf16", 3, ring(3, llama({"strategy.precision=bf16"}))},
        Case{"packed_ring3", 3, packed(ring(3, llama({})))}),
    [](const auto& one) { return one.param.name; });

// Servers that ranks push to, with what else the run has.
std::vector<std::string> served(std::vector<std::string> more = {}) {
  more.insert(more.end(), {"strategy.sync=server", "optimizer.clip=0", "train.batch=12", "train.micro_batch=2"});
  return more;
}

INSTANTIATE_TEST_SUITE_P(
    Served, DeviceTraining,
    testing::Values(Case{"all_ranks_serve", 2, served()}, Case{"one_serves", 3, served({"strategy.servers=1"})},
                    Case{"dedicated", 3, served({"strategy.dedicated_servers=1"})},
                    Case{"together", 2, served({"strategy.sync=server_async", "strategy.staleness=0"})},
                    Case{"bf16", 2, served({"strategy.compression=bf16"})},
                    Case{"int8_warmup", 2, served({"strategy.compression=int8", "strategy.compression_warmup=2"})},
                    Case{"topk", 3, served({"strategy.compression=topk", "strategy.compression_exclude=wte*"})}),
    [](const auto& one) { return one.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Encoded, DeviceTraining,
    testing::Values(Case{"topk", 2, encoded("topk")}, Case{"int8", 2, encoded("int8")},
                    Case{"int4", 3, encoded("int4", {"strategy.compression_levels=quantiles"})},
                    Case{"topk_exclude", 3, encoded("topk", {"strategy.compression_exclude=wte* h.0.*"})},
                    Case{"topk_warmup", 2, encoded("topk", {"strategy.compression_warmup=2"})},
                    Case{"int4_warmup", 2, encoded("int4", {"strategy.compression_warmup=2", "optimizer.clip=0.1"})},
                    Case{"topk_bf16", 2, encoded("topk", kBf16)}, Case{"int8_bf16", 2, encoded("int8", kBf16)},
                    Case{"int8_without_norm", 2, encoded("int8", kNoNorm)},
                    Case{"topk_without_norm", 2, encoded("topk", kNoNorm)},
                    Case{"int8_states_on_host", 2, encoded("int8", {"strategy.offload=states"})},
                    Case{"topk_nvme", 2, encoded("topk", {"strategy.offload=nvme", "strategy.bucket=4096"})},
                    Case{"int8_window", 2, encoded("int8", {"strategy.offload=window"})},
                    Case{"topk_delayed", 2, encoded("topk", kDelayed)},
                    Case{"int8_pp2", 4, encoded("int8", {"mesh.pp=2", "model.tie_embeddings=true"})},
                    Case{"topk_tp2", 4, encoded("topk", {"mesh.tp=2"})},
                    Case{"topk_ring2", 2, ring(2, llama({"strategy.compression=topk"}))}),
    [](const auto& one) { return one.param.name; });

TEST(DeviceSteps, HaveNoMemoryForWeightsThatTheyReadOnTheHost) {
  later::install(/*seed=*/3);
  spec::RunFile run = run_of({"", 1, llama({"strategy.offload=window", "strategy.direct_host=*"})});
  const Trained cpu = train_in_threads(run, 1, kSteps);
  run.device.kind = "extension";
  const Trained device = train_in_threads(run, 1, kSteps);
  EXPECT_EQ(device.held.at(MemoryLabel::kWeights), 0);
  EXPECT_GT(device.held.at(MemoryLabel::kGradients), 0);
  EXPECT_EQ(device.host_bytes, cpu.host_bytes);
  ASSERT_FALSE(cpu.weights.empty());
  for (const auto& [name, weights] : cpu.weights)
    EXPECT_LT((device.weights.at(name) - weights).abs().max().item<float>(), 1e-6) << name;
}

TEST(DeviceSteps, WhoseGradientsOverflowAreSkipped) {
  later::install(/*seed=*/3);
  for (const std::string offload : {"none", "states"}) {
    spec::RunFile run = tiny_run();
    run.strategy.precision = "fp16", run.strategy.offload = offload;
    run.model.dropout = 0;
    const optim::LossScale wild(0x1p23);
    const Trained cpu = train_in_threads(run, 1, 12, wild);
    run.device.kind = "extension";
    const Trained device = train_in_threads(run, 1, 12, wild);
    EXPECT_GT(cpu.skipped[0], 0);
    EXPECT_EQ(device.skipped, cpu.skipped) << offload;
    for (size_t s = 0; s < cpu.losses.size(); ++s)
      EXPECT_NEAR(device.losses[s], cpu.losses[s], 2e-3 * cpu.losses[s]) << offload << " step " << s;
  }
}

// Waits of the host in so many steps of a run, by their reason.
std::map<std::string, int64_t> waits_of(const spec::RunFile& run, int steps) {
  std::map<std::string, int64_t> waits;
  std::mutex mutex;
  later::on_synchronisation([&](const char* reason) {
    const std::lock_guard lock(mutex);
    ++waits[reason];
  });
  train_in_threads(run, 1, steps);
  later::on_synchronisation(nullptr);
  return waits;
}

// A step waits where its end is asked for. What a run waits for at its begin and its end is the same for any number of
// steps, but for what the device has done by chance; a seed for each case keeps that apart from the cases before.
TEST(DeviceSteps, WaitForTheDeviceOnce_ForTheLossAndTheNorm) {
  constexpr int kMoreSteps = 8;
  for (const std::vector<std::string>& keys :
       {std::vector<std::string>{"strategy.precision=fp16"}, llama({"strategy.precision=bf16"}),
        std::vector<std::string>{"optimizer.clip=0", "health.check_finite=false"},
        std::vector<std::string>{"data.packing=documents"}}) {
    later::install(/*seed=*/3);
    spec::RunFile run = run_of({"", 1, keys});
    run.train.batch = 2;
    run.device.kind = "extension";
    const auto of_one = waits_of(run, 1);
    for (const auto& [reason, waits] : waits_of(run, 1 + kMoreSteps)) {
      const auto before = of_one.find(reason);
      const int64_t more = waits - (before == of_one.end() ? 0 : before->second);
      EXPECT_LE(more, reason == "synchronizeEvent" ? kMoreSteps + 4 : 0) << keys[0] << ": " << reason;
    }
  }
}

// A layout of up to four ranks, drawn with everything else (random_run.h).
Combination layout_drawn(uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto one_of = [&](auto... values) {
    const std::vector<std::common_type_t<decltype(values)...>> all = {values...};
    return all[random() % all.size()];
  };
  Combination c;
  c.seed = seed;
  int dp = 1;
  do {
    c.tp = one_of(1, 1, 2), c.pp = one_of(1, 1, 2, 3), c.fsdp = one_of(1, 1, 2), dp = one_of(1, 1, 2, 3);
    c.cp = c.tp * c.pp == 1 ? one_of(1, 1, 2) : 1;
    c.ranks = c.tp * c.pp * c.cp * static_cast<int>(c.fsdp) * dp;
  } while (c.ranks > 4);
  c.zero = c.data_ranks() * c.cp > 1 ? one_of(0, 1, 2, 3) : 0;
  c.recompute = one_of("none", "full", "selective", "sqrt", "every:2");
  c.precision = one_of("fp32", "bf16", "fp16");
  c.micro_batches = one_of(1, 2, 3);
  c.order = one_of("gpipe", "1f1b", "interleaved", "zero_bubble_h1", "zero_bubble_v");
  c.stages_per_rank = c.pp > 1 && (c.order == "interleaved" || c.order == "zero_bubble_v") ? 2 : 1;
  c.sequence = one_of(true, false);
  c.kind = one_of("gpt", "llama");
  c.dropout = one_of(true, false);
  c.offload = c.pp > 1 ? "none" : one_of("none", "none", "states", "nvme", "window");
  if (seed % 4 == 0) c.kind = "moe";
  if (seed % 4 == 1 && c.tp * c.cp == 1) c.kind = "bert";
  if (seed % 8 == 0 && c.data_ranks() * c.cp % 2 == 0) c.ep = 2;
  if (c.cp > 1) c.context = one_of("all_to_all", "ring");
  return c;
}

// Both run what the CPU's one rank is compared with elsewhere; priority is the CPU's.
spec::RunFile run_drawn(const Combination& c) {
  spec::RunFile run = drawn(c);
  run.strategy.schedule = "fifo";
  if (c.seed % 3 == 0) run.optimizer.momentum_precision = "bf16";
  return run;
}

constexpr uint64_t kLayouts = 300;
std::vector<uint64_t> layouts_to_draw() {
  std::vector<uint64_t> seeds;
  for (uint64_t seed = 1; seed <= kLayouts; seed += static_cast<uint64_t>(one_in(79, 97))) seeds.push_back(seed);
  return seeds;
}

class DrawnLayout : public testing::TestWithParam<uint64_t> {};

TEST_P(DrawnLayout, HasTheLossesOfTheCpu) {
  later::install(GetParam());
  const Combination c = layout_drawn(GetParam());
  const spec::RunFile run = run_drawn(c);
  SCOPED_TRACE(text(c, run));
  expect_trains_as_the_cpu(run, c.ranks);
}

INSTANTIATE_TEST_SUITE_P(Seeds, DrawnLayout, testing::ValuesIn(layouts_to_draw()), testing::PrintToStringParamName());

}  // namespace
}  // namespace herd::train
