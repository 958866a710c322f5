// Measures the memory of recompute every:K on chains of N equal small layers: N/K inputs and K layers' graphs are held,
// which is least at K = sqrt(N). Prints a table and draws memory_against_k.svg, or the file that it is given.
//   examples/memory_against_k memory.svg
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "herd/base/error.h"
#include "herd/draw/chart.h"
#include "herd/train/trainer.h"

using herd::Tensors;

constexpr int64_t kWidth = 16, kRows = 8192;  // a layer's weights take 1 KiB, what it gives 512 KiB

herd::Chain chain_of(int layers) {
  herd::Chain chain;
  const auto layer = [](torch::nn::LinearImpl& linear, const Tensors& x) { return torch::relu(linear.forward(x[0])); };
  chain.add(
      "first", {"x"}, [] { return torch::nn::Linear(kWidth, kWidth); }, layer);
  for (int i = 0; i < layers; ++i)
    chain.add(
        "layer" + std::to_string(i), {}, [] { return torch::nn::Linear(kWidth, kWidth); }, layer);
  chain.add_function("loss", {}, [](const Tensors& x) { return Tensors{x[0].sum(), torch::tensor(x[0].size(0))}; });
  return chain;
}

herd::Batch read_rows(const std::vector<int64_t>& samples) {
  return {.tensors = {{"x", torch::ones({static_cast<int64_t>(samples.size()), kWidth})}}};
}

int64_t peak_bytes(int layers, int every, herd::Communicator& comm, const std::filesystem::path& folder) {
  herd::spec::RunFile run;
  run.train.steps = 1, run.train.batch = run.train.micro_batch = kRows, run.train.eval_every = 0;
  run.strategy.recompute = "every:" + std::to_string(every);
  run.checkpoint.every = -1;
  run.log.dir = folder;
  run.log.name = std::to_string(layers) + "-" + std::to_string(every);
  int64_t peak = 0;
  const auto note = [&](const herd::StepMetrics& step) { peak = step.device_bytes_peak; };
  herd::Trainer(chain_of(layers), {.read = read_rows}, run, comm, {}, {.step_done = note}).run();
  return peak;
}

int main(int argc, char** argv) try {
  const auto folder = std::filesystem::temp_directory_path() / ("memory_against_k-" + std::to_string(getpid()));
  auto comm = herd::Communicator::create();
  herd::draw::Chart chart{
      .title = "Peak memory of recompute every:K", .x_label = "K", .y_unit = herd::draw::Unit::kBytes};
  std::string table;
  for (const int root : {4, 6, 8}) {
    const int layers = root * root;
    chart.series.push_back({"N = " + std::to_string(layers), {}});
    for (int every = 1; every <= layers; every += every < root + 2 ? 1 : root) {
      const auto bytes = static_cast<double>(peak_bytes(layers, every, comm, folder));
      chart.series.back().points.emplace_back(every, bytes);
    }
    double best = 0, least = INFINITY;
    for (const auto& [every, bytes] : chart.series.back().points) {
      table += "N " + std::to_string(layers) + "  K " + std::to_string(static_cast<int>(every)) + "  " +
               std::to_string(bytes / (1 << 20)) + " MiB\n";
      if (bytes < least) best = every, least = bytes;
    }
    table +=
        "least memory of " + std::to_string(layers) + " layers at K = " + std::to_string(static_cast<int>(best)) + "\n";
  }
  std::filesystem::remove_all(folder);
  std::ofstream(argc > 1 ? argv[1] : "memory_against_k.svg") << herd::draw::line_chart(chart);
  std::fputs(table.c_str(), stdout);
} catch (const herd::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
