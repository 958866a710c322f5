// Keeps values of a rank in a file, or in several on as many drives, which are read and written in large pieces,
// several at a time. Files are scratch space of one run: checkpoints hold what a run needs, so they are removed when
// their owner ends, and a killed run that goes on takes them over.
//   header   4096 bytes of each file: "herd nvme 1", a line for the run, and lines that describe the rest
//   data     from byte 4096 on. Offsets count from there; with n files, stripe k of the data is stripe k / n of file
//            k % n, and the last one may be shorter
// I/O goes by io_uring with up to `depth` requests of `chunk` bytes in flight for each file, past the page cache
// (O_DIRECT), from and to memory that the kernel holds (registered buffers). Where the kernel refuses one of them, the
// files work without it, and notes() says so.
// Threads: one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "herd/base/mapped_range.h"

namespace herd {

inline constexpr int64_t kNvmeBlock = 4096;  // alignment of offsets, sizes and memory

// Says how a drive is asked: up to `depth` requests of `chunk` bytes, whole blocks, at a time for each file.
struct NvmeRequests {
  int depth = 16;
  int64_t chunk = 1 << 20;
  bool operator==(const NvmeRequests&) const = default;
};

class NvmeFile {
 public:
  // Holds a range of the data, and the memory for it.
  struct Extent {
    int64_t offset = 0;
    std::span<std::byte> memory = {};
    int64_t size() const { return static_cast<int64_t>(memory.size()); }
  };
  struct Options {
    std::vector<std::filesystem::path> paths;  // of the files, at least one
    int64_t bytes = 0;                         // of the data
    std::string run;                           // whose files they are; a file of another run is refused
    std::string contents;                      // describes the data for readers of the header
    NvmeRequests requests = {};                // with several files, stripes are as long as these
    // Memory that requests will use, and that stays where it is until the file ends: the kernel then holds its pages,
    // and need not look them up for each request. Other memory works, too.
    std::vector<std::span<std::byte>> memory = {};
    bool try_direct = true, try_ring = true;  // false: as where the kernel refuses them
  };

  // Makes the folders and the files, with room for all of it. Throws kBadConfig where a file is another run's, or is in
  // use and stays so for a second, and kStorage where a drive is too small or a folder can't be written. The messages
  // name the file and `memory.nvme_path`.
  explicit NvmeFile(Options options);
  ~NvmeFile();  // removes the files
  NvmeFile(const NvmeFile&) = delete;
  NvmeFile& operator=(const NvmeFile&) = delete;

  // Read and write `size` bytes at an offset of the data. REQUIRES multiples of kNvmeBlock, memory included. Throw
  // kStorage, naming the file, the place and what the system answered; nothing is in flight then.
  void read(int64_t offset, std::span<std::byte> to);
  void write(int64_t offset, std::span<const std::byte> from);
  // These do the same for several ranges, whose requests follow each other without a pause.
  void read(std::span<const Extent> extents);
  void write(std::span<const Extent> extents);

  // Changes how the drives are asked from now on. What lies where stays as it is.
  void set_requests(NvmeRequests requests);
  NvmeRequests requests() const { return options_.requests; }
  bool uses_registered_memory() const;  // tells whether the kernel holds Options::memory

  // Returns the data as memory, for what reads and writes it outside of steps. Call forget_mapped() before the next
  // read() or write(): it writes what was changed, and gives back the page cache.
  std::span<std::byte> map();
  void forget_mapped();

  int64_t bytes() const { return options_.bytes; }
  int64_t bytes_read() const { return bytes_read_; }  // by read() and write() so far
  int64_t bytes_written() const { return bytes_written_; }
  const std::vector<std::filesystem::path>& paths() const { return options_.paths; }
  int64_t stripe() const { return stripe_; }  // bytes that follow each other in one file
  // Says what the kernel refuses: "no O_DIRECT in /tmp/x: reads and writes go through the page cache".
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  class Ring;
  class Part;  // one file
  enum class Direction { kRead, kWrite };
  // Says where a byte of the data lies, and how many of that stripe begin with it.
  struct Place {
    int fd = -1;
    size_t file = 0;
    int64_t at = 0, left = 0;  // `at` counts from the begin of the file
  };
  Place place_of(int64_t offset) const;
  int64_t bytes_of_file(size_t file) const;  // returns those of its data
  void transfer(Direction direction, std::span<const Extent> extents);
  void transfer_in_ring(Direction direction, std::span<const Extent> extents);
  void transfer_by_calls(Direction direction, const Extent& extent);
  int open_ring();  // returns what the kernel answers; 0 where it was not asked
  void register_memory();
  [[noreturn]] void fail(Direction direction, int64_t offset, int64_t size, int error) const;

  Options options_;
  int64_t stripe_ = 0, bytes_read_ = 0, bytes_written_ = 0;
  std::vector<std::unique_ptr<Part>> files_;
  std::unique_ptr<Ring> ring_;  // null where io_uring is refused
  std::span<std::byte> mapped_;
  std::optional<MappedRange> mapped_name_;
  std::vector<std::string> notes_;
};

}  // namespace herd
