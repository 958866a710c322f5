// The few functions of NCCL that herd calls, found in libnccl.so.2 when they are first asked for. Nothing of NCCL is
// needed to build herd, so types and constants are declared here, as nccl.h of 2.18 has them; later versions keep them.
// Source: https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/api.html.   Threads: any.
#pragma once

#include <climits>
#include <cstddef>
#include <string>

#include "herd/base/buffer.h"

namespace herd::comm {

struct NcclUniqueId {
  char bytes[128];
};
using NcclComm = void*;
enum NcclResult : int { kNcclSuccess = 0, kNcclInProgress = 7 };

struct NcclConfig {  // ncclConfig_t of 2.18
  size_t size = sizeof(NcclConfig);
  unsigned int magic = 0xcafebeef;
  unsigned int version = 21800;
  int blocking = INT_MIN;
  int cga_cluster_size = INT_MIN;
  int min_ctas = INT_MIN;
  int max_ctas = INT_MIN;
  const char* net_name = nullptr;
  int split_share = INT_MIN;
};

struct NcclLibrary {
  int version = 0;  // 22809 is 2.28.9
  std::string path;
  int (*get_unique_id)(NcclUniqueId*) = nullptr;
  int (*init_rank_config)(NcclComm*, int num_ranks, NcclUniqueId, int rank, NcclConfig*) = nullptr;
  int (*get_async_error)(NcclComm, int* state) = nullptr;
  int (*abort)(NcclComm) = nullptr;
  int (*destroy)(NcclComm) = nullptr;
  int (*group_start)() = nullptr;
  int (*group_end)() = nullptr;
  int (*all_reduce)(const void*, void*, size_t, int dtype, int op, NcclComm, StreamHandle) = nullptr;
  int (*broadcast)(const void*, void*, size_t, int dtype, int root, NcclComm, StreamHandle) = nullptr;
  int (*reduce)(const void*, void*, size_t, int dtype, int op, int root, NcclComm, StreamHandle) = nullptr;
  int (*all_gather)(const void*, void*, size_t, int dtype, NcclComm, StreamHandle) = nullptr;
  int (*reduce_scatter)(const void*, void*, size_t, int dtype, int op, NcclComm, StreamHandle) = nullptr;
  int (*send)(const void*, size_t, int dtype, int peer, NcclComm, StreamHandle) = nullptr;
  int (*receive)(void*, size_t, int dtype, int peer, NcclComm, StreamHandle) = nullptr;
  const char* (*error_string)(int) = nullptr;
  const char* (*last_error)(NcclComm) = nullptr;
};

// Returns the library, or null with the reason in `why_not`. It is looked for where HERD_NCCL says, then as the system
// finds libnccl.so.2, then in the nvidia package of the Python environment that this process or VIRTUAL_ENV names.
const NcclLibrary* nccl_library(std::string* why_not = nullptr);
std::string nccl_version_text(int version);

}  // namespace herd::comm
