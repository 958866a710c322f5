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

// Copies a checkpoint, with NaN for one row of the embedding.
void poison(const fs::path& from, const fs::path& to, int64_t row) {
  CheckpointReader reader(from);
  std::vector<NamedTensor> tensors;
  for (const auto& [name, tensor] : reader.manifest().tensors)
    tensors.push_back(whole_tensor(name, at::empty(tensor.shape, at::kFloat)));
  load_tensors(reader, tensors);
  for (NamedTensor& tensor : tensors)
    if (tensor.name == "wte.weight") tensor.value.select(0, row).fill_(std::numeric_limits<float>::quiet_NaN());
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
  poison(folder.root / "whole/checkpoints" / checkpoint_folder_name(6), folder.root / "poisoned", token);

  for (const std::string layout : {"mesh.pp=1", "mesh.pp=2", "mesh.tp=2"}) {
    const auto begin = std::chrono::steady_clock::now();
    const Ended ended =
        folder.train("run" + layout, 2,
                     {"model.tie_embeddings=false", layout,
                      "checkpoint.resume=" + (folder.root / "poisoned" / checkpoint_folder_name(6)).string()});
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20)) << "nobody waits for a deadline";
    EXPECT_NE(ended.status, 0);
    EXPECT_THAT(ended.output, testing::HasSubstr("step 6: the norm of the gradient is nan"));
    // Of the word's row, which one of the ranks that share the vocabulary has.
    const char* where = layout == "mesh.tp=2" ? ": weights of embedding, micro-batch 0"
                                              : "first seen by rank 0: weights of embedding, micro-batch 0; rank 1";
    EXPECT_THAT(ended.output, testing::HasSubstr(where));
  }
  EXPECT_TRUE(Command::processes_with(folder.root.string()).empty());
}

}  // namespace
}  // namespace herd::train
