#include "herd/comm/nccl_library.h"

#include <dlfcn.h>

#include <filesystem>
#include <vector>

#include "herd/launch/nccl_paths.h"

namespace herd::comm {
namespace {

constexpr int kLeastVersion = 21800;  // the first whose communicators end without a wait for their peers

struct Found {
  NcclLibrary library;
  std::string why_not;  // empty: it is there
};

// Where torch is loaded, NVIDIA's packages lie beside it.
std::vector<std::string> packages_beside_torch() {
  Dl_info torch{};
  void* symbol = dlsym(RTLD_DEFAULT, "_ZN3c1019UndefinedTensorImpl10_singletonE");
  if (symbol == nullptr || dladdr(symbol, &torch) == 0) return {};
  return {std::filesystem::path(torch.dli_fname).parent_path().parent_path().parent_path().string()};
}

Found find_library() {
  Found found;
  void* handle = nullptr;
  for (const std::string& path : launch::nccl_paths(packages_beside_torch())) {
    handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle != nullptr) {
      found.library.path = path;
      break;
    }
    if (found.why_not.empty()) found.why_not = std::string("libnccl.so.2 can't be loaded: ") + dlerror();
  }
  if (handle == nullptr) return found;
  found.why_not.clear();
  const auto resolve = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, name));
    if (function == nullptr && found.why_not.empty()) found.why_not = found.library.path + " has no " + name;
  };
  int (*get_version)(int*) = nullptr;
  resolve(get_version, "ncclGetVersion");
  if (!found.why_not.empty()) return found;
  get_version(&found.library.version);
  if (found.library.version < kLeastVersion) {
    found.why_not =
        found.library.path + " is NCCL " + nccl_version_text(found.library.version) + ", but herd needs 2.18";
    return found;
  }
  NcclLibrary& library = found.library;
  resolve(library.get_unique_id, "ncclGetUniqueId");
  resolve(library.init_rank_config, "ncclCommInitRankConfig");
  resolve(library.get_async_error, "ncclCommGetAsyncError");
  resolve(library.abort, "ncclCommAbort");
  resolve(library.destroy, "ncclCommDestroy");
  resolve(library.group_start, "ncclGroupStart");
  resolve(library.group_end, "ncclGroupEnd");
  resolve(library.all_reduce, "ncclAllReduce");
  resolve(library.broadcast, "ncclBroadcast");
  resolve(library.reduce, "ncclReduce");
  resolve(library.all_gather, "ncclAllGather");
  resolve(library.reduce_scatter, "ncclReduceScatter");
  resolve(library.send, "ncclSend");
  resolve(library.receive, "ncclRecv");
  resolve(library.error_string, "ncclGetErrorString");
  resolve(library.last_error, "ncclGetLastError");
  return found;
}

}  // namespace

const NcclLibrary* nccl_library(std::string* why_not) {
  static const Found found = find_library();
  if (why_not != nullptr) *why_not = found.why_not;
  return found.why_not.empty() ? &found.library : nullptr;
}

std::string nccl_version_text(int version) {
  return std::to_string(version / 10000) + "." + std::to_string(version % 10000 / 100) + "." +
         std::to_string(version % 100);
}

}  // namespace herd::comm
