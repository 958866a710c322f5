#include "herd/launch/message_stream.h"

#include <array>
#include <span>
#include <utility>

#include "herd/launch/store_protocol.h"

namespace herd::launch {
namespace {

constexpr size_t kReadBytes = 64 << 10;

}  // namespace

bool MessageStream::flush() {
  while (!out_.empty()) {
    const std::string& frame = out_.front();
    const size_t more = socket_->write(std::as_bytes(std::span(frame)).subspan(sent_));
    if (more == 0) return false;
    sent_ += more;
    if (sent_ < frame.size()) continue;
    sent_ = 0;
    out_.pop_front();
  }
  return true;
}

std::optional<std::string> MessageStream::next() {
  while (broken_.empty()) {
    if (in_.size() >= kHeaderBytes) {
      const std::optional<size_t> bytes = frame_bytes(in_);
      if (!bytes) {
        broken_ = "what it sent is no message of herd";
        break;
      }
      if (in_.size() >= *bytes) {
        std::string frame = in_.substr(0, *bytes);
        in_.erase(0, *bytes);
        return frame;
      }
    }
    std::array<std::byte, kReadBytes> bytes;
    const size_t got = socket_->read(bytes);
    if (got == 0) break;
    in_.append(reinterpret_cast<const char*>(bytes.data()), got);
  }
  return std::nullopt;
}

std::deque<std::string> MessageStream::unsent() {
  if (sent_ > 0) out_.pop_front();
  sent_ = 0;
  return std::exchange(out_, {});
}

}  // namespace herd::launch
