// Which tokens each rank of a run has, read off what its first block gets and gives while the run trains: token ids are
// places of tokens in their sequence, and the row that the block adds to a token's is that of its position. In a ring
// they lie in a zigzag, so that all ranks see as many keys under the causal mask; a range of each rank's own, in order,
// is what ranks have that trade tokens for heads.
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <mutex>
#include <numeric>
#include <set>

#include "train_in_threads.h"

namespace herd::train {
namespace {

// Sequences of the ids 0, 1, 2, ..
class PlacesAsTokens final : public WindowSource {
 public:
  explicit PlacesAsTokens(int64_t context) : context_(context) {}
  int64_t context() const override { return context_; }
  int64_t vocabulary() const override { return context_ + 1; }
  int64_t samples_per_epoch() const override { return 1000; }
  void read(int64_t, std::span<int64_t> out) const override { std::iota(out.begin(), out.end(), 0); }

 private:
  int64_t context_;
};

struct SeenTokens {
  std::vector<int64_t> ids, positions;
  auto operator<=>(const SeenTokens&) const = default;
};

// An embedding of tokens and positions that notes which ones it looks up.
class NotingEmbedding final : public nn::Block {
 public:
  using Note = std::function<void(SeenTokens)>;
  NotingEmbedding(std::shared_ptr<nn::Block> embedding, Note note)
      : Block(embedding->name(), embedding->groups()), embedding_(std::move(embedding)), note_(std::move(note)) {
    set_layer(embedding_->layer());
  }
  nn::Tuple forward(const nn::Tuple& ids_BT, const nn::Context& context) override {
    nn::Tuple y = embedding_->forward(ids_BT, context);
    const at::AutoGradMode without_grad(false);
    const at::Tensor ids = ids_BT.at(0).reshape({-1}), tokens_VD = nn::find(groups(), "wte.weight").value(),
                     positions_CD = nn::find(groups(), "wpe.weight").value();
    const at::Tensor added = y.at(0).detach().view({ids.numel(), -1}) - tokens_VD.index_select(0, ids);
    const at::Tensor nearest = (added.unsqueeze(1) - positions_CD.unsqueeze(0)).abs().sum(-1).argmin(1);
    const auto numbers = [](const at::Tensor& x) {
      const auto* begin = x.const_data_ptr<int64_t>();
      return std::vector<int64_t>(begin, begin + x.numel());
    };
    note_({numbers(ids.contiguous()), numbers(nearest.contiguous())});
    return y;
  }

 private:
  std::shared_ptr<nn::Block> embedding_;
  Note note_;
};

using SeenByRank = std::map<int, std::set<SeenTokens>>;

class NotingSource final : public ModelSource {
 public:
  explicit NotingSource(SeenByRank& seen) : seen_(seen) {}
  spec::RunFile complete(spec::RunFile run, Communicator& comm) const override { return family_->complete(run, comm); }
  models::Model make(const spec::RunFile& run, const spec::ModelTable& table, const program::Program& step,
                     at::Device device) const override {
    models::Model model = family_->make(run, table, step, device);
    const int rank = step.rank;
    model.blocks[0] = std::make_shared<NotingEmbedding>(model.blocks[0], [this, rank](SeenTokens tokens) {
      const std::lock_guard lock(mutex_);
      seen_[rank].insert(std::move(tokens));
    });
    return model;
  }
  std::unique_ptr<Samples> open(const spec::RunFile& run, Split, Communicator&) const override {
    return token_samples(std::make_unique<PlacesAsTokens>(run.model.context));
  }
  bool has_validation() const override { return true; }
  runtime::StepInput example(const spec::RunFile& run, int64_t rows) const override {
    return family_->example(run, rows);
  }

 private:
  std::shared_ptr<const ModelSource> family_ = family_source();
  SeenByRank& seen_;
  mutable std::mutex mutex_;
};

TEST(ContextPositions, OfEachRankAreAZigzagInARing_AndARangeByAllToAll) {
  for (const bool ring : {true, false}) {
    for (const int64_t P : {2, 3, 4}) {
      spec::RunFile run = tiny_run();
      run.model.layers = 1, run.model.width = 24, run.model.heads = run.model.kv_heads = 12;
      run.model.head_width = 2, run.model.dropout = 0;
      run.model.context = 4 * P, run.model.vocab = 4 * P + 1;
      run.train.batch = 2;
      run.mesh.cp = P, run.strategy.context = ring ? "ring" : "all_to_all";
      SeenByRank seen;
      train_in_threads(run, static_cast<int>(P), 2, {}, std::make_shared<NotingSource>(seen));
      ASSERT_EQ(seen.size(), static_cast<size_t>(P));
      std::set<int64_t> all, pairs;  // tokens, and pairs of a query and a key that it sees, of each rank
      for (const auto& [rank, tokens] : seen) {
        ASSERT_EQ(tokens.size(), 1U) << "in every pass the same";
        const std::vector<int64_t>& ids = tokens.begin()->ids;
        const int64_t r = rank, last = 4 * P - 1;
        const std::vector<int64_t> expected =
            ring ? std::vector<int64_t>{2 * r, 2 * r + 1, last - 2 * r - 1, last - 2 * r}
                 : std::vector<int64_t>{4 * r, 4 * r + 1, 4 * r + 2, 4 * r + 3};
        EXPECT_EQ(ids, expected) << "rank " << rank << " of " << P << ", " << run.strategy.context;
        EXPECT_EQ(tokens.begin()->positions, ids) << "rank " << rank << " of " << P << ", " << run.strategy.context;
        all.insert(ids.begin(), ids.end());
        pairs.insert(std::accumulate(ids.begin(), ids.end(), int64_t{4}));
      }
      EXPECT_EQ(all.size(), static_cast<size_t>(4 * P)) << "each token has one rank";
      EXPECT_EQ(pairs.size() == 1, ring) << "all ranks have as much to do";
    }
  }
}

}  // namespace
}  // namespace herd::train
