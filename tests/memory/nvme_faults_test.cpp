// Files on NVMe whose drive fails one request, by io_uring and without: the error names the place, nothing is left in
// flight, and what is moved by halves is moved whole. The program is linked with tests/support/faulty_files.cpp.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>

#include "herd/base/error.h"
#include "herd/memory/nvme_file.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_folder.h"

namespace herd {
namespace {

using testing::HasSubstr;

constexpr int kBlocks = 24;
constexpr int64_t kFileBytes = kBlocks * kNvmeBlock;

std::string notes_of(const NvmeFile& file) {
  return std::accumulate(file.notes().begin(), file.notes().end(), std::string());
}

// States the faults of this process, and counts requests anew.
void set_faults(const std::string& faults) { setenv("HERD_FAULTY_FILES", faults.c_str(), 1); }

// As on a host whose processes may lock few pages.
class FewLockedPages {
 public:
  FewLockedPages() {
    getrlimit(RLIMIT_MEMLOCK, &before_);
    const rlimit few = {.rlim_cur = 64 << 10, .rlim_max = before_.rlim_max};
    setrlimit(RLIMIT_MEMLOCK, &few);
  }
  ~FewLockedPages() { setrlimit(RLIMIT_MEMLOCK, &before_); }

 private:
  rlimit before_ = {};
};

enum class Way { kCalls, kRing, kRegisteredMemory };

class NvmeFaults : public testing::TestWithParam<Way> {
 protected:
  ~NvmeFaults() override { unsetenv("HERD_FAULTY_FILES"); }
  NvmeFile::Options options(int64_t chunk) const {
    return {.paths = {folder_ / "rank0"},
            .bytes = kFileBytes,
            .run = "one",
            .contents = "",
            .requests = {3, chunk},
            .memory = memory_for_ring(),
            .try_ring = GetParam() != Way::kCalls};
  }
  std::span<std::byte> memory(int which) {
    return {memory_.get() + which * kFileBytes, static_cast<size_t>(kFileBytes)};
  }
  void fill(int which, int seed) {
    for (size_t i = 0; i < memory(which).size(); ++i)
      memory(which)[i] = static_cast<std::byte>(i * 7 + i / 4096 + seed);
  }
  std::vector<std::span<std::byte>> memory_for_ring() const {
    if (GetParam() != Way::kRegisteredMemory) return {};
    return {{memory_.get(), static_cast<size_t>(kFileBytes)},
            {memory_.get() + kFileBytes, static_cast<size_t>(kFileBytes)}};
  }
  bool is_same() { return std::memcmp(memory(0).data(), memory(1).data(), static_cast<size_t>(kFileBytes)) == 0; }

 private:
  const TemporaryFolder folder_;
  struct Free {
    void operator()(std::byte* at) const { std::free(at); }
  };
  const std::unique_ptr<std::byte, Free> memory_{
      static_cast<std::byte*>(std::aligned_alloc(kNvmeBlock, 2 * kFileBytes))};
};

TEST_P(NvmeFaults, NamesTheRequestThatFails_WhicheverItIs) {
  const FewLockedPages few;
  NvmeFile file(options(kNvmeBlock));
  for (int number = 1; number <= kBlocks; ++number) {
    for (const auto& [request, error, words, fix] :
         {std::tuple("read", "EIO", "Input/output error", "fix: check that drive"),
          {"write", "EIO", "Input/output error", "fix: check that drive"},
          {"write", "ENOSPC", "No space left on device", "fix: free room on that drive"},
          {"read", "ENOMEM", "Cannot allocate memory, where a process may lock 64 KiB", "ulimit -l unlimited"},
          {"write", "ENOMEM", "Cannot allocate memory, where a process may lock 64 KiB", "ulimit -l unlimited"}}) {
      SCOPED_TRACE(std::string(request) + " " + std::to_string(number) + " " + error);
      fill(0, number);
      set_faults(std::string(request) + " " + std::to_string(number) + " " + error + " rank0");
      const std::string place = "can't " + std::string(request) + " 4 KiB at byte " +
                                std::to_string(number * kNvmeBlock) + " of " + file.paths()[0].string();
      const auto move_all = [&, reads = request == std::string("read")] {
        reads ? file.read(0, memory(1)) : file.write(0, memory(0));
      };
      EXPECT_ERROR(move_all(), Code::kStorage, place, words, fix, "goes on from its last checkpoint");
      file.write(0, memory(0));  // one request has failed, and no more
      file.read(0, memory(1));
      EXPECT_TRUE(is_same());
    }
  }
}

TEST_P(NvmeFaults, AsksAgainForWhatWasMovedByHalves_OrWasRefusedInPassing) {
  NvmeFile file(options(4 * kNvmeBlock));
  for (int number = 1; number <= kBlocks / 4; ++number) {
    for (const char* request : {"read", "write"}) {
      for (const char* answer : {"short", "EAGAIN"}) {
        fill(0, number);
        set_faults(std::string(request) + " " + std::to_string(number) + " " + answer + " rank0");
        file.write(0, memory(0));
        file.read(0, memory(1));
        EXPECT_TRUE(is_same()) << request << " " << number << " " << answer;
      }
    }
  }
}

// Nothing is in flight after the kernel has refused a submission, and requests go on without the ring.
TEST_P(NvmeFaults, GoesOnByCalls_WhereTheKernelRefusesASubmission) {
  for (int number = 1; number <= 4; ++number) {
    NvmeFile file(options(kNvmeBlock));
    if (notes_of(file).find("no io_uring") != std::string::npos) return;
    fill(0, number);
    file.write(0, memory(0));
    set_faults("submit " + std::to_string(number) + " EBUSY /");
    EXPECT_ERROR(file.read(0, memory(1)), Code::kStorage, "can't read 96 KiB at byte 4096 of ", "busy", "fix: ");
    std::memset(memory(1).data(), 0, memory(1).size());
    file.read(0, memory(1));
    EXPECT_TRUE(is_same()) << number;
  }
}

// A file system may refuse the flag, or take it and refuse the request; and the kernel may refuse io_uring.
TEST_P(NvmeFaults, GoesOnWithoutWhatTheKernelRefuses_AndSaysSo) {
  const FewLockedPages few;
  for (const std::string fault :
       {"open 1 EINVAL rank0", "write 1 EINVAL rank0", "ring 1 ENOSYS /", "ring 1 ENOMEM /"}) {
    set_faults(fault);
    NvmeFile file(options(kNvmeBlock));
    const std::string notes = notes_of(file);
    if (!fault.starts_with("ring")) {
      EXPECT_THAT(notes, HasSubstr("no O_DIRECT in " + file.paths()[0].parent_path().string())) << fault;
    } else if (GetParam() != Way::kCalls) {
      EXPECT_THAT(notes, HasSubstr(fault == "ring 1 ENOSYS /"
                                       ? "no io_uring here (Function not implemented)"
                                       : "no io_uring here (Cannot allocate memory, where a process may lock 64 KiB)"));
      EXPECT_EQ(notes.find("fix: ulimit -l unlimited") != std::string::npos, fault == "ring 1 ENOMEM /");
    }
    fill(0, 1);
    file.write(0, memory(0));
    file.read(0, memory(1));
    EXPECT_TRUE(is_same()) << fault;
  }
}

// Of two files each is named with its own byte, and what one refuses leaves the other alone.
TEST_P(NvmeFaults, NamesTheFileOfTheStripeThatFails) {
  const TemporaryFolder folder;
  NvmeFile::Options striped = options(2 * kNvmeBlock);
  striped.paths = {folder / "first" / "rank0", folder / "second" / "rank0"};
  NvmeFile file(striped);
  for (const std::string which : {"first", "second"}) {
    for (int number = 1; number <= kBlocks / 4; ++number) {
      fill(0, number);
      file.write(0, memory(0));
      set_faults("read " + std::to_string(number) + " EIO " + which + "/rank0");
      EXPECT_ERROR(file.read(0, memory(1)), Code::kStorage,
                   "can't read 8 KiB at byte " + std::to_string((2 * number - 1) * kNvmeBlock) + " of " +
                       (folder / which / "rank0").string() + ": Input/output error",
                   "fix: check that drive");
      file.read(0, memory(1));
      EXPECT_TRUE(is_same());
    }
  }
}

// Memory that may not be locked is used all the same.
TEST_P(NvmeFaults, GoesOnWithMemoryThatTheKernelDoesNotHold_AndSaysSo) {
  if (GetParam() != Way::kRegisteredMemory) {
    EXPECT_FALSE(NvmeFile(options(kNvmeBlock)).uses_registered_memory());
    return;
  }
  const FewLockedPages few;
  EXPECT_TRUE(NvmeFile(options(kNvmeBlock)).uses_registered_memory());
  for (const std::string fault : {"register 1 ENOMEM /", "register 1 ENOSYS /"}) {
    set_faults(fault);
    NvmeFile file(options(kNvmeBlock));
    EXPECT_FALSE(file.uses_registered_memory());
    EXPECT_THAT(notes_of(file),
                HasSubstr(fault == "register 1 ENOMEM /"
                              ? "can't register 192 KiB of memory with io_uring (Cannot allocate memory, where a "
                                "process may lock 64 KiB): each request looks its pages up; fix: ulimit -l unlimited"
                              : "can't register 192 KiB of memory with io_uring (Function not implemented): each"));
    fill(0, 1);
    file.write(0, memory(0));
    file.set_requests({5, 2 * kNvmeBlock});
    file.read(0, memory(1));
    EXPECT_TRUE(is_same()) << fault;
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, NvmeFaults, testing::Values(Way::kCalls, Way::kRing, Way::kRegisteredMemory),
                         [](const auto& way) {
                           return way.param == Way::kCalls  ? "ByCalls"
                                  : way.param == Way::kRing ? "ByIoUring"
                                                            : "FromRegisteredMemory";
                         });

}  // namespace
}  // namespace herd
