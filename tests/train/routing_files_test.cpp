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
    RoutingRecorder recorder(path, rank, 3);
    recorder.open(0);
    for (int64_t step = 0; step < 2; ++step) {
      recorder.routing().add(step, 1, nn::token_rows(2, {rank}, {.tokens = 2}), choices_of(rank));
      recorder.write();
      EXPECT_TRUE(recorder.routing().samples().empty());
    }
  }
  const nn::RecordedRouting three = read_routing(path);
  EXPECT_EQ(three.samples().size(), 6U);
  EXPECT_TRUE(three.choices(1, 1, nn::token_rows(2, {2}, {.tokens = 2}), 1, 4).equal(choices_of(2)));
  std::ofstream(path / "rank0.jsonl", std::ios::app) << R"({"step":2,"layer":1,"sam)";  // a rank is killed as it writes
  EXPECT_EQ(read_routing(path).samples().size(), 6U);
  {  // one rank goes on behind step 1, and does step 2 again
    RoutingRecorder recorder(path, 0, 1);
    recorder.open(1);
    EXPECT_EQ(read_routing(path).samples().size(), 3U);
    for (const int64_t sample : {0, 1, 2})
      recorder.routing().add(1, 1, nn::token_rows(2, {sample}, {.tokens = 2}), choices_of(2 - sample));
    recorder.write();
  }
  const nn::RecordedRouting on = read_routing(path);
  EXPECT_EQ(on.samples().size(), 6U);
  for (const int64_t sample : {0, 1, 2})
    EXPECT_TRUE(on.choices(1, 1, nn::token_rows(2, {sample}, {.tokens = 2}), 1, 4).equal(choices_of(2 - sample)));
  RoutingRecorder(path, 0, 1).open(0);  // of fewer ranks, from the beginning
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
  expect_corrupt(header + R"({"step":1,"layer":0,"sample":0,"top_k":2,"experts":[0,1,2]})"
                          "\n",
                 "top_k whole numbers");
  expect_corrupt(header + R"({"step":1,"layer":0,"sample":0,"top_k":1,"experts":[-2]})"
                          "\n",
                 "-1 where");
  expect_corrupt(header + R"({"step":0,"layer":0,"sample":0,"top_k":1,"experts":[0]})"
                          "\n",
                 "\"step\", from 1 on");
  expect_corrupt(header + R"({"step":1,"sample":0,"top_k":1,"experts":[0]})"
                          "\n",
                 "\"layer\"");
}

}  // namespace
}  // namespace herd::train
