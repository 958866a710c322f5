// BERT out to Hugging Face's format and in from it: the same logits as plain PyTorch, and as transformers where that is
// installed; an export and an import give the same bits, and a run starts from the folder.
#include <gmock/gmock.h>

#include "against_python.h"
#include "herd/storage/checkpoint_folder.h"
#include "herd/storage/checkpoint_reader.h"
#include "herd/storage/metrics.h"

namespace herd::train {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class Bert : public AgainstPython, public testing::WithParamInterface<std::tuple<const char*, const char*>> {
 protected:
  Bert() : AgainstPython("bert_logits.py") {}
  void SetUp() override { need(std::get<0>(GetParam())); }
};

Ended convert(const RunFolder& folder, const fs::path& source, const std::string& to, const fs::path& out) {
  Command command(
      {fs::path(std::getenv("HERD_BINARY_DIR")) / "herd", "checkpoint", "convert", source, "--to", to, "--out", out},
      folder.root / "convert.output");
  const int status = command.wait();
  return {status, command.output()};
}

std::map<std::string, std::vector<std::byte>> tensors_in(const fs::path& checkpoint) {
  CheckpointReader reader(checkpoint);
  std::map<std::string, std::vector<std::byte>> all;
  for (const auto& [name, tensor] : reader.manifest().tensors) {
    const TensorSlice whole = whole_slice(tensor.shape);
    all[name].resize(static_cast<size_t>(whole.elements.size() * size_of(tensor.dtype)));
    reader.read(name, whole, all[name]);
  }
  return all;
}

TEST_P(Bert, GivesHerdsLogitsAndBits_WhenExported) {
  const auto& [by, tied] = GetParam();
  RunFolder folder;
  const Ended run = folder.train("run", 2,
                                 {"model.kind=bert", "train.steps=3", "strategy.zero=3", "optimizer.lr=0.05",
                                  "train.eval_every=0", std::string("model.tie_embeddings=") + tied});
  ASSERT_EQ(run.status, 0) << run.output;
  EXPECT_EQ(read_metrics(folder.root / "run/metrics.jsonl").at(0).tokens, 6 * 16) << "those that it predicts are fewer";
  const fs::path checkpoint = folder.root / "run/checkpoints" / checkpoint_folder_name(3), bert = folder.root / "bert",
                 mine = folder.root / "mine", back = folder.root / "back";
  const Ended done = convert(folder, folder.root / "run", "bert", bert);
  ASSERT_EQ(done.status, 0) << done.output;
  EXPECT_THAT(done.output, HasSubstr("of bert with 2 layers of width 32"));
  expect_same_logits(by, bert, checkpoint);
  ASSERT_EQ(convert(folder, checkpoint, "herd", mine).status, 0);
  ASSERT_EQ(convert(folder, bert, "herd", back).status, 0);
  EXPECT_EQ(tensors_in(back), tensors_in(mine));

  const Ended text = herd(folder, {"generate", checkpoint, "--ids", "3,1", "--tokens", "2"});
  EXPECT_EQ(text.status, 2);
  EXPECT_THAT(text.output, AllOf(HasSubstr("a bert predicts masked words"), HasSubstr("no next token"),
                                 HasSubstr("fix: a gpt, llama or moe")));
}

TEST_P(Bert, GivesTheSameLogitsInHerd_WhenImported) {
  const auto& [by, tied] = GetParam();
  for (const std::string kind : {"BertForMaskedLM", "BertForPreTraining"}) {
    RunFolder folder;
    const fs::path bert = folder.root / "bert", mine = folder.root / "herd";
    fs::create_directory(bert);
    ASSERT_TRUE(python(std::string("make ") + by + " " + bert.string() + " " + tied + " " + kind));
    const Ended done = convert(folder, bert, "herd", mine);
    ASSERT_EQ(done.status, 0) << done.output;
    const bool has_more = kind == "BertForPreTraining" || by == std::string("torch");
    EXPECT_EQ(done.output.find("herd's bert has no place for bert.pooler.dense.bias, bert.pooler.dense.weight, "
                               "cls.seq_relationship.bias, cls.seq_relationship.weight, which are left out") !=
                  std::string::npos,
              has_more)
        << done.output;
    expect_same_logits(by, bert, mine);
    std::ofstream(folder.root / "run.toml")
        << "[data]\nkind = \"random\"\n[train]\nsteps = 1\nbatch = 2\neval_every = 0\n[log]\ndir = \""
        << folder.root.string() << "\"\n";
    const Ended run = folder.train("run", 1, {"model.weights=" + bert.string()});
    EXPECT_EQ(run.status, 0) << run.output;
    EXPECT_THAT(run.output, HasSubstr("starts with the weights of"));
  }
}

INSTANTIATE_TEST_SUITE_P(By, Bert,
                         testing::Combine(testing::Values("torch", "transformers"), testing::Values("true", "false")),
                         [](const auto& one) {
                           return std::string(std::get<0>(one.param)) +
                                  (std::get<1>(one.param) == std::string("true") ? "_Tied" : "_Untied");
                         });

}  // namespace
}  // namespace herd::train
