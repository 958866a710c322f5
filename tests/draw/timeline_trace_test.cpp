#include "herd/draw/timeline_picture.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "tests/draw/drawn_sample.h"

namespace herd::draw {
namespace {

TEST(TimelineTrace, IsTraceEventJsonWithAProcessPerGroup) {
  const auto trace = nlohmann::json::parse(timeline_trace(two_rows()));
  int processes = 0, spans = 0;
  for (const auto& event : trace["traceEvents"]) {
    processes += event["name"] == "process_name";
    if (event["ph"] != "X") continue;
    ++spans;
    if (event["name"] == "send x0") {
      EXPECT_EQ(event["ts"], 10.0);
      EXPECT_EQ(event["dur"], 5.0);
      EXPECT_EQ(event["pid"], 2);
    }
  }
  EXPECT_EQ(processes, 2);
  EXPECT_EQ(spans, 2);
}

}  // namespace
}  // namespace herd::draw
