#include "herd/train/model_buffers.h"

#include <gtest/gtest.h>

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include "herd/comm/inproc_world.h"

namespace herd::train {
namespace {

struct Counted final : nn::Block {
  Counted(const std::string& name, double value)
      : Block(name, {}), mean(at::full({3}, value)), batches(at::zeros({}, at::kLong)) {
    batches.fill_((int64_t{1} << 40) + static_cast<int64_t>(value));
  }
  nn::Tuple forward(const nn::Tuple& x, const nn::Context&) override { return x; }
  std::vector<nn::Buffer> buffers() const override {
    return {{name() + ".mean", mean}, {name() + ".batches", batches}};
  }
  at::Tensor mean, batches;
};

// Ranks 0 and 2 run block a, ranks 1 and 2 block b.
TEST(ModelBuffers, AreThoseOfTheFirstRankThatRunsTheBlock) {
  spec::ModelTable table;
  for (const std::string name : {"a", "b"}) {
    spec::BlockShape& shape = table.blocks.emplace_back();
    shape.buffers = {{name + ".mean", {3}}, {name + ".batches", {}}};
  }
  run_inproc(3, [&](Communicator& comm) {
    std::vector<std::shared_ptr<nn::Block>> blocks;
    if (comm.rank() != 1) blocks.push_back(std::make_shared<Counted>("a", 10 + comm.rank()));
    if (comm.rank() != 0) blocks.push_back(std::make_shared<Counted>("b", 20 + comm.rank()));
    ModelBuffers buffers(blocks, table, comm);
    EXPECT_EQ(buffers.names(), (std::set<std::string>{"a.batches", "a.mean", "b.batches", "b.mean"}));
    EXPECT_EQ(buffers.own().size(), 2 * blocks.size());
    EXPECT_EQ(buffers.saved().size(), comm.rank() == 2 ? 0U : 2U);
    buffers.synchronize();
    for (const auto& block : blocks) {
      const auto& counted = dynamic_cast<const Counted&>(*block);
      const double first = block->name() == "a" ? 10 : 21;
      EXPECT_TRUE(counted.mean.eq(first).all().item<bool>()) << block->name() << comm.rank();
      EXPECT_EQ(counted.batches.item<int64_t>(), (int64_t{1} << 40) + static_cast<int64_t>(first));
    }
  });
}

}  // namespace
}  // namespace herd::train
