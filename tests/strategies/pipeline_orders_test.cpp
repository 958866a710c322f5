// Orders of a pipeline: what the papers write, that none lets ranks wait in a circle, how long ranks stand idle, what
// waits in memory, and orders in files.
#include "herd/strategies/pipeline_orders.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "herd/spec/pipeline.h"
#include "herd/strategies/order_picture.h"
#include "tests/golden.h"
#include "tests/strategies/small_run.h"
#include "tests/support/expect_error.h"

namespace herd::strategies {
namespace {

using spec::Pass;
using spec::PipelineForm;
using spec::PipelineOrder;

std::string letters(const std::string& order, int ranks, size_t rank, int micro_batches) {
  std::string out;
  const spec::PipelineOrder all = pipeline_order(order, {}, ranks, micro_batches);
  for (const spec::Turn& turn : all.turns[rank])
    out += "fbw"[static_cast<size_t>(turn.pass)] + std::to_string(turn.micro_batch);
  return out;
}

TEST(PipelineOrder, IsThatOfThePapers) {
  EXPECT_EQ(letters("1f1b", 3, 0, 4), "f0f1f2b0f3b1b2b3");
  EXPECT_EQ(letters("1f1b", 3, 1, 4), "f0f1b0f2b1f3b2b3");
  EXPECT_EQ(letters("1f1b", 3, 2, 4), "f0b0f1b1f2b2f3b3");
  EXPECT_EQ(letters("1f1b", 4, 0, 2), "f0f1b0b1");
  EXPECT_EQ(letters("gpipe", 3, 1, 3), "f0f1f2b0b1b2");
  EXPECT_EQ(letters("zero_bubble_h1", 3, 0, 4), "f0f1f2b0w0f3b1w1b2w2b3w3");
  EXPECT_EQ(letters("zero_bubble_h1", 3, 1, 4), "f0f1b0f2b1w0f3b2w1b3w2w3");
  EXPECT_EQ(letters("zero_bubble_h1", 3, 2, 4), "f0b0f1b1f2b2w0f3b3w1w2w3");
  EXPECT_EQ(letters("zero_bubble_h1", 4, 3, 1), "f0b0w0");
  EXPECT_ANY_THROW(pipeline_order("zigzag", {}, 3, 3));
}

struct Named {
  const char* name;
  PipelineForm form;
};
const Named kAll[] = {{"gpipe", {}},        {"1f1b", {}},         {"zero_bubble_h1", {}},
                      {"interleaved", {2}}, {"interleaved", {3}}, {"zero_bubble_v", {2, true}}};

TEST(PipelineOrder, RunsToItsEnd_ForAnyRanksAndMicroBatches_AndItsTextIsReadBack) {
  for (const Named& one : kAll) {
    for (int ranks = 2; ranks <= 8; ++ranks) {
      for (int micro_batches = 1; micro_batches <= 16; ++micro_batches) {
        SCOPED_TRACE(one.name + std::to_string(ranks) + " ranks, micro-batches " + std::to_string(micro_batches));
        const PipelineOrder order = pipeline_order(one.name, one.form, ranks, micro_batches);
        ASSERT_NO_THROW(times_of(order));
        EXPECT_EQ(spec::parse_pipeline_order(to_text(order), "text"), order);
      }
    }
  }
}

TEST(PipelineOrder, WritesTheGoldenTables) {
  for (const Named& one : kAll) {
    std::string text;
    for (const int ranks : {2, 4}) {
      for (const int micro_batches : {4, 8}) text += to_text(pipeline_order(one.name, one.form, ranks, micro_batches));
    }
    testing_support::expect_golden(
        "tests/strategies/golden/order_" + std::string(one.name) + (one.form.stages_per_rank == 3 ? "_3" : "") + ".txt",
        text);
  }
}

// Units in which a rank is idle between its first pass and its last, and before the end of the last rank's first.
int idle(const PipelineOrder& order) {
  int end = 0;
  for (const auto& times : times_of(order)) end = std::max(end, times.back());
  return end - 3 * order.micro_batches * order.stages_per_rank;
}

TEST(PipelineOrder, LeavesRanksIdleForAsLongAsThePapersSay) {
  for (int p = 2; p <= 8; ++p) {
    for (int m = 1; m <= 24; ++m) {
      SCOPED_TRACE(std::to_string(p) + " ranks, micro-batches " + std::to_string(m));
      for (const char* name : {"gpipe", "1f1b"}) EXPECT_EQ(idle(pipeline_order(name, {}, p, m)), 3 * (p - 1));
      if (m >= p) {
        EXPECT_EQ(idle(pipeline_order("zero_bubble_h1", {}, p, m)), p - 1);
      }
      const double v = spec::bubble_fraction(spec::Pipeline::kZeroBubbleV, p, m);
      EXPECT_NEAR(idle(pipeline_order("zero_bubble_v", {2, true}, p, m)), 6 * m * v / (1 - v) + p - 1, 1e-9)
          << "the last rank begins p - 1 units after the first";
      EXPECT_EQ(v == 0, m >= 2 * p - 2);
      for (const int chunks : {2, 3, 4}) {
        const int units = idle(pipeline_order("interleaved", {chunks}, p, m));
        if (m % p == 0) {
          EXPECT_EQ(units, 3 * (p - 1)) << "of a step of 3 * m * v, where 1f1b's are of 3 * m: v times fewer";
        } else if (m > p) {
          EXPECT_LE(units, 3 * (p - 1) + 6);
        }
      }
    }
  }
}

// Between a rank's first pass and its last.
TEST(PipelineOrder, OfAFoldedPipelineKeepsAllRanksBusy_FromSoManyMicroBatchesOn) {
  for (int p = 2; p <= 8; ++p) {
    for (int m = 1; m <= 24; ++m) {
      const PipelineOrder order = pipeline_order("zero_bubble_v", {2, true}, p, m);
      int most = 0;
      for (const auto& times : times_of(order)) most = std::max(most, times.back() - times.front() + 1 - 6 * m);
      EXPECT_EQ(most == 0, m >= 2 * p - 1) << p << " ranks, micro-batches " << m;
    }
  }
}

TEST(PipelineOrder, OfManyRanksIsWrittenAndTimedAtOnce_AndOneOfTooManyPassesIsRefused) {
  EXPECT_EQ(idle(pipeline_order("1f1b", {}, 20000, 1)), 3 * 19999);
  EXPECT_ERROR(pipeline_order("1f1b", {}, 65536, 65536), Code::kBadConfig, "at most 4194304", "65536 ranks", "fix: ");
}

// Passes of stages that wait in memory for what ends them, at the worst moment of a rank.
int held(const PipelineOrder& order, size_t rank) {
  const Pass ends = order.splits_backward() ? Pass::kWeights : Pass::kBackward;
  int now = 0, most = 0;
  for (const spec::Turn& turn : order.turns[rank]) {
    if (turn.pass == Pass::kForward) most = std::max(most, ++now);
    if (turn.pass == ends) --now;
  }
  return most;
}

TEST(PipelineOrder, HoldsNoMoreThanThePapersSay) {
  for (int p = 2; p <= 8; ++p) {
    for (int m = 1; m <= 16; ++m) {
      for (int rank = 0; rank < p; ++rank) {
        const auto of = [&](const char* name, const PipelineForm& form) {
          return held(pipeline_order(name, form, p, m), static_cast<size_t>(rank));
        };
        EXPECT_EQ(of("gpipe", {}), m);
        EXPECT_EQ(of("1f1b", {}), std::min(m, p - rank));
        EXPECT_LE(of("zero_bubble_h1", {}), std::min(m, p));
        EXPECT_LE(of("zero_bubble_v", {2, true}), std::min(2 * m, 2 * p));
        for (const int v : {2, 3}) {
          const int most = of("interleaved", {v});
          if (m % p == 0) {
            EXPECT_DOUBLE_EQ(most, v * spec::micro_batches_in_flight(spec::Pipeline::kInterleaved, p, m, rank, v));
          }
          EXPECT_LE(most, std::min(v * m, (v - 1) * (2 * p - 1) + 2 * (p - 1 - rank) + 1));
        }
      }
    }
  }
}

TEST(PipelineOrder, ThatLetsRanksWaitInACircleIsRefused_WithTheCircle) {
  PipelineOrder order = pipeline_order("1f1b", {}, 2, 2);
  std::swap(order.turns[0][1], order.turns[0][2]);  // B0 before F1
  EXPECT_NO_THROW(times_of(order));
  std::swap(order.turns[1][0], order.turns[1][2]);  // F1 before F0
  EXPECT_ERROR(times_of(order), Code::kBadConfig, "wait for each other in a circle",
               "rank 0 is at B0, which needs B0 of rank 1", "rank 1 is at F1, which needs F1 of rank 0", "fix: ");
  order = pipeline_order("gpipe", {}, 2, 1);
  std::swap(order.turns[1][0], order.turns[1][1]);
  EXPECT_ERROR(times_of(order), Code::kBadConfig, "rank 1 is at B0, which needs F0 of rank 1");
}

TEST(PipelineOrder, ThatLeavesAPassOutOrRunsOneTwiceIsRefused) {
  for (const Named& one : kAll) {
    const PipelineOrder whole = pipeline_order(one.name, one.form, 3, 4);
    for (size_t rank = 0; rank < 3; ++rank) {
      for (size_t i = 0; i < whole.turns[rank].size(); ++i) {
        PipelineOrder order = whole;
        auto& turns = order.turns[rank];
        turns.push_back(turns[i]);
        EXPECT_ERROR(times_of(order), Code::kBadConfig, "twice");
        turns.pop_back();
        turns.erase(turns.begin() + static_cast<long>(i));
        EXPECT_ERROR(times_of(order), Code::kBadConfig, "never runs");
      }
    }
  }
}

TEST(PipelineOrder, OfAFileIsThatOfTheRun_OrRefusedByLineAndRule) {
  const auto path = std::filesystem::temp_directory_path() / ("herd-order-" + std::to_string(::getpid()));
  const auto write = [&](const std::string& text) { std::ofstream(path) << text; };
  spec::RunFile run = small_run(4, "none", 3);
  run.mesh.pp = 2;
  run.strategy.pipeline = "file:" + path.string();
  const PipelineOrder order = pipeline_order("zero_bubble_v", {2, true}, 2, 3);
  write("# there and back\n\n" + to_text(order));
  const spec::Layout layout = trainable_layout(run, 2);
  EXPECT_EQ(layout.pipeline, (PipelineForm{2, true}));
  EXPECT_EQ(pipeline_order(run, layout), order);
  EXPECT_EQ(steps_of(run, 2).size(), 2u);
  run.strategy.stages_per_rank = 3;
  EXPECT_ERROR(trainable_layout(run, 2), Code::kBadConfig, "stages_per_rank must be auto, or what the file says",
               "got 3");
  run.strategy.stages_per_rank = spec::kAuto;
  run.train.batch = 4;
  EXPECT_ERROR(pipeline_order(run, trainable_layout(run, 2)), Code::kBadConfig, path.string(),
               "an order of 3 micro-batches, but the run has 4");
  run.mesh.pp = 3;
  EXPECT_ERROR(pipeline_order(run, trainable_layout(run, 3)), Code::kBadConfig,
               "an order of 2 ranks, but the run has 3", "mesh.pp = 2");
  const auto refused = [&](const std::string& text, const std::string& why) {
    write(text);
    EXPECT_ERROR(spec::load_pipeline_order(path), Code::kBadConfig, path.string(), why, "fix: ");
  };
  refused("", "the first line is");
  refused("herd-pipeline-order 2\n", "line 1: the first line is");
  refused("herd-pipeline-order 1\nranks two stages_per_rank 1 micro_batches 1\n", "line 2: a number from 1");
  refused("herd-pipeline-order 1\nranks 2\n", "line 2: \"ranks P stages_per_rank V micro_batches M\"");
  const std::string head = "herd-pipeline-order 1\nranks 1 stages_per_rank 1 micro_batches 1\n";
  refused(head, "\"rank 0: ...\" stands here");
  refused(head + "rank 0: F0 X0\n", "line 3: a turn begins with F, B or W, not \"X0\"");
  refused(head + "rank 0: F0 B\n", "line 3: a number from 0");
  refused(head + "rank 0: F0 B-1\n", "line 3: a number from 0");
  refused(head + "rank 0: F0 B0@9\n", "runs B0@9, but there are micro-batches 0 to 0");
  refused(head + "rank 0: F0 B0\nrank 1:\n", "line 4: nothing follows");
  refused(head + "rank 0: F0 B0 W0 W0\n", "twice");
  refused("herd-pipeline-order 1\nranks 1 stages_per_rank 1048576 micro_batches 1048576\nrank 0: F0\n",
          "line 2: the passes of all ranks of an order");
  refused("herd-pipeline-order 1\nranks 1048577 stages_per_rank 1 micro_batches 1\n", "line 2: a number from 1");
  refused("herd-pipeline-order 1\nranks 1 stages_per_rank 1 micro_batches 1 folded\nrank 0: F0 B0\n", "two stages");
  std::filesystem::remove(path);
  EXPECT_ERROR(spec::load_pipeline_order(path), Code::kBadConfig, "no regular file that can be read");
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_ERROR(spec::load_pipeline_order(path), Code::kBadConfig, "no regular file that can be read");
  run.strategy.pipeline = "interleaved";
  run.strategy.stages_per_rank = 1;
  EXPECT_ERROR(trainable_layout(run, 3), Code::kBadConfig, "2 or more", "got 1", "fix: strategy.stages_per_rank = 2");
}

// A picture that looked at all turns for each of them would take a minute.
TEST(PipelineOrder, OfManyTurnsIsDrawnInProportion) {
  const int micro_batches = 2000 / one_in(1, 4), units = 3 * micro_batches + 765;
  const PipelineOrder order = pipeline_order("1f1b", {}, 256, micro_batches);
  const std::clock_t start = std::clock();  // of this process, whatever else the machine does
  EXPECT_THAT(order_picture(order),
              testing::HasSubstr("idle: 765 of " + std::to_string(units) + " units (" +
                                 std::to_string(std::lround(76500.0 / units)) + " %) on each rank"));
  EXPECT_EQ(order_timeline(order).spans.size(), size_t{2} * 256 * static_cast<size_t>(micro_batches));
  EXPECT_LT((std::clock() - start) / CLOCKS_PER_SEC, 20);
}

TEST(PipelineOrder, OfTheFormatsPageIsOne) {
  std::ostringstream page;
  page << std::ifstream(std::string(std::getenv("HERD_SOURCE_DIR")) + "/docs/formats/pipeline_order.md").rdbuf();
  const std::string text = page.str();
  const size_t begin = text.find("```\n") + 4, end = text.find("```", begin);
  const PipelineOrder order = spec::parse_pipeline_order(text.substr(begin, end - begin), "the page");
  EXPECT_TRUE(order.folded);
  EXPECT_EQ(order.turns.size(), 2u);
}

}  // namespace
}  // namespace herd::strategies
