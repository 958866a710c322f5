// A chain of own blocks trains in any layout as the same modules do in a plain loop of torch on one rank.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/serialize.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <fstream>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "herd/checkpoint/loader.h"
#include "herd/comm/inproc_world.h"
#include "herd/storage/checkpoint_folder.h"
#include "herd/storage/checkpoint_reader.h"
#include "herd/storage/metrics.h"
#include "herd/train/train_chain.h"
#include "plain_loop.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_folder.h"

namespace herd::train {
namespace {

namespace F = torch::nn::functional;

constexpr int64_t kIn = 6, kWidth = 8, kClasses = 5;
constexpr int kSteps = 20;

at::Tensor summed_loss(const at::Tensor& logits, const at::Tensor& labels) {
  return F::cross_entropy(logits, labels, F::CrossEntropyFuncOptions().reduction(torch::kSum));
}

// Two towers that meet: blocks of one and of two tensors, a skip over several blocks, a mask without gradient that one
// block makes and a late one reads, and a tensor of the batch that a late block reads.
Chain branched_chain() {
  Chain chain;
  chain.add("left", {"points"}, [] { return torch::nn::Linear(kIn, kWidth); })
      .add_function("mask", {"points"}, [](const Tensors& x) { return x[0].sum(1, true) > 0; })
      .add(
          "right", {"points", "left"}, [] { return torch::nn::Linear(kIn, kWidth); },
          [](torch::nn::LinearImpl& linear, const Tensors& x) {
            const at::Tensor y = torch::tanh(linear.forward(x[0]));
            return Tensors{y + x[1], y * 2};
          })
      .add(
          "middle", {"right"}, [] { return torch::nn::Linear(kWidth, kWidth); },
          [](torch::nn::LinearImpl& linear, const Tensors& x) { return torch::relu(linear.forward(x[0])); })
      .add(
          "meet", {"middle", "right:1", "left", "mask"},
          [] { return torch::nn::LayerNorm(torch::nn::LayerNormOptions({kWidth})); },
          [](torch::nn::LayerNormImpl& norm, const Tensors& x) {
            return norm.forward(x[0] + x[1] + torch::where(x[3], x[2], 0.5 * x[2]));
          })
      .add(
          "loss", {"meet", "labels"}, [] { return torch::nn::Linear(kWidth, kClasses); },
          [](torch::nn::LinearImpl& head, const Tensors& x) {
            return Tensors{summed_loss(head.forward(x[0]), x[1]), torch::tensor(x[1].size(0))};
          });
  return chain;
}

Batch points(const std::vector<int64_t>& samples) {
  const auto n = static_cast<int64_t>(samples.size());
  at::Tensor x = torch::empty({n, kIn}), labels = torch::empty({n}, torch::kLong);
  for (int64_t row = 0; row < n; ++row) {
    const int64_t sample = samples[static_cast<size_t>(row)];
    for (int64_t i = 0; i < kIn; ++i) x[row][i] = std::sin(static_cast<double>(sample * 7 + i * 3));
    labels[row] = (sample * 3 + sample / 4) % kClasses;
  }
  return {.tensors = {{"points", x}, {"labels", labels}}};
}

ChainData data_of(int64_t samples = 0) { return {.read = points, .samples = samples}; }

spec::RunFile run_file(const std::string& more = "") {
  return spec::parse_run_text(
      "[train]\nbatch = 7\nmicro_batch = 2\nsteps = 20\n[optimizer]\nlr = 1e-2\nschedule = \"constant\"\n" + more,
      "test");
}

TEST(ChainTraining, OnOneRankHasTheLossesOfAPlainLoopOfTorch) {
  for (const char* clip : {"clip = 1.0\n", "clip = 0\n"}) {
    const spec::RunFile run = run_file(clip);
    const std::vector<double> expected = plain_losses(branched_chain(), points, run, kSteps);
    EXPECT_LT(most_apart(train_chain_in_threads(branched_chain(), data_of(), run, 1, kSteps).losses, expected), 1e-6)
        << clip;
    EXPECT_LT(expected.back(), 0.98 * expected.front());
  }
}

struct Layout {
  int ranks;
  const char* keys;
};

class ChainLayout : public testing::TestWithParam<Layout> {};

TEST_P(ChainLayout, HasTheLossesOfAPlainLoopOfTorch) {
  const auto [ranks, keys] = GetParam();
  const spec::RunFile run = run_file(keys);
  EXPECT_LT(most_apart(train_chain_in_threads(branched_chain(), data_of(), run, ranks, kSteps).losses,
                       plain_losses(branched_chain(), points, run, kSteps)),
            1e-6)
      << keys;
}

INSTANTIATE_TEST_SUITE_P(
    Chains, ChainLayout,
    testing::Values(Layout{2, ""}, Layout{3, ""}, Layout{2, "[strategy]\nzero = 1\n"},
                    Layout{3, "[strategy]\nzero = 2\n"}, Layout{2, "[strategy]\nzero = 3\n"},
                    Layout{3, "[strategy]\nzero = 1\nshard = \"layers\"\n"},
                    Layout{4, "[mesh]\npp = 2\n[strategy]\nzero = 3\nshard = \"layers\"\n"},
                    Layout{4, "[mesh]\nfsdp = 2\n"}, Layout{1, "[strategy]\nrecompute = \"full\"\n"},
                    Layout{2, "[strategy]\nrecompute = \"every:2\"\nzero = 3\n"},
                    Layout{1, "[strategy]\nrecompute = \"full\"\noffload_activations = \"host\"\n"},
                    Layout{2, "[strategy]\noffload = \"states\"\nzero = 2\n"}, Layout{2, "[mesh]\npp = 2\n"},
                    Layout{3, "[mesh]\npp = 3\n[strategy]\npipeline = \"gpipe\"\n"},
                    Layout{4, "[mesh]\npp = 4\n[strategy]\npipeline = \"zero_bubble_h1\"\n"},
                    Layout{2, "[mesh]\npp = 2\n[strategy]\npipeline = \"interleaved\"\nstages_per_rank = 3\n"},
                    Layout{2, "[mesh]\npp = 2\n[strategy]\npipeline = \"zero_bubble_v\"\n"},
                    Layout{4, "[mesh]\npp = 2\n[strategy]\nzero = 3\nrecompute = \"full\"\n"},
                    Layout{3, "[strategy]\ncompression = \"topk\"\ncompression_ratio = 1\n"},
                    Layout{4,
                           "[mesh]\npp = 2\n[strategy]\ncompression = \"topk\"\ncompression_ratio = 1\n"
                           "compression_exclude = \"left.*\"\n"},
                    Layout{1, "[strategy]\noffload = \"states\"\ndelayed_update = true\n"},
                    Layout{1, "clip = 0\n[strategy]\noffload = \"nvme\"\ndelayed_update = true\n"},
                    Layout{2, "[strategy]\noffload = \"nvme\"\nzero = 2\ndelayed_update = true\n"},
                    Layout{4,
                           "clip = 0.1\n[mesh]\npp = 2\n[strategy]\noffload = \"states\"\nzero = 3\n"
                           "delayed_update = true\nrecompute = \"full\"\noffload_activations = \"host\"\n"},
                    Layout{2,
                           "clip = 0\n[strategy]\noffload = \"states\"\nschedule = \"priority\"\n"
                           "delayed_update = true\n[health]\ncheck_finite = false\n"}));

// Delayed updates follow other weights, to about the same loss.
TEST(ChainTraining, WithDelayedUpdatesLosesNearlyAsWithout) {
  const std::vector<double> plain = plain_losses(branched_chain(), points, run_file(), kSteps);
  const std::vector<double> delayed = plain_losses(
      branched_chain(), points, run_file("[strategy]\noffload = \"states\"\ndelayed_update = true\n"), kSteps);
  EXPECT_EQ(delayed[0], plain[0]);
  EXPECT_GT(most_apart(delayed, plain), 1e-5);
  EXPECT_LT(most_apart(delayed, plain), 0.1);
}

// Encoding loses much of gradients as small as these; the residual brings it back.
TEST(ChainTraining, InACodecLearnsNearlyAsOneRankDoes) {
  const std::vector<double> plain = plain_losses(branched_chain(), points, run_file(), kSteps);
  for (const char* codec : {"int8", "int4", "topk"}) {
    const std::string keys =
        "[mesh]\npp = 2\n[strategy]\ncompression_ratio = 0.25\ncompression = \"" + std::string(codec) + "\"\n";
    const auto losses = train_chain_in_threads(branched_chain(), data_of(), run_file(keys), 4, kSteps).losses;
    EXPECT_LT(most_apart(losses, plain), 0.03) << codec;
    EXPECT_NE(losses, plain) << codec;
  }
}

TEST(ChainTraining, InSixteenBitsHasTheLossesOfOneRank) {
  const std::string keys = "[strategy]\nprecision = \"bf16\"\n";
  const auto one = train_chain_in_threads(branched_chain(), data_of(), run_file(keys), 1, kSteps);
  const auto two = train_chain_in_threads(branched_chain(), data_of(), run_file(keys + "zero = 3\n"), 2, kSteps);
  EXPECT_LT(most_apart(two.losses, one.losses), 0x1p-8);
}

// Two batch norms, one in the middle and one in the loss block, whose statistics are of a micro-batch. No bias comes
// before them: it has no gradient but rounding, of which AdamW makes whole steps.
Chain normed_chain() {
  Chain chain;
  chain.add("in", {"points"}, [] { return torch::nn::Linear(torch::nn::LinearOptions(kIn, kWidth).bias(false)); })
      .add("norm", {"in"}, [] { return torch::nn::BatchNorm1d(kWidth); })
      .add("middle", {"norm"}, [] { return torch::nn::Linear(torch::nn::LinearOptions(kWidth, kClasses).bias(false)); })
      .add(
          "loss", {"middle", "labels"}, [] { return torch::nn::BatchNorm1d(kClasses); },
          [](torch::nn::BatchNorm1dImpl& norm, const Tensors& x) {
            return Tensors{summed_loss(norm.forward(x[0]), x[1]), torch::tensor(x[1].size(0))};
          });
  return chain;
}

spec::RunFile normed_run(const std::string& more, int micro_batch) {
  return spec::parse_run_text("[train]\nbatch = 8\nsteps = 20\nmicro_batch = " + std::to_string(micro_batch) +
                                  "\n[optimizer]\nlr = 1e-2\nschedule = \"constant\"\n" + more,
                              "test");
}

void expect_buffers_of(const PlainLoop& plain, const Trained& trained, const char* layout) {
  EXPECT_EQ(trained.buffers.size(), 6U) << layout;
  for (const auto& [block, name] : {std::pair<size_t, const char*>{1, "norm."}, {3, "loss."}}) {
    for (const auto& item : plain.module(block).named_buffers()) {
      // What comes before the last norm has a bias, that of the first norm: as above.
      if (name + item.key() == "loss.running_mean") continue;
      EXPECT_TRUE(
          at::allclose(trained.buffers.at(name + item.key()).to(at::kFloat), item.value().to(at::kFloat), 1e-4, 1e-6))
          << layout << " " << name << item.key();
    }
  }
}

// A pass that is computed again, and one that is timed, leave running statistics as they are.
TEST(ChainTraining, KeepsTheRunningStatisticsOfAPlainLoop_InStagesAndWithRecompute) {
  const spec::RunFile whole = normed_run("", 8);
  const Chain chain = normed_chain();
  PlainLoop plain(chain, points, whole);
  std::vector<double> expected;
  for (int64_t step = 0; step < kSteps; ++step) expected.push_back(plain.step(step));
  for (const auto& [ranks, keys] : {Layout{1, ""}, Layout{1, "[strategy]\nrecompute = \"full\"\n"},
                                    Layout{1, "[strategy]\nrecompute = \"every:3\"\n"},
                                    Layout{3, "[mesh]\npp = 3\n[strategy]\nrecompute = \"full\"\n"}}) {
    const Trained trained = train_chain_in_threads(normed_chain(), data_of(), normed_run(keys, 8), ranks, kSteps);
    EXPECT_LT(most_apart(trained.losses, expected), 1e-5) << keys;
    if (ranks == 1) expect_buffers_of(plain, trained, keys);
  }
}

// The first of the data ranks has the statistics that count; a rank of whichever stage has those of its own blocks.
TEST(ChainTraining, SharesRunningStatisticsAmongDataRanks) {
  const Trained one = train_chain_in_threads(normed_chain(), data_of(), normed_run("", 2), 1, 6);
  const Trained stages = train_chain_in_threads(
      normed_chain(), data_of(), normed_run("[mesh]\npp = 2\n[strategy]\nrecompute = \"full\"\n", 2), 2, 6);
  for (const auto& [name, value] : stages.buffers) EXPECT_TRUE(at::allclose(value, one.buffers.at(name))) << name;
  EXPECT_LT(stages.buffers.size(), one.buffers.size());
  const Trained idle =
      train_chain_in_threads(normed_chain(), data_of(), normed_run("", 4), 3, 6);  // the third has none
  EXPECT_EQ(idle.buffers.at("norm.num_batches_tracked").item<int64_t>(), 6);
}

// A validation reads what training has gathered, and a checkpoint carries it into another layout.
TEST(ChainTraining, ResumesWithItsRunningStatistics) {
  const TemporaryFolder folder;
  const ChainData data{.read = points, .samples = 40, .read_validation = points, .validation_samples = 16};
  const auto train = [&](const std::string& name, const std::string& keys, int ranks) {
    spec::RunFile run = normed_run(keys + "[checkpoint]\nevery = 2\n", 8);
    run.train.steps = 4, run.train.eval_every = 2, run.train.eval_batches = 2;
    run.log.dir = folder.path();
    run.log.name = name;
    run_inproc(ranks, [&](Communicator& comm) { Trainer(normed_chain(), data, run, comm).run(); });
    return read_metrics(folder / name / "metrics.jsonl");
  };
  const std::vector<StepMetrics> whole = train("whole", "", 1);
  train("resumed", "[mesh]\npp = 2\n", 2);
  std::filesystem::remove_all(folder / "resumed" / "checkpoints" / checkpoint_folder_name(4));
  const std::vector<StepMetrics> resumed = train("resumed", "", 1);
  ASSERT_EQ(resumed.size(), whole.size());
  EXPECT_NEAR(resumed.back().loss, whole.back().loss, 1e-5 * whole.back().loss);
  EXPECT_NEAR(*resumed.back().val_loss, *whole.back().val_loss, 1e-5 * *whole.back().val_loss);
  EXPECT_GT(std::abs(*whole.back().val_loss - whole.back().loss), 1e-3);
  const CheckpointReader reader(folder / "resumed" / "checkpoints" / checkpoint_folder_name(4));
  EXPECT_EQ(reader.manifest().tensors.at("norm.num_batches_tracked").dtype, DType::kI64);
}

// A layer of no outputs: there is nothing of it to share, to update and to save.
TEST(ChainTraining, ResumesWithParametersOfNoElements) {
  const TemporaryFolder folder;
  Chain chain;
  chain
      .add(
          "none", {"points"}, [] { return torch::nn::Linear(kIn, 0); },
          [](torch::nn::LinearImpl& none, const Tensors& x) {
            return torch::cat({x[0], none.forward(x[0])}, 1);
          })
      .add(
          "loss", {"none", "labels"}, [] { return torch::nn::Linear(kIn, kClasses); },
          [](torch::nn::LinearImpl& head, const Tensors& x) {
            return Tensors{summed_loss(head.forward(x[0]), x[1]), torch::tensor(x[1].size(0))};
          });
  const auto train = [&](const std::string& name, const std::string& keys, int ranks, int64_t steps) {
    spec::RunFile run = run_file(keys + "[checkpoint]\nevery = 2\n");
    run.train.steps = steps, run.log.dir = folder.path(), run.log.name = name;
    run_inproc(ranks, [&](Communicator& comm) { Trainer(chain, data_of(), run, comm).run(); });
    return read_metrics(folder / name / "metrics.jsonl");
  };
  const std::vector<StepMetrics> whole = train("whole", "", 1, 4);
  train("resumed", "[strategy]\nzero = 3\n", 2, 2);
  const std::vector<StepMetrics> resumed = train("resumed", "", 1, 4);
  ASSERT_EQ(resumed.size(), whole.size());
  EXPECT_NEAR(resumed.back().loss, whole.back().loss, 1e-5 * whole.back().loss);
}

// The last block counts right answers; a validation divides them by all, whichever rank has counted them.
TEST(ChainTraining, ReportsFiguresOfItsOwnInAValidation) {
  const TemporaryFolder folder;
  Chain chain;
  chain.add("up", {"points"}, [] { return torch::nn::Linear(kIn, kWidth); })
      .add("middle", {}, [] { return torch::nn::Linear(kWidth, kWidth); })
      .add(
          "loss", {"middle", "labels"}, [] { return torch::nn::Linear(kWidth, kClasses); },
          [](torch::nn::LinearImpl& head, const Tensors& x) {
            const at::Tensor logits = head.forward(x[0]);
            return Tensors{summed_loss(logits, x[1]), torch::tensor(x[1].size(0)), logits.argmax(1).eq(x[1]).sum(),
                           x[1].sum()};
          });
  const ChainData data{.read = points, .samples = 40, .read_validation = points, .validation_samples = 15};
  const auto train = [&](const std::string& name, const std::string& keys, int ranks) {
    spec::RunFile run = spec::parse_run_text("[train]\nsteps = 2\nbatch = 6\nmicro_batch = 2\n" + keys, "run.toml");
    run.train.eval_every = 2, run.train.eval_batches = 8;
    run.log.dir = folder.path();
    run.log.name = name;
    run_inproc(ranks, [&](Communicator& comm) { Trainer(chain, data, run, comm).run(); });
    return read_metrics(folder / name / "metrics.jsonl").back().val_figures;
  };
  EXPECT_ERROR(train("unnamed", "", 1), Code::kBadConfig, "gives 4 tensors, where it must give two numbers");
  chain.report({"right", "label"});
  const std::map<std::string, double> one = train("one", "", 1);
  double labels = 0;
  for (int64_t sample = 0; sample < 15; ++sample) labels += static_cast<double>((sample * 3 + sample / 4) % kClasses);
  EXPECT_DOUBLE_EQ(one.at("label"), labels / 15);
  EXPECT_GT(one.at("right"), 0);
  EXPECT_LT(one.at("right"), 1);
  EXPECT_EQ(train("data", "", 2), one);
  EXPECT_EQ(train("staged", "[mesh]\npp = 2\n", 4), one);
  EXPECT_THROW(chain.report({"right", "right"}), Error);
}

// Weights that another run begins with come with the model's buffers, those of integers, too.
TEST(ChainTraining, BeginsWithTheRunningStatisticsOfItsWeights) {
  const TemporaryFolder folder;
  const auto train = [&](const std::string& name, int64_t steps, const std::string& keys, int ranks) {
    spec::RunFile run = normed_run(keys, 8);
    run.train.steps = steps, run.train.eval_every = 0;
    run.log.dir = folder.path(), run.log.name = name;
    run_inproc(ranks, [&](Communicator& comm) { Trainer(normed_chain(), data_of(), run, comm).run(); });
    CheckpointReader reader(folder / name / "checkpoints" / checkpoint_folder_name(steps));
    std::vector<NamedTensor> counts;
    for (const char* block : {"norm", "loss"})
      counts.push_back(whole_tensor(std::string(block) + ".num_batches_tracked", at::zeros({}, at::kLong)));
    std::set<std::string> names;
    for (const auto& [tensor, entry] : reader.manifest().tensors) names.insert(tensor);
    load_tensors(reader, counts, names);
    return std::pair(counts[0].value.item<int64_t>(), counts[1].value.item<int64_t>());
  };
  EXPECT_EQ(train("first", 4, "", 1), std::pair(int64_t{4}, int64_t{4}));
  const std::string weights = "[model]\nweights = \"" + (folder / "first").string() + "\"\n";
  EXPECT_EQ(train("second", 1, weights, 1), std::pair(int64_t{5}, int64_t{5}));
  EXPECT_EQ(train("third", 2, weights + "[mesh]\npp = 2\n", 2), std::pair(int64_t{6}, int64_t{6}));
}

// The rank whose data fails tells the others once they have the end of the step before.
TEST(ChainTraining, KeepsTheMetricsOfAllStepsBeforeOneWhoseDataFails) {
  for (int attempt = 0; attempt < 3; ++attempt) {
    const TemporaryFolder folder;
    spec::RunFile run = run_file("[checkpoint]\nevery = -1\n");
    run.train.batch = 4, run.train.eval_every = 0, run.log.dir = folder.path();
    const auto read = [](const std::vector<int64_t>& samples) -> Batch {
      if (std::ranges::count(samples, 11) > 0) throw std::out_of_range("no such row");  // of rank 1, in the third step
      return points(samples);
    };
    std::string errors[2];
    run_inproc(2, [&](Communicator& comm) {
      try {
        Trainer(branched_chain(), {.read = read}, run, comm).run();
      } catch (const std::exception& error) {
        errors[comm.rank()] = error.what();
      }
    });
    for (const std::string& error : errors) EXPECT_THAT(error, testing::HasSubstr("no such row"));
    EXPECT_EQ(read_metrics(folder / run.log.name / "metrics.jsonl").size(), 2U);
  }
}

// One rank of two asks for the stop; the same run then goes on to its end.
TEST(ChainTraining, CallsTheHooksOfAProgram) {
  const TemporaryFolder folder;
  spec::RunFile run = run_file("[checkpoint]\nevery = 0\n[log]\nevery = 1\n");
  run.train.steps = 5, run.log.dir = folder.path();
  std::mutex mutex;
  std::vector<std::string> lines;
  std::vector<int64_t> done, results;
  const auto train = [&](bool stops) {
    run_inproc(2, [&](Communicator& comm) {
      int asked = 0;
      const TrainHooks hooks{.step_done =
                                 [&](const StepMetrics& step) {
                                   const std::lock_guard lock(mutex);
                                   done.push_back(step.step);
                                 },
                             .wants_stop = [&] { return stops && comm.rank() == 1 && ++asked == 3; },
                             .print = [&](const std::string& line) { lines.push_back(line); }};
      const TrainResult result = Trainer(branched_chain(), data_of(), run, comm, {}, hooks).run();
      EXPECT_EQ(result.stopped, stops);
      const std::lock_guard lock(mutex);
      results.push_back(result.steps_done);
    });
  };
  train(true);
  EXPECT_THAT(results, testing::ElementsAre(3, 3));
  train(false);
  EXPECT_THAT(done, testing::UnorderedElementsAre(1, 1, 2, 2, 3, 3, 4, 4, 5, 5));
  ASSERT_EQ(lines.size(), 5U);
  EXPECT_THAT(lines[4], testing::HasSubstr("step 5/5  loss "));
}

// A thread reads what later steps need; validations and resumed runs ask for other batches between.
TEST(ChainTraining, ReadsTheSameSamplesAhead) {
  const std::thread::id caller = std::this_thread::get_id();
  std::atomic<int> here{0}, elsewhere{0};
  ChainData data{.read =
                     [&](const std::vector<int64_t>& samples) {
                       ++(std::this_thread::get_id() == caller ? here : elsewhere);
                       return points(samples);
                     },
                 .samples = 40,
                 .read_ahead = 2};
  const auto ahead = train_chain_in_threads(branched_chain(), data, run_file(), 2, kSteps);
  EXPECT_GE(elsewhere, 2 * kSteps);
  data.read_ahead = 0;
  EXPECT_EQ(train_chain_in_threads(branched_chain(), data, run_file(), 2, kSteps).losses, ahead.losses);
}

// A step waits for its samples, so a prediction counts the time of the data function.
TEST(ChainTraining, PredictsTheTimeOfItsDataFunction) {
  constexpr std::chrono::milliseconds kOfASample{4};
  const TemporaryFolder folder;
  const auto slow = [&](const std::vector<int64_t>& samples) {
    std::this_thread::sleep_for(kOfASample * samples.size());
    return points(samples);
  };
  spec::RunFile run = run_file("[checkpoint]\nevery = -1\n");
  run.train.steps = 2, run.log.dir = folder.path(), run.log.name = "slow";
  run_inproc(1, [&](Communicator& comm) { Trainer(branched_chain(), {.read = slow}, run, comm).run(); });
  const StepMetrics step = read_metrics(folder.path() / "slow" / "metrics.jsonl").back();
  const double read_ms = static_cast<double>(run.train.batch * kOfASample.count());
  EXPECT_GE(step.predicted_step_ms, 0.9 * read_ms);
  EXPECT_LE(step.predicted_step_ms, 1.5 * std::max(read_ms, step.step_ms)) << "the samples of a step are read once";
}

std::string refusal(const Chain& chain, const ChainData& data, const spec::RunFile& run) {
  std::string text;
  try {
    completed(*chain_source(chain, data), run);
  } catch (const Error& error) {
    text = error.message();
  }
  return text;
}

TEST(ChainSource, NamesWhatTheBatchLacks_AndWhichBlocksThereAre) {
  const ChainData data{.read = [](const std::vector<int64_t>& samples) {
    Batch batch = points(samples);
    batch.tensors.pop_back();
    return batch;
  }};
  EXPECT_THAT(refusal(branched_chain(), data, run_file()),
              testing::AllOf(testing::HasSubstr("block \"loss\" reads \"labels\""), testing::HasSubstr("batch: points"),
                             testing::HasSubstr("blocks: left, mask"), testing::HasSubstr("fix: that tensor from")));
}

TEST(ChainSource, RefusesRowsThatNobodyAskedFor) {
  const ChainData data{.read = [](const std::vector<int64_t>&) { return points({1, 2, 3, 4, 5}); }};
  EXPECT_THAT(
      refusal(branched_chain(), data, run_file()),
      testing::AllOf(testing::HasSubstr("block \"left\" reads, has 5 rows for"), testing::HasSubstr("fix: a row for")));
}

TEST(ChainSource, RefusesNegativeCounts_AndTwoTensorsOfOneName) {
  ChainData negative = data_of();
  negative.samples = -3;
  EXPECT_THAT(refusal(branched_chain(), negative, run_file()),
              testing::HasSubstr("ChainData::samples is -3\n  fix: 0"));
  const auto changed = [](const auto& change) {
    return ChainData{.read = [change](const std::vector<int64_t>& samples) {
      Batch batch = data_of().read(samples);
      change(batch);
      return batch;
    }};
  };
  EXPECT_THAT(refusal(branched_chain(), changed([](Batch& batch) { batch.count = -3; }), run_file()),
              testing::HasSubstr("Batch::count is -3"));
  EXPECT_THAT(
      refusal(branched_chain(), changed([](Batch& batch) { batch.tensors.push_back(batch.tensors[0]); }), run_file()),
      testing::HasSubstr("two tensors named \"points\""));
}

TEST(ChainSource, NamesBothCounts_WhereTheBatchStatesAnotherThanTheLossCounts) {
  check_counted(7, 1.0 / 7);
  try {
    check_counted(7, 1.0 / 6);
    FAIL() << "gradients were scaled by another number than the loss";
  } catch (const Error& error) {
    EXPECT_THAT(error.message(), testing::AllOf(testing::HasSubstr("counted 7"), testing::HasSubstr("state 6"),
                                                testing::HasSubstr("Batch::count")));
  }
}

TEST(ChainSource, RefusesAModelSection_AndTensorParallel) {
  EXPECT_THAT(refusal(branched_chain(), data_of(), run_file("[model]\nlayers = 3\n")),
              testing::HasSubstr("leave out the keys of [model]"));
  EXPECT_THAT(refusal(branched_chain(), data_of(), run_file("[mesh]\ntp = 2\n")), testing::HasSubstr("mesh.tp = 1"));
}

TEST(ChainSource, NamesALossWithoutACount_AndShapesThatDoNotRepeat) {
  Chain no_count;
  no_count.add(
      "loss", {"points"}, [] { return torch::nn::Linear(kIn, 1); },
      [](torch::nn::LinearImpl& linear, const Tensors& x) { return linear.forward(x[0]).sum(); });
  EXPECT_THAT(
      refusal(no_count, data_of(), run_file()),
      testing::AllOf(testing::HasSubstr("\"loss\""), testing::HasSubstr("fix: return Tensors{loss_sum, count}")));
  Chain uneven;
  uneven
      .add(
          "rows", {"points"}, [] { return torch::nn::Linear(kIn, 2); },
          [](torch::nn::LinearImpl& linear, const Tensors& x) {
            return linear.forward(x[0]).repeat({x[0].size(0), 1});
          })
      .add_function("loss", {}, [](const Tensors& x) {
        return Tensors{x[0].sum(), torch::tensor(1)};
      });
  EXPECT_THAT(refusal(uneven, data_of(), run_file()),
              testing::AllOf(testing::HasSubstr("of block \"rows\""), testing::HasSubstr("do not repeat"),
                             testing::HasSubstr("fix: shapes that depend on the number of samples alone")));
}

// A block between the points and the loss, a function that may be another after the trace and some steps.
Chain chain_with(std::function<Tensors(const Tensors&)> middle) {
  Chain chain;
  chain
      .add(
          "first", {"points"}, [] { return torch::nn::Linear(kIn, kWidth); },
          [](torch::nn::LinearImpl& linear, const Tensors& x) { return linear.forward(x[0]); })
      .add_function("middle", {}, std::move(middle))
      .add(
          "loss", {"middle", "labels"}, [] { return torch::nn::Linear(kWidth, kClasses); },
          [](torch::nn::LinearImpl& head, const Tensors& x) {
            return Tensors{summed_loss(head.forward(x[0]), x[1]), torch::tensor(x[1].size(0))};
          });
  return chain;
}

std::string failure_of(const Chain& chain) {
  try {
    train_chain_in_threads(chain, data_of(), run_file(), 1, 20);
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

TEST(ChainTraining, NamesTheBlock_WhereItGivesOtherTensorsThanTheTraceSaw) {
  int calls = 0;
  const auto late = [&calls](Tensors early, Tensors other) { return ++calls > 30 ? other : early; };
  EXPECT_THAT(failure_of(chain_with([&](const Tensors& x) {
                return late({x[0]}, {x[0], x[0]});
              })),
              testing::AllOf(testing::HasSubstr("block \"middle\" gives 2 tensors, and gave 1"),
                             testing::HasSubstr("fix: a block that gives the same tensors for every batch")));
  calls = 0;
  EXPECT_THAT(failure_of(chain_with([&](const Tensors& x) { return late({x[0]}, {x[0].slice(1, 0, kWidth - 1)}); })),
              testing::AllOf(testing::ContainsRegex("block \"middle\" gives \\[[12], 7\\] Float as tensor 0"),
                             testing::ContainsRegex("expects \\[[12], 8\\]"),
                             testing::HasSubstr("fix: shapes that depend on")));
  EXPECT_GT(calls, 30);
}

// What torch or the program itself throws, without a stack of functions.
TEST(ChainTraining, NamesTheBlock_WhereItThrows) {
  const auto named =
      testing::AllOf(testing::HasSubstr("block \"middle\" throws: "), testing::Not(testing::HasSubstr("frame #")),
                     testing::HasSubstr("fix: what it does with the tensors that it reads, ["));
  EXPECT_THAT(refusal(chain_with([](const Tensors& x) { return Tensors{x[0].matmul(x[0])}; }), data_of(), run_file()),
              named);
  int calls = 0;
  EXPECT_THAT(failure_of(chain_with([&](const Tensors& x) {
                return ++calls > 30 ? throw std::out_of_range("no such row") : Tensors{x[0]};
              })),
              testing::AllOf(named, testing::HasSubstr("no such row")));
  const ChainData throws{.read = [](const std::vector<int64_t>&) -> Batch { throw std::out_of_range("no such file"); }};
  EXPECT_THAT(refusal(branched_chain(), throws, run_file()),
              testing::AllOf(testing::HasSubstr("the data function throws for"), testing::HasSubstr("no such file"),
                             testing::HasSubstr("fix: a data function that")));
  Chain unmade;
  unmade.add("in", {"points"}, [] {
    torch::nn::Linear linear(kIn, kWidth);
    torch::load(linear, "/no/such/file.pt");
    return linear;
  });
  EXPECT_THAT(
      refusal(unmade, data_of(), run_file()),
      testing::AllOf(testing::HasSubstr("the factory of block \"in\" throws: "), testing::HasSubstr("/no/such/file.pt"),
                     testing::Not(testing::HasSubstr("frame #")), testing::HasSubstr("fix: a factory that")));
}

// A function of the program's own with a backward, which throws from some call on.
struct ThrowsInBackward : torch::autograd::Function<ThrowsInBackward> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) { return x.clone(); }
  static Tensors backward(torch::autograd::AutogradContext*, const Tensors& dy) {
    if (++calls > 30) throw std::out_of_range("no such row");
    return dy;
  }
  static inline std::atomic<int> calls = 0;
};

struct RankError {
  Code code = Code::kBug;
  std::string message;
};

// Trains on two ranks that are stages of a pipeline, and returns their errors.
std::vector<RankError> errors_of_stages(const Chain& chain, const TrainHooks& hooks = {}) {
  const TemporaryFolder folder;
  spec::RunFile run = run_file("[mesh]\npp = 2\n");
  run.log.dir = folder.path();
  std::vector<RankError> errors(2);
  run_inproc(2, [&](Communicator& comm) {
    RankError& own = errors[static_cast<size_t>(comm.rank())];
    try {
      Trainer(chain, data_of(), run, comm, {}, hooks).run();
    } catch (const Error& error) {
      own = {error.code(), error.message()};
    } catch (int number) {
      own.message = "threw " + std::to_string(number);
    }
  });
  return errors;
}

TEST(ChainTraining, SaysBlockAndStepOnAllRanks_WhereABlockThrowsInTheMiddle) {
  std::atomic<int> calls = 0;
  const auto forward = [&calls](const auto& error) {
    calls = 0;
    return chain_with([&calls, error](const Tensors& x) { return ++calls > 60 ? throw error : Tensors{x[0]}; });
  };
  const Chain backward = chain_with([](const Tensors& x) { return Tensors{ThrowsInBackward::apply(x[0])}; });
  const std::vector<std::tuple<Chain, std::string, std::string>> cases = {
      {forward(std::out_of_range("no such row")), "block \"middle\" throws: no such row", "(forward|recompute)"},
      {forward(3), "block \"middle\" throws: an object of type int, which is no std::exception", "(forward|recompute)"},
      {backward, "the backward of block \"middle\" throws: no such row", "backward"}};
  for (const auto& [chain, words, pass] : cases) {
    calls = 0;
    const std::vector<RankError> errors = errors_of_stages(chain);
    const auto thrower = std::ranges::find(errors, Code::kBadConfig, &RankError::code);
    ASSERT_NE(thrower, errors.end()) << errors[0].message << "\n" << errors[1].message;
    EXPECT_EQ(std::ranges::count(errors, Code::kAborted, &RankError::code), 1) << words;
    for (const RankError& error : errors)
      EXPECT_THAT(error.message, testing::AllOf(testing::ContainsRegex("step [0-9]+: " + pass + " of block1 mb"),
                                                testing::HasSubstr(words), testing::HasSubstr("fix: what ")));
  }
}

TEST(ChainTraining, TellsAllRanks_WhereAHookThrowsWhatIsNoException) {
  const std::vector<RankError> errors =
      errors_of_stages(branched_chain(), {.print = [](const std::string&) { throw 3; }});
  EXPECT_EQ(errors[0].message, "threw 3");
  EXPECT_EQ(errors[1].code, Code::kAborted);
  EXPECT_THAT(errors[1].message, testing::HasSubstr("a hook throws an object of type int"));
}

TEST(TrainChain, EndsWithAMessageAndAStatus_WhereAHookThrowsWhatIsNoException) {
  const TemporaryFolder folder;
  const std::string file = folder.path() / "run.toml", dir = "log.dir=" + folder.path().string();
  std::ofstream(file) << "[train]\nbatch = 4\nmicro_batch = 2\nsteps = 3\n";
  std::vector<std::string> words = {"program", file, dir};
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  testing::internal::CaptureStderr();
  const int status = train_chain(static_cast<int>(arguments.size()), arguments.data(), branched_chain(), data_of(),
                                 {.step_done = [](const StepMetrics&) { throw 3; }});
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_EQ(status, 1) << text;
  EXPECT_THAT(text, testing::HasSubstr("herd: the program throws an object of type int, which is no std::exception\n"
                                       "  fix: throw a std::exception"));
}

TEST(ChainSource, NamesTheBlock_WhereItGivesWhatNoOtherCanRead) {
  const auto given = [](const std::function<Tensors(const Tensors&)>& middle) {
    return refusal(chain_with(middle), data_of(), run_file());
  };
  const auto names = [](const std::string& what, const std::string& fix) {
    return testing::HasSubstr(" of block \"middle\" is " + what + "\n  fix: " + fix);
  };
  EXPECT_THAT(given([](const Tensors& x) {
                return Tensors{x[0], at::Tensor()};
              }),
              names("undefined", "a tensor in each place"));
  EXPECT_THAT(given([](const Tensors& x) { return Tensors{at::complex(x[0], x[0])}; }),
              names("of type ComplexFloat, which no rank can send to another", "torch::view_as_real()"));
  EXPECT_THAT(given([](const Tensors& x) { return Tensors{x[0].to_sparse()}; }), names("sparse", "its to_dense()"));
  EXPECT_THAT(given([](const Tensors&) { return Tensors{}; }),
              testing::HasSubstr("\"middle\" gives no tensor\n  fix: "));
  Chain loss;
  loss.add(
      "loss", {"points"}, [] { return torch::nn::Linear(kIn, 1); },
      [](torch::nn::LinearImpl& linear, const Tensors& x) {
        return Tensors{linear.forward(x[0]).sum(), at::Tensor()};
      });
  EXPECT_THAT(refusal(loss, data_of(), run_file()),
              testing::HasSubstr("tensor 1 of block \"loss\" is undefined\n  fix: "));
  const ChainData complex{.read = [](const std::vector<int64_t>& samples) {
    Batch batch = points(samples);
    batch.tensors[0].second = at::complex(batch.tensors[0].second, batch.tensors[0].second);
    return batch;
  }};
  EXPECT_THAT(
      refusal(branched_chain(), complex, run_file()),
      testing::AllOf(testing::HasSubstr("tensor \"points\" of the batch"), testing::HasSubstr("is complex\n  fix: ")));
}

// Other readers of the tensor, and a pass that is computed again, would go on with other values.
TEST(ChainSource, NamesTheBlock_WhereItChangesWhatItReadsInPlace) {
  const auto given = [](const std::function<void(at::Tensor)>& change) {
    return refusal(chain_with([change](const Tensors& x) {
                     change(x[0]);
                     return Tensors{x[0] * 2};
                   }),
                   data_of(), run_file());
  };
  const auto named =
      testing::AllOf(testing::HasSubstr("block \"middle\" changes in place tensor 0 of those that it reads"),
                     testing::HasSubstr("fix: an operation that gives a new tensor"));
  EXPECT_THAT(given([](at::Tensor x) { x.mul_(2); }), named);
  EXPECT_THAT(given([](at::Tensor x) { x.detach().clamp_(-1, 1); }), named);
  EXPECT_THAT(given([](at::Tensor x) { x.clone().mul_(2); }), "");
  Chain clamped;
  clamped.add(
      "loss", {"points"}, [] { return torch::nn::Linear(kIn, 1); },
      [](torch::nn::LinearImpl& linear, const Tensors& x) {
        linear.weight.detach().clamp_(-1, 1);
        return Tensors{linear.forward(x[0]).sum(), torch::tensor(x[0].size(0))};
      });
  EXPECT_THAT(refusal(clamped, data_of(), run_file()),
              testing::AllOf(testing::HasSubstr("block \"loss\" changes in place its parameter loss.weight"),
                             testing::HasSubstr("fix: ")));
}

TEST(ChainTraining, TakesSparseGradientsAsDenseOnes) {
  const auto losses = [](bool sparse) {
    Chain chain;
    chain
        .add("rows", {"labels"},
             [sparse] { return torch::nn::Embedding(torch::nn::EmbeddingOptions(kClasses, kWidth).sparse(sparse)); })
        .add(
            "loss", {"rows", "points"}, [] { return torch::nn::Linear(kIn, kWidth); },
            [](torch::nn::LinearImpl& linear, const Tensors& x) {
              return Tensors{(linear.forward(x[1]) - x[0]).square().sum(), torch::tensor(x[0].size(0))};
            });
    return train_chain_in_threads(chain, data_of(), run_file(), 2, kSteps).losses;
  };
  EXPECT_EQ(losses(true), losses(false));
}

// A factory whose numbers differ from process to process, here from call to call.
TEST(ChainTraining, RefusesReplicasThatBeginApart) {
  const TemporaryFolder folder;
  Chain chain;
  chain
      .add("drawn", {"points"},
           [calls = std::make_shared<std::atomic<int>>(0)] {
             torch::nn::Linear linear(kIn, kWidth);
             torch::NoGradGuard no_record;
             linear->weight.fill_(++*calls);
             return linear;
           })
      .add_function("loss", {}, [](const Tensors& x) {
        return Tensors{x[0].sum(), torch::tensor(x[0].size(0))};
      });
  spec::RunFile run = run_file();
  run.log.dir = folder.path();
  std::atomic<int> refused = 0;
  run_inproc(2, [&](Communicator& comm) {
    try {
      Trainer(chain, data_of(), run, comm).run();
    } catch (const Error& error) {
      refused += error.code() == Code::kBadConfig;
      EXPECT_THAT(error.message(), testing::AllOf(testing::HasSubstr("replicas begin apart: rank 1 holds other weights "
                                                                     "than rank 0 in drawn"),
                                                  testing::HasSubstr("fix: factories that draw")));
    }
  });
  EXPECT_EQ(refused, 2);
}

// One that counts its calls and makes a wider layer in each, or another layer in every second one.
TEST(ChainSource, NamesTheBlock_WhereItsFactoryMakesOtherModules) {
  const auto refused = [](const std::function<torch::nn::LinearOptions(int)>& make) {
    Chain chain;
    chain
        .add("changing", {"points"},
             [make, calls = std::make_shared<int>(0)] { return torch::nn::Linear(make((*calls)++)); })
        .add_function("loss", {}, [](const Tensors& x) {
          return Tensors{x[0].sum(), torch::tensor(x[0].size(0))};
        });
    return refusal(chain, data_of(), run_file());
  };
  const auto named = testing::AllOf(testing::HasSubstr("the factory of block \"changing\" builds another module"),
                                    testing::HasSubstr("fix: a factory that builds the same module each time"));
  EXPECT_THAT(refused([](int calls) { return torch::nn::LinearOptions(kIn, kWidth + calls); }),
              testing::AllOf(named, testing::HasSubstr("parameter changing.weight had sizes [8, 6], and has [9, 6]")));
  EXPECT_THAT(refused([](int calls) { return torch::nn::LinearOptions(kIn, kWidth).bias(calls % 2 == 0); }),
              testing::AllOf(named, testing::HasSubstr("parameter changing.bias had sizes [8], and is missing now")));
  EXPECT_THAT(refused([](int calls) { return torch::nn::LinearOptions(kIn, kWidth).bias(calls % 3 == 2); }),
              testing::AllOf(named, testing::HasSubstr("it had no parameter changing.bias")));
}

TEST(ChainTraining, NamesTheBlockThatMakesANaN) {
  const TemporaryFolder folder;
  spec::RunFile run = run_file();
  run.train.eval_every = 0;
  run.log.dir = folder.path();
  int calls = 0;
  const Chain chain = chain_with([&](const Tensors& x) { return Tensors{++calls > 30 ? (x[0] - 1e30).log() : x[0]}; });
  std::string text;
  run_inproc(1, [&](Communicator& comm) {
    try {
      Trainer(chain, data_of(), run, comm).run();
    } catch (const Error& error) {
      text = error.message();
    }
  });
  EXPECT_THAT(text, testing::AllOf(testing::ContainsRegex("step [0-9]+: the norm of the gradient is nan"),
                                   testing::HasSubstr("rank 0: output of middle, micro-batch 0"),
                                   testing::HasSubstr("fix: lower optimizer.lr")));
}

// A file that ends after ten steps, say: rank 1 gets fewer rows than it asks for, and all ranks end with what it says.
TEST(ChainTraining, NamesTheBlock_WhereTheDataRunsShortAfterSomeSteps) {
  const TemporaryFolder folder;
  const ChainData data{.read = [](const std::vector<int64_t>& samples) {
    const bool is_last = samples.back() / 7 == 10 && samples.size() == 2 && samples.front() % 7 >= 4;
    return points(is_last ? std::vector<int64_t>{samples[0]} : samples);
  }};
  spec::RunFile run = run_file();
  run.log.dir = folder.path(), run.log.name = "short";
  std::mutex mutex;
  std::vector<std::string> errors;
  run_inproc(2, [&](Communicator& comm) {
    try {
      Trainer(branched_chain(), data, run, comm).run();
    } catch (const Error& error) {
      const std::lock_guard lock(mutex);
      errors.push_back(error.message());
    }
  });
  ASSERT_EQ(errors.size(), 2U);
  for (const std::string& error : errors)
    EXPECT_THAT(error, testing::AllOf(testing::HasSubstr("tensor \"points\" of the batch, which block \"left\" reads, "
                                                         "has 1 rows for 2 samples, from sample 75 on"),
                                      testing::HasSubstr("fix: a row for each index")));
  EXPECT_GE(read_metrics(folder.path() / "short" / "metrics.jsonl").size(), 9U);
}

TEST(ChainSource, RefusesAParameterThatIsRegisteredTwice) {
  struct TwiceImpl : torch::nn::Module {
    TwiceImpl() {
      a = register_module("a", torch::nn::Linear(kIn, kIn));
      register_parameter("b", a->weight);
    }
    torch::nn::Linear a{nullptr};
  };
  Chain chain;
  chain
      .add(
          "twice", {"points"}, [] { return std::make_shared<TwiceImpl>(); },
          [](TwiceImpl& module, const Tensors& x) { return module.a->forward(x[0]); })
      .add_function("loss", {}, [](const Tensors& x) {
        return Tensors{x[0].sum(), torch::tensor(1)};
      });
  EXPECT_THAT(refusal(chain, data_of(), run_file()),
              testing::AllOf(testing::HasSubstr("block \"twice\" registers twice.a.weight twice"),
                             testing::HasSubstr("fix: register a shared parameter once")));
}

}  // namespace
}  // namespace herd::train
