// Uses herd without torch: adds one number of every rank.   consumer_core, or herd run -n 2 -- consumer_core
#include <cstdio>
#include <vector>

#include "herd/base/error.h"
#include "herd/comm/communicator.h"

int main() {
  try {
    auto comm = herd::Communicator::create();
    std::vector<double> sum = {comm.rank() + 1.0};
    comm.all_reduce(sum);
    std::printf("rank %d of %d: sum %g\n", comm.rank(), comm.size(), sum[0]);
  } catch (const herd::Error& error) {  // says what is wrong, and what helps
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
