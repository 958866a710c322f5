/* One round trip of a cache line between ranks 0 and 1, as herd/cli/core_distance.h measures it: two words in a file
   that both map, 128 bytes apart. Nanoseconds; 0 for other ranks. Ranks 0 and 1 call it at the same time. */
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static char* core_distance_words;

int core_distance_open(const char* path) {
  const int file = open(path, O_RDWR | O_CREAT, 0600);
  if (file < 0 || ftruncate(file, 4096) != 0) return -1;
  core_distance_words = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  return core_distance_words == MAP_FAILED ? -1 : 0;
}

double core_distance_ns(int rank) {
  enum { kRounds = 50 };
  if (rank > 1) return 0;
  _Atomic uint64_t* mine = (_Atomic uint64_t*)(core_distance_words + 128 * rank);
  _Atomic uint64_t* theirs = (_Atomic uint64_t*)(core_distance_words + 128 * (1 - rank));
  struct timespec begin, end;
  clock_gettime(CLOCK_MONOTONIC, &begin);
  const uint64_t first = atomic_load_explicit(mine, memory_order_relaxed);
  for (uint64_t round = first + 1; round <= first + kRounds; ++round) {
    if (rank == 0) atomic_store_explicit(mine, round, memory_order_release);
    while (atomic_load_explicit(theirs, memory_order_acquire) < round) {
    }
    if (rank == 1) atomic_store_explicit(mine, round, memory_order_release);
  }
  clock_gettime(CLOCK_MONOTONIC, &end);
  return ((double)(end.tv_sec - begin.tv_sec) * 1e9 + (double)(end.tv_nsec - begin.tv_nsec)) / kRounds;
}
