// One rank is right because a plain PyTorch script (parity_with_pytorch.py) gives the same gradients and losses.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "herd/models/decoder.h"
#include "python_exchange_internal.h"
#include "tests/support/python_with_torch.h"

namespace herd::models {
namespace {

namespace fs = std::filesystem;

constexpr double kTolerance = 1e-5;  // relative, per tensor and per loss

struct Folder {
  fs::path path;
  Folder() {
    std::string name = (fs::temp_directory_path() / "herd_parity_XXXXXX").string();
    path = ::mkdtemp(name.data());
  }
  ~Folder() { fs::remove_all(path); }
};

struct ParityCase {
  bool tied;
  const char* norm;
  int64_t micro_batches;
};

spec::RunFile::Model small_gpt(const ParityCase& test) {
  spec::RunFile::Model model;
  model.layers = 2, model.width = 32, model.heads = 4, model.ffn = 80, model.context = 20, model.vocab = 61;
  model.tie_embeddings = test.tied;
  model.norm = test.norm;
  return model;
}

at::Tensor batch() { return at::arange(6 * 17, at::kLong).mul(37).remainder(61).view({6, 17}); }

TrainingRun make_run(const ParityCase& test) {
  TrainingRun run(make_model(small_gpt(test)));
  enlarge(run);
  return run;
}

// The script runs once, over one folder per kind of model.
class ParityWithPyTorch : public testing::TestWithParam<ParityCase> {
 protected:
  static void SetUpTestSuite() {
    const std::string python = python_with_torch();
    if (python.empty()) return;
    root_ = std::make_unique<Folder>();
    std::string command = python + " " + std::getenv("HERD_SOURCE_DIR") + "/tests/models/parity_with_pytorch.py";
    for (bool tied : {true, false}) {
      for (const char* norm : {"layernorm", "rmsnorm"}) command += " " + write_input({tied, norm, 1}).string();
    }
    ASSERT_EQ(std::system(command.c_str()), 0) << command;
  }
  static void TearDownTestSuite() { root_.reset(); }

  static fs::path folder_of(const ParityCase& test) {
    return root_->path / (std::string(test.tied ? "tied_" : "untied_") + test.norm);
  }

  static fs::path write_input(const ParityCase& test) {
    const fs::path folder = folder_of(test);
    fs::create_directory(folder);
    const TrainingRun run = make_run(test);
    models::write_input(folder, run, batch());
    return folder;
  }

  static void expect_gradients(const Model& model, const std::vector<float>& gradients) {
    const float* expected = gradients.data();
    for (const auto& group : model.groups) {
      for (const nn::Parameter& parameter : group->parameters()) {
        const at::Tensor theirs = at::from_blob(const_cast<float*>(expected), parameter.spec().sizes, at::kFloat);
        const double size = theirs.norm().item<double>();
        EXPECT_GT(size, 0) << parameter.spec().name;
        EXPECT_LE((parameter.gradient() - theirs).norm().item<double>(), kTolerance * size) << parameter.spec().name;
        expected += parameter.spec().elements();
      }
    }
    EXPECT_EQ(expected, gradients.data() + gradients.size());
  }

  static std::unique_ptr<Folder> root_;
};

std::unique_ptr<Folder> ParityWithPyTorch::root_;

TEST_P(ParityWithPyTorch, EveryGradientAndTenLossesAreEqual) {
  if (!root_) GTEST_SKIP() << "no python with torch and numpy (.venv, HERD_PYTHON or python3)";
  TrainingRun run = make_run(GetParam());
  const std::vector<double> losses = read_file<double>(folder_of(GetParam()) / "losses.bin");
  ASSERT_EQ(losses.size(), 10u);
  const at::Tensor inputs = batch().slice(1, 0, 16), targets = batch().slice(1, 1, 17);
  for (size_t step = 0; step < losses.size(); ++step) {
    const double loss = run.gradient(inputs, targets, GetParam().micro_batches);
    EXPECT_NEAR(loss, losses[step], kTolerance * losses[step]) << "step " << step;
    if (step == 0) expect_gradients(run.model(), read_file<float>(folder_of(GetParam()) / "gradients.bin"));
    run.step(1.0);
  }
  EXPECT_LT(losses.back(), losses.front() - 0.1) << "nothing was learnt, so the losses prove little";
}

INSTANTIATE_TEST_SUITE_P(Kinds, ParityWithPyTorch,
                         testing::Values(ParityCase{true, "layernorm", 1}, ParityCase{true, "layernorm", 3},
                                         ParityCase{false, "layernorm", 1}, ParityCase{false, "layernorm", 3},
                                         ParityCase{true, "rmsnorm", 1}, ParityCase{false, "rmsnorm", 3}),
                         [](const auto& test) {
                           return std::string(test.param.norm) + (test.param.tied ? "Tied" : "Untied") + "In" +
                                  std::to_string(test.param.micro_batches);
                         });

TEST(DropoutParity, MicroBatchesDrawWhatTheWholeWould) {
  spec::RunFile::Model shape = small_gpt({true, "layernorm", 1});
  shape.dropout = 0.2;
  const at::Tensor inputs = batch().slice(1, 0, 16), targets = batch().slice(1, 1, 17);
  const nn::Context context{.training = true, .seed = 3, .step = 4, .samples = {60, 61, 62, 63, 64, 65}};
  TrainingRun whole(make_model(shape)), cut(make_model(shape)), plain(make_model(shape));
  const double a = whole.gradient(inputs, targets, 1, context), b = cut.gradient(inputs, targets, 3, context);
  EXPECT_NEAR(a, b, 1e-6 * a);
  EXPECT_LE((whole.gradients() - cut.gradients()).norm().item<double>(),
            1e-5 * whole.gradients().norm().item<double>());
  EXPECT_GT(std::abs(plain.gradient(inputs, targets, 1) - a), 1e-3 * a);
}

}  // namespace
}  // namespace herd::models
