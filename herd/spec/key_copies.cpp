#include "herd/spec/key_copies.h"

namespace herd::spec {

int key_copies(const RunFile& run) {
  const int64_t key_heads = run.model.kv_heads > 0 ? run.model.kv_heads : run.model.heads;
  return run.mesh.tp % key_heads == 0 ? static_cast<int>(run.mesh.tp / key_heads) : 1;
}

}  // namespace herd::spec
