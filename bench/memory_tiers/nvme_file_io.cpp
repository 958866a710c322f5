// Writes and reads a file as values of strategy.offload = "nvme" are, and prints the rate of each in bytes a second:
//   nvme_file_io FOLDER MIB SECONDS
#include <sys/mman.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "herd/memory/nvme_file.h"

namespace {

constexpr int64_t kPiece = 64 << 20;  // of a value in flight, many requests long

double rate(int64_t bytes, double seconds, const auto& move) {
  const auto begin = std::chrono::steady_clock::now();
  const auto took = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(); };
  double moved = 0;
  while (took() < seconds)
    for (int64_t at = 0; at < bytes; at += kPiece, moved += kPiece) move(at);
  return moved / took();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return std::fprintf(stderr, "usage: nvme_file_io FOLDER MIB SECONDS\n"), 2;
  const int64_t bytes = std::max<int64_t>(std::atoll(argv[2]) << 20, kPiece) / kPiece * kPiece;
  const double seconds = std::atof(argv[3]);
  void* memory = mmap(nullptr, kPiece, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (memory == MAP_FAILED) return std::perror("mmap"), 1;
  const std::span<std::byte> piece(static_cast<std::byte*>(memory), kPiece);
  std::fill(piece.begin(), piece.end(), std::byte{7});
  herd::NvmeFile file(
      {.paths = {std::string(argv[1]) + "/nvme_file_io"}, .bytes = bytes, .run = "bench", .contents = "noise"});
  for (const std::string& note : file.notes()) std::fprintf(stderr, "%s\n", note.c_str());
  for (int64_t at = 0; at < bytes; at += kPiece) file.write(at, piece);  // the first time makes the blocks
  std::printf("write %.0f\n", rate(bytes, seconds, [&](int64_t at) { file.write(at, piece); }));
  std::printf("read %.0f\n", rate(bytes, seconds, [&](int64_t at) { file.read(at, piece); }));
}
