// Keeps values of a rank in a file, which is read and written in large pieces, several at a time. The file is scratch
// space of one run: checkpoints hold what a run needs, so the file is removed when its owner ends, and a killed run
// that goes on takes its file over.
//   header   4096 bytes: "herd nvme 1", a line for the run, and lines that describe the rest
//   data     from byte 4096 on; offsets count from there
// I/O goes by io_uring with up to `depth` requests of `chunk` bytes in flight, past the page cache (O_DIRECT). Where
// the kernel refuses one of them, the file works without it, and notes() says so. Threads: one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace herd {

inline constexpr int64_t kNvmeBlock = 4096;  // alignment of offsets, sizes and memory

class NvmeFile {
 public:
  struct Options {
    std::filesystem::path path;
    int64_t bytes = 0;                        // of the data
    std::string run;                          // whose file it is; a file of another run is refused
    std::string contents;                     // describes the data for readers of the header
    int depth = 16;                           // requests in flight
    int64_t chunk = 1 << 20;                  // bytes of a request
    bool try_direct = true, try_ring = true;  // false: as where the kernel refuses them
  };

  // Makes the folder and the file, with room for all of it. Throws kBadConfig where the file is another run's or is in
  // use, and kStorage where the drive is too small or the folder can't be written. The messages name
  // `memory.nvme_path`.
  explicit NvmeFile(Options options);
  ~NvmeFile();  // removes the file
  NvmeFile(const NvmeFile&) = delete;
  NvmeFile& operator=(const NvmeFile&) = delete;

  // Read and write `size` bytes at an offset of the data. REQUIRES multiples of kNvmeBlock, memory included. Throw
  // kStorage, naming the file, the place and what the system answered; nothing is in flight then.
  void read(int64_t offset, std::span<std::byte> to);
  void write(int64_t offset, std::span<const std::byte> from);

  // Returns the data as memory, for what reads and writes it outside of steps. Call forget_mapped() before the next
  // read() or write(): it writes what was changed, and gives back the page cache.
  std::span<std::byte> map();
  void forget_mapped();

  int64_t bytes() const { return options_.bytes; }
  const std::filesystem::path& path() const { return options_.path; }
  // Says what the kernel refuses: "no O_DIRECT in /tmp/x: reads and writes go through the page cache".
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  class Ring;
  enum class Direction { kRead, kWrite };
  void open_file();
  void check_owner();
  void write_header();
  void reserve();
  void transfer(Direction direction, int64_t offset, std::byte* memory, int64_t size);
  void transfer_in_ring(Direction direction, int64_t at, std::byte* memory, int64_t size);
  void transfer_by_calls(Direction direction, int64_t at, std::byte* memory, int64_t size);
  [[noreturn]] void fail(Direction direction, int64_t at, int64_t size, int error) const;

  Options options_;
  int fd_ = -1;
  std::unique_ptr<Ring> ring_;  // null where io_uring is refused
  std::span<std::byte> mapped_;
  std::vector<std::string> notes_;
};

}  // namespace herd
