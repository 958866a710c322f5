/* The peer of herd_all_reduce.cpp over MPI_Allreduce:   mpirun -n 2 mpi_all_reduce BYTES ITERATIONS */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank, ranks;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const size_t count = strtoull(argv[1], NULL, 10) / sizeof(float);
  const int iterations = atoi(argv[2]);
  float* x = NULL;
  double* us = malloc((size_t)iterations * sizeof(double));
  MPI_Alloc_mem((MPI_Aint)(count * sizeof(float)), MPI_INFO_NULL, &x);
  for (int i = -3; i < iterations; ++i) {
    for (size_t k = 0; k < count; ++k) x[k] = (float)(rank + 1);
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = MPI_Wtime();
    MPI_Allreduce(MPI_IN_PLACE, x, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    const double took = (MPI_Wtime() - start) * 1e6;
    if (x[0] != ranks * (ranks + 1) / 2 || x[count - 1] != x[0]) MPI_Abort(MPI_COMM_WORLD, 1);
    if (i >= 0) us[i] = took;
  }
  MPI_Allreduce(MPI_IN_PLACE, us, iterations, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  for (int i = 0; rank == 0 && i < iterations; ++i) printf("us %.3f\n", us[i]);
  free(us);
  MPI_Free_mem(x);
  MPI_Finalize();
  return 0;
}
