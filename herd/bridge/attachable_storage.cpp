#include "herd/bridge/attachable_storage.h"

#include <sstream>

#include "herd/base/check.h"
#include "herd/base/error.h"

namespace herd {
namespace {

template <typename Holder>
c10::DataPtr hold(void* memory, Holder holder, at::Device device) {
  auto* owned = new Holder(std::move(holder));
  return {memory, owned, [](void* context) { delete static_cast<Holder*>(context); }, device};
}

}  // namespace

AttachableStorage::AttachableStorage(int64_t elements, at::ScalarType dtype, at::Device device)
    : flat_(at::empty({0}, at::TensorOptions().dtype(dtype).device(device))),
      bytes_(static_cast<size_t>(elements) * c10::elementSize(dtype)) {
  HERD_CHECK_GE(elements, 0);
  flat_.unsafeGetTensorImpl()->set_sizes_contiguous({elements});
  // Views are checked against the byte count, so it is the full one until the owner has made them and detaches.
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
  c10::StorageImpl* storage = flat_.storage().unsafeGetStorageImpl();
  storage->set_nbytes(bytes_);
  storage->set_data_ptr_noswap(
      hold(memory.numel() == 0 ? nullptr : memory.mutable_data_ptr(), memory.detach(), flat_.device()));
  attached_ = true;
}

void AttachableStorage::attach(void* memory, std::shared_ptr<void> keep_alive) {
  HERD_CHECK(memory != nullptr || bytes_ == 0, "attached to no memory");
  c10::StorageImpl* storage = flat_.storage().unsafeGetStorageImpl();
  storage->set_nbytes(bytes_);
  storage->set_data_ptr_noswap(hold(memory, std::move(keep_alive), flat_.device()));
  attached_ = true;
}

void AttachableStorage::detach() {
  c10::StorageImpl* storage = flat_.storage().unsafeGetStorageImpl();
  storage->set_data_ptr_noswap(c10::DataPtr(nullptr, flat_.device()));
  storage->set_nbytes(0);
  attached_ = false;
}

void AttachableStorage::mark_written() { flat_.unsafeGetTensorImpl()->bump_version(); }

}  // namespace herd
