// Folders of transformers, as a Python script beside the tests reads and writes them, against herd: the same logits.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "command.h"
#include "herd/comm/inproc_world.h"
#include "herd/convert/weight_source.h"
#include "herd/models/decoder.h"
#include "herd/nn/run_block.h"
#include "herd/train/model_tensors.h"
#include "herd/train/take_weights.h"
#include "tests/support/python_with_torch.h"

namespace herd::train {

inline constexpr double kTolerance = 1e-5;  // relative to the largest logit
inline constexpr int64_t kRows = 3, kLength = 11;

inline at::Tensor some_ids(int64_t vocabulary) {
  return at::arange(kRows * kLength, at::kLong).mul(17).remainder(vocabulary);
}

inline at::Tensor herd_logits(const fs::path& weights) {
  const auto source = convert::open_weights(weights);
  const spec::RunFile& run = source->run();
  const models::Model model = models::make_model(run.model);
  Communicator alone = world_of_one();
  const runtime::FlatParameters parameters(model.groups, alone, {}, 1);
  std::vector<NamedTensor> tensors = own_weights(parameters);
  take_weights(*source, tensors);
  nn::Tuple x = {some_ids(run.model.vocab).view({kRows, kLength})};
  for (const auto& block : model.blocks) x = nn::run_without_graph(*block, x, {});
  return x[0].contiguous();
}

// A script that serves calls, a line each, until the end of this program: it imports torch and transformers once, which
// takes longer than all that the tests ask of it.
class PythonScript {
 public:
  explicit PythonScript(const std::string& name) {
    const std::string python = python_with_torch(), path = std::getenv("HERD_SOURCE_DIR") + ("/tests/train/" + name);
    int calls[2], answers[2];  // no other process that the tests start may hold an end of them
    if (pipe2(calls, O_CLOEXEC) != 0 || pipe2(answers, O_CLOEXEC) != 0) return;
    pid_ = fork();
    if (pid_ == 0) {
      dup2(calls[0], 0);
      dup2(answers[1], 1);
      execlp(python.c_str(), python.c_str(), path.c_str(), "serve", nullptr);
      _exit(127);
    }
    close(calls[0]), close(answers[1]);
    calls_ = fdopen(calls[1], "w"), answers_ = fdopen(answers[0], "r");
  }
  PythonScript(const PythonScript&) = delete;
  ~PythonScript() {
    if (calls_ != nullptr) fclose(calls_), fclose(answers_);
    if (pid_ > 0) waitpid(pid_, nullptr, 0);
  }
  bool call(const std::string& arguments) {  // whether it did it; what went wrong is on the standard error
    char answer[16] = "";
    return calls_ != nullptr && fprintf(calls_, "%s\n", arguments.c_str()) > 0 && fflush(calls_) == 0 &&
           fgets(answer, sizeof answer, answers_) != nullptr && std::string(answer) == "done\n";
  }

 private:
  pid_t pid_ = -1;
  FILE *calls_ = nullptr, *answers_ = nullptr;
};

class AgainstPython : public testing::Test {
 protected:
  explicit AgainstPython(std::string script) : script_(std::move(script)) {}

  // Skips a test without a Python that has the package `by`. The last call of SetUp().
  static void need(const std::string& by) {
    const std::string python = python_with_torch();
    if (python.empty()) GTEST_SKIP() << "no python with torch and numpy (.venv, HERD_PYTHON or python3)";
    const std::string found = python + " -c 'from importlib.util import find_spec as f; exit(not f(\"" + by + "\"))'";
    if (std::system(found.c_str()) != 0) GTEST_SKIP() << "no " << by;
  }
  bool python(const std::string& arguments) const {
    static PythonScript script(script_);  // a test program has one
    return script.call(arguments);
  }
  static Ended herd(const RunFolder& folder, std::vector<std::string> words) {
    words.insert(words.begin(), fs::path(std::getenv("HERD_BINARY_DIR")) / "herd");
    Command command(words, folder.root / "herd.output");
    const int status = command.wait();
    return {status, command.output()};
  }
  // Compares the logits of a folder, as Python reads it, with those of a checkpoint.
  void expect_same_logits(const std::string& by, const fs::path& folder, const fs::path& checkpoint) const {
    const at::Tensor mine = herd_logits(checkpoint), ids = some_ids(mine.size(2));
    std::ofstream(folder / "ids.bin", std::ios::binary)
        .write(static_cast<const char*>(ids.const_data_ptr()), static_cast<std::streamsize>(ids.nbytes()));
    ASSERT_TRUE(python("logits " + by + " " + folder.string()));
    std::string theirs = slurp(folder / "logits.bin");
    ASSERT_EQ(theirs.size(), mine.nbytes());
    const at::Tensor expected = at::from_blob(theirs.data(), mine.sizes(), at::kFloat);
    const double largest = expected.abs().max().item<double>();
    EXPECT_GT(largest, 0.1);
    EXPECT_LT((mine - expected).abs().max().item<double>(), kTolerance * largest);
  }

 private:
  std::string script_;
};

}  // namespace herd::train
