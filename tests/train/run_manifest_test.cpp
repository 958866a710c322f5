#include "herd/train/run_manifest.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace herd::train {
namespace {

TEST(RunManifest, HoldsWhatAReaderNeedsToRepeatTheRun) {
  RunManifest manifest;
  manifest.run = "0123456789abcdef";
  manifest.herd_version = "0.1.0";
  manifest.torch_version = "2.13";
  manifest.ranks = 2;
  manifest.algorithms = {{"all_reduce", "direct_pull"}};
  manifest.config = "[train]\nsteps = 3\n";
  manifest.machine = describe_machine();
  const auto json = nlohmann::json::parse(format_run_manifest(manifest));
  EXPECT_EQ(json["format"], "herd-run");
  EXPECT_EQ(json["version"], 1);
  EXPECT_EQ(json["run"], manifest.run);
  EXPECT_EQ(json["ranks"], 2);
  EXPECT_EQ(json["algorithms"]["all_reduce"], "direct_pull");
  EXPECT_EQ(json["config"], manifest.config);
  for (const char* name : {"host", "kernel", "cores", "memory", "start"}) {
    EXPECT_FALSE(json["machine"][name].get<std::string>().empty()) << name;
  }
}

}  // namespace
}  // namespace herd::train
