// How sums overlap with passes in a steady step, by equations of its header and guide.
#include "herd/strategies/overlap_picture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "tests/golden.h"
#include "tests/support/expect_error.h"

namespace herd::strategies {
namespace {

int step_units(const char* schedule, int layers, int units, int credit = 2) {
  return overlap_of({schedule, layers, units, credit}).step_units;
}

TEST(OverlapPicture, IsWhatTheGuideShows) {
  std::string all;
  for (const char* schedule : {"fifo", "priority", "ideal"}) all += overlap_picture({.schedule = schedule});
  testing_support::expect_golden("tests/strategies/golden/overlap_three_layers.txt", all);
}

// L forwards of 1, L backwards of 2, and sums of u units each:
//   fifo      L + 2 + max(2 (L-1) + u, L u)
//   ideal     max(3 L, L u)
//   priority  no less than the ideal and what the first layer waits for, 3 L + u; with the best credit no more than
//             fifo.
TEST(OverlapPicture, HasTheStepsOfItsEquations) {
  for (int layers = 1; layers <= 6; ++layers) {
    for (int units = 1; units <= 6; ++units) {
      const int fifo = step_units("fifo", layers, units), ideal = step_units("ideal", layers, units);
      EXPECT_EQ(fifo, layers + 2 + std::max(2 * (layers - 1) + units, layers * units)) << layers << ", " << units;
      EXPECT_EQ(ideal, std::max(3 * layers, layers * units)) << layers << ", " << units;
      int best = 1 << 20;
      for (const int credit : {0, 1, 2, 3, 64}) best = std::min(best, step_units("priority", layers, units, credit));
      EXPECT_LE(best, fifo) << layers << ", " << units;
      EXPECT_GE(best, std::max(ideal, 3 * layers + units)) << layers << ", " << units;
    }
  }
}

// Of 4 layers and m micro-batches, with copies of 2 units: 7 passes of each micro-batch copy weights by themselves.
// Where passes read them on the host, nothing is waited for; a forward of the last layer then takes 2 units.
TEST(OverlapPicture, CopiesWeightsOnceAPass_AndNoneBeforeThePassesThatReadThemOnTheHost) {
  for (const int m : {1, 2, 3, 4}) {
    const auto units = [&](const char* schedule) {
      return overlap_of({.schedule = schedule, .layers = 4, .units = 2, .micro_batches = m}).step_units;
    };
    EXPECT_GE(units("window"), 7 * 2 * m) << m;
    EXPECT_LE(units("layer_major"), units("window")) << m;
    EXPECT_LE(units("direct_host"), units("layer_major")) << m;
    if (m > 1) {
      EXPECT_EQ(units("direct_host"), 3 * 4 * m + m) << m;
    }
  }
  const Overlap direct = overlap_of({.schedule = "direct_host", .layers = 4, .units = 2, .micro_batches = 2});
  int copies = 0;  // of layer 1, one of them before the step begins
  for (const sim::Span& span : direct.timeline.spans) {
    copies += span.name == "w1" && span.end_us - span.start_us == 2 ? 1 : 0;
    EXPECT_TRUE(span.name != "F0.0" || span.start_us == 0);
    EXPECT_NE(span.name, "w0");
    EXPECT_NE(span.name, "w3");
  }
  EXPECT_EQ(copies, 2);
}

// Of 4 layers and m micro-batches, with copies of u units. In turn: all passes, and a copy of each layer's weights for
// forward and for backward, where it reads them and does not find them in the window. With files each copy of the link
// waits for one of the files, which also write what updates have made: so many units, at least.
TEST(OverlapPicture, TakesTurnsWithoutOverlap_AndReadsFilesBeforeTheLink) {
  constexpr int kLayers = 4;
  for (const int m : {1, 2, 3}) {
    for (const int u : {1, 2, 5}) {
      const auto overlap = [&](const char* schedule) {
        return overlap_of({.schedule = schedule, .layers = kLayers, .units = u, .micro_batches = m});
      };
      const Overlap serial = overlap("serial"), beside = overlap("layer_major"), files = overlap("files");
      int copies = 0;
      for (const sim::Span& span : serial.timeline.spans) {
        copies += span.row == 1 ? 1 : 0;
        for (const sim::Span& other : serial.timeline.spans)
          EXPECT_TRUE(&span == &other || span.end_us <= other.start_us || other.end_us <= span.start_us)
              << span.name << " beside " << other.name;
      }
      EXPECT_EQ(serial.step_units, 3 * kLayers * m + copies * u) << m << ", " << u;
      EXPECT_EQ(copies, 2 * kLayers - 1) << "all but the embedding's backward";
      EXPECT_LT(beside.step_units, serial.step_units) << m << ", " << u;

      std::map<std::string, int> of_files, of_link;
      for (const sim::Span& span : files.timeline.spans) {
        if (span.row > 0) ++(span.row == 2 ? of_files : of_link)[span.name];
      }
      int busy = 0;
      for (const auto& [name, times] : of_files) busy += times * u;
      EXPECT_GE(10 * files.step_units, 9 * busy) << "of the first steps, which fill the lanes";
      for (int layer = 0; layer < kLayers; ++layer) {
        const std::string number = std::to_string(layer);
        EXPECT_EQ(of_files["u" + number], 1) << "updated weights go back";
        EXPECT_GE(of_link["w" + number], layer == 0 ? 1 : 2);
        EXPECT_GE(of_files["w" + number], 1);
      }
      EXPECT_GE(files.step_units, beside.step_units) << m << ", " << u;
    }
  }
}

TEST(OverlapPicture, RefusesWhatItCannotDraw) {
  EXPECT_ERROR(overlap_of({.schedule = "lifo"}), Code::kBadConfig, "there is no schedule \"lifo\"", "fifo, priority");
  EXPECT_ERROR(overlap_of({.schedule = "window", .micro_batches = 0}), Code::kBadConfig, "the number of micro-batches");
  EXPECT_ERROR(overlap_of({.layers = 0}), Code::kBadConfig, "the number of layers must be in [1, 64], got 0");
  EXPECT_ERROR(overlap_of({.credit = 65}), Code::kBadConfig, "the number of credit");
}

}  // namespace
}  // namespace herd::strategies
