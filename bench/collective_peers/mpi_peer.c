/* Times collectives of fp32 in MPI:   mpirun -n 2 mpi_peer WORDS_FILE OP,.. BYTES:ITERATIONS ..
   Every rank rewrites its input before each iteration. Rank 0 prints a line for each size: bytes, the round trip
   between the cores of ranks 0 and 1, microseconds from the first rank's begin to the last one's end in each iteration,
   by the clock that all processes of a host share. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache_line_round_trip.h"

static void run(const char* op, float* in, float* out, int whole, int part) {
  const MPI_Comm world = MPI_COMM_WORLD;
  if (!strcmp(op, "all_reduce")) MPI_Allreduce(MPI_IN_PLACE, out, whole, MPI_FLOAT, MPI_SUM, world);
  if (!strcmp(op, "all_gather")) MPI_Allgather(in, part, MPI_FLOAT, out, part, MPI_FLOAT, world);
  if (!strcmp(op, "reduce_scatter")) MPI_Reduce_scatter_block(in, out, part, MPI_FLOAT, MPI_SUM, world);
  if (!strcmp(op, "all_to_all")) MPI_Alltoall(in, part, MPI_FLOAT, out, part, MPI_FLOAT, world);
  if (!strcmp(op, "broadcast")) MPI_Bcast(out, whole, MPI_FLOAT, 0, world);
  if (!strcmp(op, "gather")) MPI_Gather(in, part, MPI_FLOAT, out, part, MPI_FLOAT, 0, world);
  if (!strcmp(op, "scatter")) MPI_Scatter(in, part, MPI_FLOAT, out, part, MPI_FLOAT, 0, world);
  if (!strcmp(op, "reduce")) {
    int rank;
    MPI_Comm_rank(world, &rank);
    MPI_Reduce(rank == 0 ? MPI_IN_PLACE : out, out, whole, MPI_FLOAT, MPI_SUM, 0, world);
  }
}

static int64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void measure(const char* op, const char* size, int rank, int ranks) {
  const int measures = ranks <= sysconf(_SC_NPROCESSORS_ONLN);
  const size_t bytes = strtoull(size, NULL, 10);
  const int iterations = atoi(strchr(size, ':') + 1), stride = iterations / 8 + 1;
  const size_t whole = bytes / sizeof(float), part = whole / (size_t)ranks;
  float *in, *out;
  MPI_Alloc_mem((MPI_Aint)bytes, MPI_INFO_NULL, &in);
  MPI_Alloc_mem((MPI_Aint)bytes, MPI_INFO_NULL, &out);
  const int in_place = !strcmp(op, "all_reduce") || !strcmp(op, "broadcast") || !strcmp(op, "reduce");
  float* const x = in_place ? out : in;
  const size_t written = !strcmp(op, "all_gather") || !strcmp(op, "gather") ? part : whole;
  int64_t* begins = malloc((size_t)iterations * sizeof(int64_t));
  int64_t* ends = malloc((size_t)iterations * sizeof(int64_t));
  double ns = 0, distances = 0;
  for (int i = -3; i < iterations; ++i) {
    for (size_t k = 0; k < written; ++k) x[k] = (float)(rank + 1);
    MPI_Barrier(MPI_COMM_WORLD);
    if (measures && i >= 0 && i % stride == 0) ns += core_distance_ns(rank), distances += 1;
    MPI_Barrier(MPI_COMM_WORLD);
    const int64_t begin = now_ns();
    run(op, in, out, (int)whole, (int)part);
    if (i >= 0) begins[i] = begin, ends[i] = now_ns();
    if (!strcmp(op, "all_reduce") && out[whole - 1] != (float)(ranks * (ranks + 1) / 2)) MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Allreduce(MPI_IN_PLACE, begins, iterations, MPI_INT64_T, MPI_MIN, MPI_COMM_WORLD);
  MPI_Allreduce(MPI_IN_PLACE, ends, iterations, MPI_INT64_T, MPI_MAX, MPI_COMM_WORLD);
  if (rank == 0) printf("peer %s %zu %.0f", op, bytes, distances > 0 ? ns / distances : 0);
  for (int i = 0; rank == 0 && i < iterations; ++i) printf(" %.3f", (double)(ends[i] - begins[i]) / 1e3);
  if (rank == 0) printf("\n");
  free(begins);
  free(ends);
  MPI_Free_mem(in);
  MPI_Free_mem(out);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank, ranks;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (argc < 4 || core_distance_open(argv[1]) != 0) MPI_Abort(MPI_COMM_WORLD, 2);
  for (char* op = strtok(argv[2], ","); op != NULL; op = strtok(NULL, ",")) {
    for (int a = 3; a < argc; ++a) measure(op, argv[a], rank, ranks);
  }
  MPI_Finalize();
  return 0;
}
