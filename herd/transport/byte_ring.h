// Defines a ring of bytes from one rank to one other, in memory that both map. Tail and head count bytes since the
// start and never wrap in practice (2^64). Each side keeps a copy of the other's counter, and reads the shared one only
// when the copy says full or empty.
// Threads: one writer and one reader, without locks.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

namespace herd::transport {

struct RingCounters {
  alignas(64) std::atomic<uint64_t> tail{0};  // bytes written
  alignas(64) std::atomic<uint64_t> head{0};  // bytes read
};

class RingWriter {
 public:
  RingWriter() = default;
  RingWriter(RingCounters* counters, std::byte* data, uint64_t capacity)  // capacity is a power of two
      : counters_(counters), data_(data), capacity_(capacity) {}
  // Returns free bytes that lie in one piece, at most `wanted`; empty when the reader has to read first.
  std::span<std::byte> space(uint64_t wanted) {
    if (capacity_ - (tail_ - head_) < wanted) head_ = counters_->head.load(std::memory_order_seq_cst);
    const uint64_t offset = tail_ & (capacity_ - 1);
    return {data_ + offset, std::min({wanted, capacity_ - (tail_ - head_), capacity_ - offset})};
  }
  void publish(uint64_t bytes) {
    tail_ += bytes;
    counters_->tail.store(tail_, std::memory_order_seq_cst);
  }

 private:
  RingCounters* counters_ = nullptr;
  std::byte* data_ = nullptr;
  uint64_t capacity_ = 0, tail_ = 0, head_ = 0;
};

class RingReader {
 public:
  RingReader() = default;
  RingReader(RingCounters* counters, const std::byte* data, uint64_t capacity)
      : counters_(counters), data_(data), capacity_(capacity) {}
  // Returns unread bytes that lie in one piece, at most `wanted`; empty when the writer has to write first.
  std::span<const std::byte> available(uint64_t wanted) {
    if (tail_ - head_ < wanted) tail_ = counters_->tail.load(std::memory_order_seq_cst);
    const uint64_t offset = head_ & (capacity_ - 1);
    return {data_ + offset, std::min({wanted, tail_ - head_, capacity_ - offset})};
  }
  void release(uint64_t bytes) {
    head_ += bytes;
    counters_->head.store(head_, std::memory_order_seq_cst);
  }

 private:
  RingCounters* counters_ = nullptr;
  const std::byte* data_ = nullptr;
  uint64_t capacity_ = 0, tail_ = 0, head_ = 0;
};

}  // namespace herd::transport
