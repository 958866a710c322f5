// herd doctor as a user runs it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "../launch/child_process.h"
#include "tests/support/herd_command.h"

namespace herd::launch {
namespace {

using testing::HasSubstr;
using testing_support::kHerd;

TEST(HerdDoctor, ReportsTheMachineAsJson) {
  ChildProcess doctor({kHerd, "doctor", "--json", "--no-measure"});
  EXPECT_EQ(doctor.wait(), 0) << doctor.output();
  const auto report = nlohmann::json::parse(doctor.output());
  for (const char* key :
       {"herd", "cores", "SIMD", "topology", "memory", "locked memory", "open files", "GPU", "shared memory",
        "dead peers", "io_uring", "transports", "network", "torch", "launchers", "job"}) {
    ASSERT_TRUE(report.contains(key)) << key;
    EXPECT_FALSE(report[key]["value"].get<std::string>().empty()) << key;
    EXPECT_EQ(report[key]["health"] != "ok", report[key].contains("fix")) << key;
  }
  EXPECT_THAT(report["cores"]["value"].get<std::string>(), HasSubstr(" usable of "));
  EXPECT_FALSE(report.contains("copy bandwidth"));
  const bool has_gpu = report["GPU"]["value"].get<std::string>().find(" x ") != std::string::npos;
  for (const char* key : {"GPU IPC", "NCCL"}) EXPECT_EQ(report.contains(key), has_gpu) << key;
}

TEST(HerdDoctor, MeasuresCopyBandwidth) {
  ChildProcess doctor({kHerd, "doctor"});
  EXPECT_EQ(doctor.wait(60), 0) << doctor.output();
  EXPECT_THAT(doctor.output(), testing::ContainsRegex("ok +copy bandwidth +[0-9]+\\.[0-9] GB/s on one core"));
}

TEST(HerdDoctor, ShowsWhichNetworkInterfaceAJobWouldUse) {
  ChildProcess doctor({kHerd, "doctor", "--no-measure"}, {{"HERD_NETWORK", "cable7"}});
  EXPECT_EQ(doctor.wait(), 0) << doctor.output();
  EXPECT_THAT(doctor.output(), HasSubstr("between hosts: cable7"));
}

TEST(HerdDoctor, NamesALauncherEnvironmentThatIsBroken) {
  ChildProcess doctor({kHerd, "doctor", "--no-measure"}, {{"RANK", "0"}});
  EXPECT_EQ(doctor.wait(), 1);
  EXPECT_THAT(doctor.output(), HasSubstr("RANK=0 is set, but WORLD_SIZE is not"));
  EXPECT_THAT(doctor.output(), HasSubstr("fix: start every rank with"));
}

}  // namespace
}  // namespace herd::launch
