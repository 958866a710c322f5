// A mapped file whose page can't be read ends the process, which names the file and the byte before.
#include "herd/base/mapped_range.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>

#include <filesystem>

#include "herd/base/descriptor.h"
#include "tests/support/temporary_folder.h"

namespace herd {
namespace {

constexpr size_t kPage = 4096;

TEST(MappedRange, NamesTheFileThatWasCut_WhenItsPageIsRead) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder / "text.txt";
  write_text(path, std::string(3 * kPage, 'x'));
  const auto map_and_cut = [&] {
    const Descriptor file(::open(path.c_str(), O_RDONLY));
    void* const memory = ::mmap(nullptr, 3 * kPage, PROT_READ, MAP_PRIVATE, file.fd, 0);
    const std::span bytes(static_cast<const std::byte*>(memory), 3 * kPage);
    const MappedRange other(bytes.first(1), "another"), named(bytes.subspan(kPage), path, kPage);
    { const MappedRange over(bytes, "what is no longer mapped"); }
    std::filesystem::resize_file(path, kPage);
    [[maybe_unused]] const auto read = static_cast<int>(*static_cast<const volatile std::byte*>(&bytes[2 * kPage + 5]));
  };
  EXPECT_DEATH(map_and_cut(), "kStorage: can't read byte 8197 of .*text.txt, which is mapped: .*\n  fix: ");
}

}  // namespace
}  // namespace herd
