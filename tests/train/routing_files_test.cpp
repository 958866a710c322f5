#include "herd/train/routing_files.h"

#include <gtest/gtest.h>

#include <ATen/ops/tensor.h>

#include <fstream>

#include "tests/support/expect_error.h"
#include "tests/support/temporary_folder.h"

namespace herd::train {
namespace {

at::Tensor choices_of(int64_t first) { return at::tensor({first, first + 1}, at::kLong).view({2, 1}); }

TEST(RoutingFiles, HoldWhatAllRanksChoose_AndGoOn) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "a/routing";
  for (int rank = 0; rank < 3; ++rank) {
    RoutingRecorder recorder(path, rank, 3, false);
    for (int64_t step = 0; step < 2; ++step) {
      recorder.routing().add(step, 1, nn::token_rows(2, {rank}, {.tokens = 2}), choices_of(rank));
      recorder.write();
      EXPECT_TRUE(recorder.routing().samples().empty());
    }
  }
  const nn::RecordedRouting three = read_routing(path);
  EXPECT_EQ(three.samples().size(), 6U);
  EXPECT_TRUE(three.choices(1, 1, nn::token_rows(2, {2}, {.tokens = 2}), 1, 4).equal(choices_of(2)));
  {  // a run that goes on does its last step again
    RoutingRecorder recorder(path, 0, 3, true);
    recorder.routing().add(1, 1, nn::token_rows(2, {0}, {.tokens = 2}), choices_of(2));
    recorder.write();
  }
  const nn::RecordedRouting on = read_routing(path);
  EXPECT_EQ(on.samples().size(), 6U);
  EXPECT_TRUE(on.choices(1, 1, nn::token_rows(2, {0}, {.tokens = 2}), 1, 4).equal(choices_of(2)));
  RoutingRecorder(path, 0, 1, false).write();  // of fewer ranks, from the beginning
  EXPECT_TRUE(read_routing(path).samples().empty());
}

TEST(RoutingFiles, ThatAreDamagedAreNamedWithTheirLine) {
  const TemporaryFolder folder;
  EXPECT_ERROR(read_routing(folder.path()), Code::kBadConfig, "no routing", "train.record_routing");
  EXPECT_ERROR(read_routing(folder.path() / "none"), Code::kBadConfig, "no routing");
  const std::string header = "{\"format\":\"herd-routing\",\"version\":1}\n";
  const auto expect_corrupt = [&](const std::string& text, const std::string& words) {
    std::ofstream(folder.path() / "rank0.jsonl") << text;
    EXPECT_ERROR(read_routing(folder.path()), Code::kCorruptFile, "rank0.jsonl", words);
  };
  expect_corrupt("", "a routing file starts with");
  expect_corrupt("{}\n", "line 1: a routing file starts with");
  expect_corrupt(header + "[]\n", "line 2: not a JSON object");
  expect_corrupt(header + R"({"step":1,"layer":0,"sample":0,"top_k":2,"experts":[0,1,2]})", "top_k whole numbers");
  expect_corrupt(header + R"({"step":1,"layer":0,"sample":0,"top_k":1,"experts":[-2]})", "-1 where");
  expect_corrupt(header + R"({"step":0,"layer":0,"sample":0,"top_k":1,"experts":[0]})", "\"step\", from 1 on");
  expect_corrupt(header + R"({"step":1,"sample":0,"top_k":1,"experts":[0]})", "\"layer\"");
}

}  // namespace
}  // namespace herd::train
