// Files on NVMe: what is written is read, by io_uring and without, past the page cache and through it; and what goes
// wrong is named.
#include "herd/memory/nvme_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "herd/base/error.h"
#include "tests/support/temporary_folder.h"

namespace herd {
namespace {

using testing::HasSubstr;

struct Memory {
  explicit Memory(int64_t bytes)
      : data(static_cast<std::byte*>(std::aligned_alloc(kNvmeBlock, static_cast<size_t>(bytes)))),
        size(static_cast<size_t>(bytes)) {
    std::memset(data, 0, size);
  }
  ~Memory() { std::free(data); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  void fill(int seed) {
    for (size_t i = 0; i < size; ++i) data[i] = static_cast<std::byte>((i * 7 + i / 4096 + static_cast<size_t>(seed)));
  }
  bool operator==(const Memory& other) const { return size == other.size && std::memcmp(data, other.data, size) == 0; }
  std::span<std::byte> span() { return {data, size}; }
  std::byte* const data;
  const size_t size;
};

template <class F>
std::string message_of(const F& action, Code code) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code);
    return error.message();
  }
  return "nothing was thrown";
}

TEST(NvmeFile, ReadsWhatWasWritten_ByEveryWayTheKernelMayAllow) {
  const TemporaryFolder folder;
  for (const bool ring : {true, false}) {
    for (const bool direct : {true, false}) {
      for (const int64_t blocks : {1, 2, 7, 64}) {
        const int64_t bytes = blocks * kNvmeBlock;
        NvmeFile file({.paths = {folder / "a" / "rank0"},
                       .bytes = 3 * bytes,
                       .run = "one",
                       .contents = "",
                       .requests = {3, 2 * kNvmeBlock},
                       .try_direct = direct,
                       .try_ring = ring});
        EXPECT_GE(file.notes().size(), (ring ? 0u : 1u) + (direct ? 0u : 1u));
        Memory first(bytes), second(bytes), read(bytes);
        first.fill(1), second.fill(2);
        file.write(2 * bytes, second.span());
        file.write(0, first.span());
        file.read(0, read.span());
        EXPECT_TRUE(read == first);
        file.read(2 * bytes, read.span());
        EXPECT_TRUE(read == second);
        file.read(bytes, read.span());
        EXPECT_TRUE(read == Memory(bytes)) << "zero before it is written";
      }
    }
  }
}

// Ranges of several places go in one call, however drives are asked, from memory that the kernel holds and from other.
TEST(NvmeFile, ReadsAndWritesRangesTogether_HoweverDrivesAreAsked) {
  for (const bool ring : {true, false}) {
    for (const bool registered : {true, false}) {
      for (const int files : {1, 2}) {
        const TemporaryFolder folder;
        Memory from(24 * kNvmeBlock), to(24 * kNvmeBlock), other(5 * kNvmeBlock);
        NvmeFile::Options options{.paths = {}, .bytes = 64 * kNvmeBlock, .run = "one", .contents = ""};
        for (int i = 0; i < files; ++i) options.paths.push_back(folder / std::to_string(i) / "rank0");
        options.requests = {2, 2 * kNvmeBlock}, options.try_ring = ring;
        if (registered) options.memory = {from.span().first(3 * kNvmeBlock), from.span().subspan(3 * kNvmeBlock), {}};
        NvmeFile file(options);
        EXPECT_EQ(file.uses_registered_memory(), ring && registered);
        const int64_t stripe = file.stripe();
        int seed = 1;
        for (const NvmeRequests requests : {NvmeRequests{1, kNvmeBlock}, {7, 3 * kNvmeBlock}, {2, 64 * kNvmeBlock}}) {
          file.set_requests(requests);
          from.fill(++seed);
          const auto range = [](Memory& memory, int64_t begin, int64_t blocks) {
            return memory.span().subspan(static_cast<size_t>(begin * kNvmeBlock),
                                         static_cast<size_t>(blocks * kNvmeBlock));
          };
          const auto extents = [&](Memory& memory) {
            return std::vector<NvmeFile::Extent>{{40 * kNvmeBlock, range(memory, 0, 7)},
                                                 {3 * kNvmeBlock, {}},
                                                 {3 * kNvmeBlock, range(memory, 7, 16)},
                                                 {63 * kNvmeBlock, range(memory, 23, 1)}};
          };
          const int64_t moved = file.bytes_written();
          file.write(extents(from));
          EXPECT_EQ(file.bytes_written() - moved, 24 * kNvmeBlock);
          file.read(extents(to));
          EXPECT_TRUE(from == to) << requests.depth;
          file.read(41 * kNvmeBlock, other.span());
          EXPECT_EQ(std::memcmp(other.data, from.data + kNvmeBlock, other.size), 0);
          EXPECT_EQ(file.stripe(), stripe);
        }
      }
    }
  }
}

// Stripe k of the data is stripe k / n of file k % n; the last one is shorter.
TEST(NvmeFile, IsStripedOverSeveralFiles_WithAnUnevenLastStripe) {
  for (const bool ring : {true, false}) {
    for (const int files : {2, 3}) {
      for (const int64_t blocks : {1, 2, 5, 15, 64}) {
        const TemporaryFolder folder;
        NvmeFile::Options options{.paths = {}, .bytes = blocks * kNvmeBlock, .run = "one", .contents = ""};
        options.requests = {2, 2 * kNvmeBlock}, options.try_ring = ring;
        for (int i = 0; i < files; ++i) options.paths.push_back(folder / std::to_string(i) / "rank0");
        NvmeFile file(options);
        ASSERT_EQ(file.stripe(), options.requests.chunk);
        Memory written(blocks * kNvmeBlock), read(blocks * kNvmeBlock);
        written.fill(static_cast<int>(blocks));
        file.write(0, written.span());
        file.read(0, read.span());
        EXPECT_TRUE(read == written);
        for (int64_t block = 0; block < blocks; ++block) {  // each by itself, and where it lies
          const auto one = read.span().subspan(static_cast<size_t>(block * kNvmeBlock), kNvmeBlock);
          std::ranges::fill(one, std::byte{0});
          file.read(block * kNvmeBlock, one);
          const int64_t stripe = block / 2, at = kNvmeBlock * (1 + stripe / files * 2 + block % 2);
          const std::string text = read_text(options.paths[static_cast<size_t>(stripe % files)]);
          ASSERT_GE(static_cast<int64_t>(text.size()), at + kNvmeBlock);
          EXPECT_EQ(std::memcmp(text.data() + at, written.data + block * kNvmeBlock, kNvmeBlock), 0) << block;
        }
        EXPECT_TRUE(read == written);
        EXPECT_EQ(std::memcmp(file.map().data(), written.data, written.size), 0);
        file.map()[written.size - 1] = std::byte{99};
        file.forget_mapped();
        file.read(0, read.span());
        EXPECT_EQ(read.data[read.size - 1], std::byte{99});
        size_t bytes = 0;
        for (const auto& path : options.paths) bytes += std::filesystem::file_size(path) - kNvmeBlock;
        EXPECT_EQ(bytes, written.size);
      }
    }
  }
}

TEST(NvmeFile, NamesTheFolderOfSeveralThatIsFullOrNone_AndLeavesNothingInTheOthers) {
  const TemporaryFolder folder;
  std::ofstream(folder / "text") << "a file where a folder should be";
  NvmeFile::Options options{
      .paths = {folder / "good" / "rank0", folder / "text" / "rank0"}, .bytes = 4 << 20, .run = "one", .contents = ""};
  EXPECT_THAT(message_of([&] { NvmeFile{options}; }, Code::kStorage), HasSubstr((folder / "text" / "rank0").string()));
  EXPECT_FALSE(std::filesystem::exists(folder / "good" / "rank0"));
  options.paths[1] = folder / "other" / "rank0", options.bytes = int64_t{1} << 50;
  EXPECT_THAT(message_of([&] { NvmeFile{options}; }, Code::kStorage),
              testing::AllOf(HasSubstr("no room for 512 TiB"), HasSubstr((folder / "good" / "rank0").string())));
}

TEST(NvmeFile, IsTheSameInMappedMemory_InTurnWithReadsAndWrites) {
  const TemporaryFolder folder;
  constexpr int64_t kBytes = 8 * kNvmeBlock;
  NvmeFile file({.paths = {folder / "rank0"}, .bytes = kBytes, .run = "one", .contents = ""});
  Memory written(kBytes), read(kBytes);
  for (int turn = 0; turn < 5; ++turn) {
    written.fill(turn);
    file.write(0, written.span());
    EXPECT_EQ(std::memcmp(file.map().data(), written.data, kBytes), 0) << turn;
    file.map()[5] = std::byte{99};
    file.forget_mapped();
    file.read(0, read.span());
    EXPECT_EQ(read.data[5], std::byte{99});
    read.data[5] = written.data[5];
    EXPECT_TRUE(read == written);
  }
}

TEST(NvmeFile, LeavesNothing_AndIsTakenOverByItsOwnRunAlone) {
  const TemporaryFolder folder;
  const auto options = [&](const std::string& run) {
    return NvmeFile::Options{
        .paths = {folder / "rank0"}, .bytes = kNvmeBlock, .run = run, .contents = "w0.nvme 4096\n"};
  };
  {
    const NvmeFile file(options("one"));
    EXPECT_THAT(read_text(folder / "rank0"), HasSubstr("herd nvme 1\none\nw0.nvme 4096\n"));
    EXPECT_THAT(message_of([&] { NvmeFile(options("one")); }, Code::kBadConfig), HasSubstr("is in use by another"));
    std::filesystem::copy_file(folder / "rank0", folder / "left");  // as a killed process leaves it
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "rank0"));
  std::filesystem::rename(folder / "left", folder / "rank0");
  const std::string refused = message_of([&] { NvmeFile(options("two")); }, Code::kBadConfig);
  EXPECT_THAT(refused, HasSubstr("belongs to run one, this is run two\n  fix: memory.nvme_path = another folder"));
  EXPECT_TRUE(std::filesystem::exists(folder / "rank0"));
  NvmeFile(options("one"));
  std::ofstream(folder / "rank0") << "somebody's text";
  EXPECT_THAT(message_of([&] { NvmeFile(options("one")); }, Code::kBadConfig), HasSubstr("no file that herd keeps"));
  EXPECT_EQ(read_text(folder / "rank0"), "somebody's text");
}

// A killed process holds its file a little longer than it lives; one that ends removes it.
TEST(NvmeFile, WaitsForAnOwnerThatIsJustEnding) {
  for (const bool removes : {false, true}) {
    const TemporaryFolder folder;
    const std::filesystem::path path = folder / "rank0";
    const int fd = ::open(path.c_str(), O_RDWR | O_CREAT, 0600);
    ASSERT_EQ(::flock(fd, LOCK_EX | LOCK_NB), 0);
    std::jthread owner([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      if (removes) ::unlink(path.c_str());
      ::close(fd);
    });
    const NvmeFile file({.paths = {path}, .bytes = kNvmeBlock, .run = "one", .contents = ""});
    EXPECT_THAT(read_text(path), HasSubstr("herd nvme 1\none\n")) << "the file that has this name";
  }
}

TEST(NvmeFile, NamesAFileThatIsTooShort_AndWhatTheSystemRefuses) {
  const TemporaryFolder folder;
  constexpr int64_t kBytes = 16 * kNvmeBlock;
  for (const bool ring : {true, false}) {
    NvmeFile file({.paths = {folder / "rank0"},
                   .bytes = kBytes,
                   .run = "one",
                   .contents = "",
                   .requests = {.chunk = kNvmeBlock},
                   .try_ring = ring});
    Memory memory(kBytes);
    std::filesystem::resize_file(file.paths()[0], 6 * kNvmeBlock);
    const std::string text = message_of([&] { file.read(0, memory.span()); }, Code::kStorage);
    EXPECT_THAT(text, HasSubstr("can't read 4 KiB at byte "));
    EXPECT_THAT(text, HasSubstr("rank0: the file ends before"));
    EXPECT_THAT(text, HasSubstr("fix: check that drive"));
    file.write(0, memory.span());
    file.read(0, memory.span());  // a failed request leaves nothing behind
  }
  EXPECT_THAT(
      message_of(
          [&] { NvmeFile({.paths = {folder / "rank0"}, .bytes = int64_t{1} << 50, .run = "one", .contents = ""}); },
          Code::kStorage),
      HasSubstr("no room for "));
  std::ofstream(folder / "text") << "a file where a folder should be";
  EXPECT_THAT(
      message_of(
          [&] { NvmeFile({.paths = {folder / "text" / "rank0"}, .bytes = kNvmeBlock, .run = "one", .contents = ""}); },
          Code::kStorage),
      HasSubstr("memory.nvme_path"));
}

// The system's limit of a file's size stands for a drive that refuses.
TEST(NvmeFile, NamesAWriteThatFails) {
  const TemporaryFolder folder;
  constexpr int64_t kBytes = 16 * kNvmeBlock;
  NvmeFile file({.paths = {folder / "rank0"}, .bytes = kBytes, .run = "one", .contents = "", .try_ring = false});
  Memory memory(kBytes);
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  rlimit small = before;
  small.rlim_cur = 4 * kNvmeBlock;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string text = message_of([&] { file.write(0, memory.span()); }, Code::kStorage);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  signal(SIGXFSZ, handler);
  EXPECT_THAT(text, HasSubstr("can't write"));
  EXPECT_THAT(text, HasSubstr("File too large"));
}

}  // namespace
}  // namespace herd
