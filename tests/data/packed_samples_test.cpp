#include "herd/data/packed_samples.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "herd/data/batch.h"
#include "herd/data/document_file.h"
#include "herd/data/token_file.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_folder.h"

namespace herd {
namespace {

// Writes tokens 0, 1, 2, .. with these ends of documents as both splits.
void write_documents(const std::filesystem::path& folder, const std::vector<int64_t>& ends) {
  std::vector<int> ids(static_cast<size_t>(ends.back()));
  std::iota(ids.begin(), ids.end(), 0);
  for (const char* name : {"train.tokens", "val.tokens"}) {
    TokenFileWriter writer(folder / name, 1000);
    writer.append(ids);
    const uint32_t checksum = writer.checksum();
    writer.commit();
    write_document_file(documents_path(folder / name), ends, checksum);
  }
  write_text(folder / "meta.json", R"({"format": "herd-token-folder", "version": 1})");
}

const std::vector<int64_t> kEnds = {4, 7, 16, 18, 19, 25, 60};

struct Row {
  std::vector<int64_t> inputs, targets, begins;
};

Row row_of(const SampleSource& source, int64_t sample) {
  const auto T = static_cast<size_t>(source.context());
  Row out{std::vector<int64_t>(T), std::vector<int64_t>(T), {}};
  SampleRow row{out.inputs, out.targets};
  source.read_row(sample, row);
  out.begins = row.document_begins;
  return out;
}

TEST(PackedSamples, AnEpochHasEachDocumentOnce_WithTargetsOfItsOwn) {
  TemporaryFolder folder;
  write_documents(folder.path(), kEnds);
  const auto source = open_documents(folder.path(), Split::kTrain, 10, 3);
  EXPECT_EQ(source->samples_per_epoch(), 6);
  EXPECT_EQ(source->vocabulary(), 1000);
  const std::set<int64_t> begins_of_parts = {0, 4, 7, 16, 19, 25, 35, 45, 55};  // the last document is cut
  std::multiset<int64_t> begins, targets;
  for (int64_t sample = 6; sample < 12; ++sample) {
    const Row row = row_of(*source, sample);
    ASSERT_EQ(row.begins.front(), 0);
    int64_t counted = 0;
    for (size_t t = 0; t < row.inputs.size(); ++t) {
      if (row.targets[t] == kIgnoredTarget) {
        EXPECT_EQ(row.inputs[t], 0);
        continue;
      }
      ++counted;
      targets.insert(row.targets[t]);
      EXPECT_EQ(row.targets[t], row.inputs[t] + 1);
      const bool begins_here = std::count(row.begins.begin(), row.begins.end(), static_cast<int64_t>(t)) > 0;
      EXPECT_EQ(begins_here, begins_of_parts.contains(row.inputs[t])) << row.inputs[t];
      if (begins_here) begins.insert(row.inputs[t]);
    }
    EXPECT_EQ(source->targets_of(sample), counted);
  }
  EXPECT_EQ(begins, std::multiset<int64_t>(begins_of_parts.begin(), begins_of_parts.end()));
  EXPECT_EQ(targets.size(), std::set<int64_t>(targets.begin(), targets.end()).size());
  EXPECT_EQ(targets.size(), 60u - kEnds.size());
  EXPECT_EQ(source->summary(),
            "7 documents packed into 6 sequences of 10 tokens, of which 88.3 % are no padding; 1 documents are longer "
            "and were cut");
}

TEST(PackedSamples, AreTheSameForAnyRanksAndMicroBatches) {
  const auto source = random_documents(50, 9, 1);
  constexpr int64_t kBatch = 7;
  MicroBatch whole, batch;
  read_micro_batch(*source, samples_of_rank(14, kBatch, 0, 1), kBatch, 0, whole);
  int64_t expected = 0;
  for (int64_t sample = 14; sample < 21; ++sample) expected += source->targets_of(sample);
  EXPECT_EQ(whole.counted_targets(), expected);
  for (const int ranks : {1, 2, 3, 8}) {
    for (const int64_t micro_batch : {1, 2, 8}) {
      std::vector<int64_t> inputs, targets, begins;
      for (Rank rank = 0; rank < ranks; ++rank) {
        for (int64_t m = 0; m < num_micro_batches(kBatch, micro_batch, ranks); ++m) {
          read_micro_batch(*source, samples_of_rank(14, kBatch, rank, ranks), micro_batch, m, batch);
          const auto rows = std::count(batch.weights_B.begin(), batch.weights_B.end(), 1.0f);
          const auto first = static_cast<int64_t>(inputs.size());
          for (const int64_t begin : batch.document_begins) {
            if (begin < rows * 9) begins.push_back(first + begin);
          }
          for (int64_t row = rows; row < micro_batch; ++row)
            EXPECT_EQ(std::count(batch.document_begins.begin(), batch.document_begins.end(), row * 9), 1);
          inputs.insert(inputs.end(), batch.inputs_BT.begin(), batch.inputs_BT.begin() + rows * 9);
          targets.insert(targets.end(), batch.targets_BT.begin(), batch.targets_BT.begin() + rows * 9);
        }
      }
      EXPECT_EQ(inputs, whole.inputs_BT);
      EXPECT_EQ(targets, whole.targets_BT);
      EXPECT_EQ(begins, whole.document_begins);
    }
  }
}

TEST(PackedSamples, MadeUpDocumentsDependOnSeedAndSample_AndHaveOneOrMore) {
  const auto source = random_documents(50, 16, 1), other = random_documents(50, 16, 2);
  std::set<std::vector<int64_t>> begins, others;
  size_t most = 0;
  for (int64_t sample = 0; sample < 40; ++sample) {
    const Row row = row_of(*source, sample);
    EXPECT_EQ(row.begins, row_of(*source, sample).begins);
    EXPECT_TRUE(std::is_sorted(row.begins.begin(), row.begins.end()));
    begins.insert(row.begins);
    others.insert(row_of(*other, sample).begins);
    most = std::max(most, row.begins.size());
  }
  EXPECT_GT(begins.size(), 10u);
  EXPECT_NE(begins, others);
  EXPECT_GE(most, 3u);
}

TEST(PackedSamples, TellWhatIsMissing) {
  TemporaryFolder folder;
  EXPECT_ERROR(open_documents(folder / "no", Split::kTrain, 10, 1), Code::kBadConfig, "data.path", "train.tokens");
  write_documents(folder.path(), {1, 2, 3});
  EXPECT_ERROR(open_documents(folder.path(), Split::kTrain, 10, 1), Code::kBadConfig, "no document of two ids", "fix:");
  std::filesystem::remove(folder / "train.documents");
  EXPECT_ERROR(open_documents(folder.path(), Split::kTrain, 10, 1), Code::kBadConfig, "train.documents",
               "herd tokenize", "data.packing");
}

}  // namespace
}  // namespace herd
