// A NaN that one rank alone meets ends the run at once, on all ranks, in words that say where it is.
#include <ATen/ops/empty.h>
#include <gmock/gmock.h>

#include <set>

#include "command.h"
#include "herd/checkpoint/loader.h"
#include "herd/checkpoint/saver.h"
#include "herd/spec/build_model_table.h"
#include "herd/spec/run_file.h"
#include "herd/storage/checkpoint_folder.h"
#include "herd/strategies/strategy_table.h"
#include "herd/strategies/techniques.h"
#include "herd/train/batches.h"
#include "herd/train/data_source.h"

namespace herd::train {
namespace {

// A token that rank `rank` of two reads in the step after `steps`, and the other one does not.
int64_t token_of_one_rank(const fs::path& config, int64_t steps, Rank rank) {
  const spec::RunFile run = spec::parse_run_file(config.string(), {});
  const auto data = open_samples(run, Split::kTrain);
  std::set<int64_t> mine, other;
  const spec::Layout layout = strategies::trainable_layout(run, 2);
  for (Rank r = 0; r < 2; ++r) {
    const auto step = strategies::compile_step(run, spec::model_table(run, layout.micro_batch), layout, r);
    for (const auto& part : read_micro_batches(*data, steps * layout.batch, layout.batch, layout.micro_batch, step)) {
      const at::Tensor ids = part.inputs_BT.contiguous();
      (r == rank ? mine : other).insert(ids.const_data_ptr<int64_t>(), ids.const_data_ptr<int64_t>() + ids.numel());
    }
  }
  for (const int64_t token : mine)
    if (!other.contains(token)) return token;
  return -1;
}

// Copies a checkpoint, with `value` for one row of the embedding.
void poison(const fs::path& from, const fs::path& to, int64_t row, float value) {
  CheckpointReader reader(from);
  std::vector<NamedTensor> tensors;
  for (const auto& [name, tensor] : reader.manifest().tensors)
    tensors.push_back(whole_tensor(name, at::empty(tensor.shape, at::kFloat)));
  load_tensors(reader, tensors);
  for (NamedTensor& tensor : tensors)
    if (tensor.name == "wte.weight") tensor.value.select(0, row).fill_(value);
  OnePeer alone;
  CheckpointSaver saver({.root = to, .keep = 1, .herd_version = reader.manifest().herd_version}, alone);
  saver.save({.step = reader.manifest().step, .samples = reader.manifest().samples, .config = reader.manifest().config},
             tensors);
  saver.wait();
}

TEST(NonFinite, OfOneRankEndsAllAtOnce_NamingThatRankTheStepAndTheBlock) {
  RunFolder folder;
  const Ended whole = folder.train("whole", 2, {"model.tie_embeddings=false"});
  ASSERT_EQ(whole.status, 0) << whole.output;
  const int64_t token = token_of_one_rank(folder.root / "whole/config.toml", 6, 1);
  ASSERT_GE(token, 0);
  poison(folder.root / "whole/checkpoints" / checkpoint_folder_name(6), folder.root / "poisoned", token,
         std::numeric_limits<float>::max());  // the first norm after it overflows

  for (const auto& [layout, where] :
       {std::pair<std::string, std::string>("mesh.pp=1", "first seen by rank 1: output of h.0, micro-batch "),
        {"mesh.pp=2", "first seen by rank 0: output of h.0, micro-batch "},
        {"mesh.tp=2", ": output of h.0.norm_1, micro-batch "}}) {  // by the rank that has the row of the word
    const auto begin = std::chrono::steady_clock::now();
    const Ended ended =
        folder.train("run" + layout, 2,
                     {"model.tie_embeddings=false", layout,
                      "checkpoint.resume=" + (folder.root / "poisoned" / checkpoint_folder_name(6)).string()});
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20)) << "nobody waits for a deadline";
    EXPECT_NE(ended.status, 0);
    EXPECT_THAT(ended.output, testing::HasSubstr("step 6: the norm of the gradient is nan"));
    EXPECT_THAT(ended.output, testing::HasSubstr(where));
  }
  EXPECT_TRUE(Command::processes_with(folder.root.string()).empty());
}

TEST(NonFinite, OfWeightsIsFoundWhenTheyAreLoaded_NamingTheTensor) {
  RunFolder folder;
  const Ended whole = folder.train("whole", 1, {"train.steps=1", "train.eval_every=0", "checkpoint.every=1"});
  ASSERT_EQ(whole.status, 0) << whole.output;
  poison(folder.root / "whole/checkpoints" / checkpoint_folder_name(1), folder.root / "poisoned", 299,
         std::numeric_limits<float>::quiet_NaN());
  const std::string poisoned = folder.root / "poisoned" / checkpoint_folder_name(1);
  const auto herd = [&](std::vector<std::string> words) {
    words.insert(words.begin(), fs::path(std::getenv("HERD_BINARY_DIR")) / "herd");
    Command command(words, folder.root / "herd.output");
    const int status = command.wait();
    return Ended{status, command.output()};
  };
  const std::string loaded = "32 of its 9600 elements are NaN or infinite, the first, NaN, at [299, 0]";
  for (const auto& [what, ended, words] :
       {std::tuple("weights", folder.train("weights", 2, {"mesh.tp=2", "model.weights=" + poisoned}), loaded),
        {"fp16", folder.train("fp16", 1, {"strategy.precision=fp16", "model.weights=" + poisoned}), loaded},
        {"resume", folder.train("resume", 2, {"mesh.tp=2", "checkpoint.resume=" + poisoned}),
         "elements that this rank loads are NaN or infinite, the first, NaN, at [299, 0]"},
        {"generate", herd({"generate", poisoned, "--ids", "1,2"}), loaded},
        {"convert", herd({"checkpoint", "convert", poisoned, "--out", folder.root / "out"}), loaded}}) {
    EXPECT_EQ(ended.status, 2) << what << "\n" << ended.output;
    EXPECT_THAT(ended.output, testing::AllOf(testing::HasSubstr("\"wte.weight\""), testing::HasSubstr(words),
                                             testing::HasSubstr("fix: "), testing::Not(testing::HasSubstr("step 1/"))))
        << what;
  }
  EXPECT_FALSE(fs::exists(folder.root / "out"));
  const Ended unchecked = folder.train(
      "unchecked", 1,
      {"train.steps=2", "train.eval_every=0", "health.check_finite=false", "checkpoint.resume=" + poisoned});
  EXPECT_EQ(unchecked.status, 0) << unchecked.output;
}

}  // namespace
}  // namespace herd::train
