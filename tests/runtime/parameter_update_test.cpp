// An update of a rank's part of each group. Where the host updates beside passes, graphs of the device stay valid,
// whatever the part: also that of a rank for which nothing of a group is left.
#include "herd/runtime/parameter_update.h"

#include <gtest/gtest.h>

#include "herd/comm/inproc_world.h"
#include "herd/models/decoder.h"
#include "herd/optim/adamw.h"
#include "herd/spec/build_model_table.h"
#include "herd/strategies/strategy_table.h"
#include "herd/strategies/techniques.h"

namespace herd::runtime {
namespace {

constexpr int kDataRanks = 4;

struct Marks {
  int with_part = 0, without_part = 0;      // groups of which the rank has a part, or nothing
  int marked = 0, marked_without_part = 0;  // groups whose weights count as written
};

// Updates every group of a rank of four once.
Marks update_once(Communicator& comm, int zero, const std::string& offload, bool delayed) {
  spec::RunFile run = spec::parse_run_text(
      "[model]\nlayers = 1\nwidth = 16\nheads = 2\ncontext = 8\nvocab = 40\n[train]\nbatch = 4\nmicro_batch = 1\n"
      "[data]\nkind = \"random\"\n",
      "test");
  run.strategy.zero = zero, run.strategy.offload = offload, run.strategy.delayed_update = delayed;
  const spec::Layout layout = strategies::trainable_layout(run, kDataRanks);
  const program::Program step = strategies::compile_step(run, spec::model_table(run, 1), layout, comm.rank());
  const models::Model model = models::make_model(run.model);
  const optim::AdamW adamw({});
  FlatParameters parameters(model.groups, step, comm, {at::kFloat, at::kFloat}, 1);
  const GroupUpdate update =
      parameter_update(parameters, adamw, {.peak = 1e-3, .schedule = optim::RateSchedule::kConstant});
  Marks marks;
  const float factor = 1;
  for (int group = 0; group < parameters.num_groups(); ++group) {
    const bool has_part = parameters.part(group).size() > 0;
    ++(has_part ? marks.with_part : marks.without_part);
    const auto version = parameters.group(group).weights()._version();
    update(group, 0, &factor, 0);
    if (parameters.group(group).weights()._version() == version) continue;
    ++marks.marked;
    marks.marked_without_part += has_part ? 0 : 1;
  }
  return marks;
}

TEST(ParameterUpdate, MarksWeightsOfTheDeviceAsWritten) {
  run_inproc(kDataRanks, [&](Communicator& comm) {
    for (const int zero : {1, 2}) {
      const Marks marks = update_once(comm, zero, "none", false);
      EXPECT_EQ(marks.marked, marks.with_part) << "zero " << zero;
      EXPECT_EQ(marks.marked_without_part, 0) << "zero " << zero;
    }
  });
}

// The last norm has 128 bytes, of which the first two ranks have a cache line each.
TEST(ParameterUpdate, MarksNoWeights_WhereTheHostUpdatesBesidePasses) {
  run_inproc(kDataRanks, [&](Communicator& comm) {
    for (const int zero : {1, 2, 3}) {
      for (const bool delayed : {true, false}) {
        const Marks marks = update_once(comm, zero, "states", delayed);
        EXPECT_GT(marks.with_part, 0);
        EXPECT_EQ(marks.without_part > 0, comm.rank() >= 2) << "zero " << zero;
        EXPECT_EQ(marks.marked, 0) << "zero " << zero << " rank " << comm.rank();
      }
    }
  });
}

}  // namespace
}  // namespace herd::runtime
