#include "herd/memory/populate.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <vector>

#include "herd/memory/shared_memory.h"

namespace herd {
namespace {

constexpr int64_t kMiB = 1 << 20;

// Memory of the process that nothing has touched.
class NewMemory {
 public:
  explicit NewMemory(int64_t bytes) : bytes_(static_cast<size_t>(bytes)) {
    void* mapped = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(mapped, MAP_FAILED);
    data_ = static_cast<std::byte*>(mapped);
  }
  ~NewMemory() { munmap(data_, bytes_); }
  NewMemory(const NewMemory&) = delete;
  std::byte* data() const { return data_; }
  int64_t real_pages(int64_t begin, int64_t end) const {
    std::vector<unsigned char> resident(static_cast<size_t>((end - begin) / kPageBytes));
    EXPECT_EQ(mincore(data_ + begin, static_cast<size_t>(end - begin), resident.data()), 0);
    int64_t count = 0;
    for (const unsigned char one : resident) count += one & 1;
    return count;
  }

 private:
  size_t bytes_;
  std::byte* data_ = nullptr;
};

TEST(Populate, MakesWholeMiBReal_AndNothingBesideThem) {
  const NewMemory memory(8 * kMiB);
  populate_untouched(memory.data() + kMiB + 64, 4 * kMiB);
  int error = 0;
  if (NewMemory probe(kPageBytes); !populate(probe.data(), kPageBytes, error)) return;  // the kernel can't
  EXPECT_EQ(memory.real_pages(0, kMiB + kPageBytes), 0);
  EXPECT_EQ(memory.real_pages(kMiB + kPageBytes, 4 * kMiB + kPageBytes), 3 * kMiB / kPageBytes);
  EXPECT_EQ(memory.real_pages(4 * kMiB + kPageBytes, 8 * kMiB), 0);
}

TEST(Populate, KeepsWhatIsThere) {
  const NewMemory memory(4 * kMiB);
  for (int64_t at = 0; at < 2 * kMiB; at += kPageBytes) memory.data()[at] = std::byte{7};
  populate_untouched(memory.data(), 4 * kMiB);
  for (int64_t at = 0; at < 2 * kMiB; at += kPageBytes) ASSERT_EQ(memory.data()[at], std::byte{7}) << at;
  populate_untouched(nullptr, 0);
}

}  // namespace
}  // namespace herd
