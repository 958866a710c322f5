#include "herd/transport/doorbell.h"

#include <sys/eventfd.h>
#include <unistd.h>

namespace herd::transport {

void Doorbell::wake() {
  word_->asleep.store(0, std::memory_order_seq_cst);
  eventfd_write(descriptor_, 1);
}

void Doorbell::drain() {
  eventfd_t count = 0;
  eventfd_read(descriptor_, &count);
}

}  // namespace herd::transport
