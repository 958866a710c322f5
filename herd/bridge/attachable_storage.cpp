#include "herd/bridge/attachable_storage.h"

#include <sstream>

#include "herd/base/check.h"
#include "herd/base/error.h"

namespace herd {
namespace {

// Returns a pointer to `memory` that keeps `holder` until the storage lets go of it.
template <typename Holder>
c10::DataPtr hold(void* memory, Holder holder, at::Device device) {
  auto* owned = new Holder(std::move(holder));
  return {memory, owned, [](void* context) { delete static_cast<Holder*>(context); }, device};
}

// Makes every access throw while `refused`, since some kernels would follow a null pointer. Torch before 2.8 can't take
// that back, so there nothing is refused.
template <typename Storage>
void refuse_access(Storage& storage, bool refused) {
  if constexpr (requires { storage.clear_data_ptr_access_error_msg_(); }) {
    storage.clear_data_ptr_access_error_msg_();
    if (refused)
      storage.release_data_and_set_meta_custom_data_ptr_error_msg_("flat parameters were used while detached");
  }
}

void replace(const at::Tensor& flat, c10::DataPtr data, size_t bytes) {
  c10::StorageImpl& storage = *flat.storage().unsafeGetStorageImpl();
  refuse_access(storage, false);
  storage.set_data_ptr_noswap(std::move(data));
  storage.set_nbytes(bytes);
  if (bytes == 0 && flat.numel() > 0) refuse_access(storage, true);
}

}  // namespace

AttachableStorage::AttachableStorage(int64_t elements, at::ScalarType dtype, at::Device device)
    : flat_(at::empty({0}, at::TensorOptions().dtype(dtype).device(device))),
      bytes_(static_cast<size_t>(elements) * c10::elementSize(dtype)) {
  HERD_CHECK_GE(elements, 0);
  flat_.unsafeGetTensorImpl()->set_sizes_contiguous({elements});
  // Torch checks views against the byte count, so it counts all bytes until the owner has made its views and detaches.
  flat_.storage().unsafeGetStorageImpl()->set_nbytes(bytes_);
}

void AttachableStorage::attach(const at::Tensor& memory) {
  if (!memory.is_contiguous() || memory.numel() != flat_.numel() || memory.scalar_type() != flat_.scalar_type() ||
      memory.device() != flat_.device()) {
    std::ostringstream text;
    text << "can't attach a flat tensor of " << flat_.numel() << " " << flat_.scalar_type() << " on " << flat_.device()
         << " to memory of " << memory.numel() << " " << memory.scalar_type() << " on " << memory.device()
         << (memory.is_contiguous() ? "" : ", not contiguous")
         << "\n  fix: pass a contiguous tensor of the same elements, dtype and device";
    throw Error(Code::kBadConfig, text.str());
  }
  replace(flat_, hold(memory.numel() == 0 ? nullptr : memory.mutable_data_ptr(), memory.detach(), flat_.device()),
          bytes_);
  attached_ = true;
}

void AttachableStorage::attach(void* memory, std::shared_ptr<void> keep_alive) {
  HERD_CHECK(memory != nullptr || bytes_ == 0, "attached to no memory");
  replace(flat_, hold(memory, std::move(keep_alive), flat_.device()), bytes_);
  attached_ = true;
}

void AttachableStorage::detach() {
  replace(flat_, c10::DataPtr(nullptr, flat_.device()), 0);
  attached_ = false;
}

void AttachableStorage::mark_written() { flat_.unsafeGetTensorImpl()->bump_version(); }

}  // namespace herd
