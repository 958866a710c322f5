// A run file gives the losses of a plain PyTorch script: AdamW, clipping, warm-up and cosine, whatever the ranks.
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <cmath>

#include "command.h"
#include "herd/models/decoder.h"
#include "herd/spec/run_file.h"
#include "herd/storage/metrics.h"
#include "herd/train/data_source.h"
#include "tests/support/python_with_torch.h"

namespace herd::train {
namespace {

constexpr double kTolerance = 1e-5;  // relative, of every loss

void write(const fs::path& path, const void* data, size_t bytes) {
  std::ofstream(path, std::ios::binary | std::ios::app)
      .write(static_cast<const char*>(data), static_cast<std::streamsize>(bytes));
}

// What the script starts from: the run's initial weights, and the samples of its steps.
void write_inputs(const fs::path& run_folder) {
  const spec::RunFile run = spec::parse_run_file((run_folder / "config.toml").string(), {});
  std::ofstream names(run_folder / "names.txt");
  for (const auto& group : models::make_model(run.model).groups) {
    const at::Tensor weights = at::empty({group->elements()}, at::kFloat);
    group->initialize(static_cast<uint64_t>(run.train.seed), weights);
    write(run_folder / "weights.bin", weights.const_data_ptr(), weights.nbytes());
    for (const nn::Parameter& parameter : group->parameters()) {
      names << parameter.spec().name;
      for (const int64_t size : parameter.spec().sizes) names << ' ' << size;
      names << '\n';
    }
  }
  const auto data = open_samples(run, Split::kTrain);
  const auto context = static_cast<size_t>(run.model.context);
  std::vector<int64_t> sample(context + 1), targets(context);
  SampleRow row{.inputs_T = std::span(sample).first(context), .targets_T = targets};
  for (int64_t i = 0; i < run.train.steps * run.train.batch; ++i) {
    data->read_row(i, row);
    sample.back() = targets.back();
    write(run_folder / "tokens.bin", sample.data(), sample.size() * sizeof(int64_t));
  }
}

class TrainerAgainstPyTorch : public testing::TestWithParam<std::tuple<int, const char*>> {};

TEST_P(TrainerAgainstPyTorch, GivesTheSameTenLosses) {
  const auto [ranks, options] = GetParam();
  const std::string python = python_with_torch();
  if (python.empty()) GTEST_SKIP() << "no python with torch and numpy (.venv, HERD_PYTHON or python3)";
  RunFolder folder;
  const Ended ended = folder.train("run", ranks,
                                   {"train.steps=10", "train.eval_every=0", "checkpoint.every=0", "model.heads=4",
                                    "optimizer.lr=1e-2", "optimizer.lr_min=1e-3", "optimizer.warmup_steps=3",
                                    "optimizer.clip=0.5", "optimizer.betas=[0.8, 0.9]", options});
  ASSERT_EQ(ended.status, 0) << ended.output;
  const fs::path run = folder.root / "run";
  write_inputs(run);
  const std::string script = std::getenv("HERD_SOURCE_DIR") + std::string("/tests/train/pytorch_parity.py");
  ASSERT_EQ(std::system((python + " " + script + " " + run.string()).c_str()), 0);

  const std::string theirs = slurp(run / "losses.bin");
  const auto mine = read_metrics(run / "metrics.jsonl");
  ASSERT_EQ(mine.size(), 10u);
  ASSERT_EQ(theirs.size(), mine.size() * sizeof(double));
  const auto* expected = reinterpret_cast<const double*>(theirs.data());
  for (size_t i = 0; i < mine.size(); ++i) {
    EXPECT_NEAR(mine[i].loss, expected[i], kTolerance * expected[i]) << "step " << i + 1;
    EXPECT_GT(mine[i].grad_norm, 0.5) << "the gradient is clipped in every step";
  }
}

INSTANTIATE_TEST_SUITE_P(Runs, TrainerAgainstPyTorch,
                         testing::Values(std::tuple(1, "model.tie_embeddings=true"),
                                         std::tuple(2, "model.tie_embeddings=false")));

}  // namespace
}  // namespace herd::train
