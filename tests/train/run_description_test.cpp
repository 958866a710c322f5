#include "herd/train/run_description.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace herd::train {
namespace {

TEST(RunDescription, HoldsWhatAReaderNeedsToRepeatTheRun) {
  RunDescription run;
  run.run_id = "0123456789abcdef";
  run.herd_version = "0.1.0";
  run.torch_version = "2.13";
  run.ranks = 2;
  run.algorithms = {{"all_reduce", "direct_pull"}};
  run.config = "[train]\nsteps = 3\n";
  run.machine = describe_machine();
  const auto json = nlohmann::json::parse(format_run_description(run));
  EXPECT_EQ(json["format"], "herd-run");
  EXPECT_EQ(json["version"], 1);
  EXPECT_EQ(json["run"], run.run_id);
  EXPECT_EQ(json["ranks"], 2);
  EXPECT_EQ(json["algorithms"]["all_reduce"], "direct_pull");
  EXPECT_EQ(json["config"], run.config);
  for (const char* name : {"host", "kernel", "cores", "memory", "start"}) {
    EXPECT_FALSE(json["machine"][name].get<std::string>().empty()) << name;
  }
}

}  // namespace
}  // namespace herd::train
