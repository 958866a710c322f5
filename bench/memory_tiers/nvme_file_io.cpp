// Writes and reads a file as values of strategy.offload = "nvme" are, and prints the rate of each in bytes a second,
// with the processor's milliseconds for each GB:
//   nvme_file_io FOLDER MIB SECONDS [unregistered]
// With "unregistered" the kernel looks up the pages of the memory for each request, in place of holding them.
#include <sys/mman.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string_view>

#include "herd/memory/nvme_file.h"

namespace {

constexpr int64_t kPiece = 64 << 20;  // of a value in flight, many requests long

// Prints the rate, and the processor's time for each GB.
void measure(const char* what, int64_t bytes, double seconds, const auto& move) {
  const std::clock_t cpu = std::clock();
  const auto begin = std::chrono::steady_clock::now();
  const auto took = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(); };
  double moved = 0;
  while (took() < seconds)
    for (int64_t at = 0; at < bytes; at += kPiece, moved += kPiece) move(at);
  const double cpu_ms = 1e3 * static_cast<double>(std::clock() - cpu) / CLOCKS_PER_SEC;
  std::printf("%s %.0f\n%s_cpu_ms_per_gb %.1f\n", what, moved / took(), what, cpu_ms / (moved / 1e9));
}

}  // namespace

int main(int argc, char** argv) {
  const bool registers = argc != 5 || std::string_view(argv[4]) != "unregistered";
  if (argc != 4 && registers) return std::fprintf(stderr, "usage: nvme_file_io FOLDER MIB SECONDS [unregistered]\n"), 2;
  const int64_t bytes = std::max<int64_t>(std::atoll(argv[2]) << 20, kPiece) / kPiece * kPiece;
  const double seconds = std::atof(argv[3]);
  void* memory = mmap(nullptr, kPiece, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (memory == MAP_FAILED) return std::perror("mmap"), 1;
  const std::span<std::byte> piece(static_cast<std::byte*>(memory), kPiece);
  std::fill(piece.begin(), piece.end(), std::byte{7});
  herd::NvmeFile::Options options{
      .paths = {std::string(argv[1]) + "/nvme_file_io"}, .bytes = bytes, .run = "bench", .contents = "noise"};
  if (registers) options.memory = {piece};
  herd::NvmeFile file(options);
  for (const std::string& note : file.notes()) std::fprintf(stderr, "%s\n", note.c_str());
  for (int64_t at = 0; at < bytes; at += kPiece) file.write(at, piece);  // the first time makes the blocks
  measure("write", bytes, seconds, [&](int64_t at) { file.write(at, piece); });
  measure("read", bytes, seconds, [&](int64_t at) { file.read(at, piece); });
}
