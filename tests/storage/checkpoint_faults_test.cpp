// Checkpoints whose drive fails a read, or reads less than was asked for, and files that are cut while they are read:
// the error names file, byte and fix, and no process dies. The program is linked with tests/support/faulty_files.cpp.
#include <gtest/gtest.h>

#include <cstdlib>

#include "checkpoint_fixture.h"
#include "herd/base/error.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_folder.h"

namespace herd {
namespace {

class CheckpointFaults : public testing::Test {
 protected:
  ~CheckpointFaults() override { unsetenv("HERD_FAULTY_FILES"); }
  static void set_fault(const std::string& fault) { setenv("HERD_FAULTY_FILES", fault.c_str(), 1); }

  const TemporaryFolder root_;
  const std::filesystem::path folder_ = save_numbers(root_.path(), 3);
};

TEST_F(CheckpointFaults, AreErrorsThatNameFileAndByte_AtEachRead) {
  for (const std::string file : {"manifest.json", "shard-00000.safetensors", "shard-00001.safetensors"}) {
    int failed = 0;
    for (bool fails = true; fails && failed < 100; failed += fails) {
      set_fault("read " + std::to_string(failed + 1) + " EIO " + file);
      try {
        EXPECT_EQ(load_numbers(folder_), numbers(3));
        fails = false;
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Code::kStorage);
        const std::string& text = error.message();
        for (const std::string& words :
             std::vector<std::string>{"at byte ", (folder_ / file).string(), "Input/output error", "fix: "})
          EXPECT_NE(text.find(words), text.npos) << words << " is not in " << text;
      }
    }
    EXPECT_GE(failed, file == "manifest.json" ? 1 : 3) << file;  // of a shard: its length, its header, its bytes
    EXPECT_LT(failed, 100);
  }
}

TEST_F(CheckpointFaults, MatterNot_WhereAReadIsShort) {
  for (int read = 1; read < 8; ++read) {
    set_fault("read " + std::to_string(read) + " short " + folder_.string());
    EXPECT_EQ(load_numbers(folder_), numbers(3));
  }
}

TEST_F(CheckpointFaults, AreErrors_WhereAShardIsCutWhileItIsRead) {
  const std::filesystem::path shard = folder_ / "shard-00000.safetensors";
  CheckpointReader reader(folder_);
  std::vector<float> values(24);
  const auto bytes = std::as_writable_bytes(std::span(values));
  reader.read("w", whole_slice({4, 6}), bytes);
  std::filesystem::resize_file(shard, std::filesystem::file_size(shard) - 10);
  EXPECT_ERROR(reader.read("w", whole_slice({4, 6}), bytes), Code::kCorruptFile, shard.string() + " at byte ",
               "it was cut while it was read", "fix: ");
}

}  // namespace
}  // namespace herd
