// Defines what the ranks of a group show each other about themselves, in shared memory and outside the data path. It
// holds the last operations, how far each rank has come, and why the group failed; reports are written from it.
// Threads: one writer, any readers.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>

#include "herd/base/error.h"
#include "herd/base/ids.h"
#include "herd/transport/agreement_note.h"

namespace herd::transport {

// Describes one operation as its rank called it. Text is cut to fit and zero-terminated.
struct OperationRecord {
  uint64_t sequence = 0;  // number of the collective in this group, from 1
  uint64_t fingerprint = 0;
  int64_t count = 0;
  uint32_t line = 0;  // line of `file` where the caller called it
  uint8_t collective = 0, dtype = 0, reduce_op = 0, has_reduce_op = 0;
  int32_t root = -1;
  char algorithm[24] = {};
  char name[40] = {};
  char file[28] = {};     // source file of the caller
  char details[63] = {};  // counts, sizes of a list, strides, segments: what few operations state
  uint8_t in_place = 0;
};
static_assert(sizeof(OperationRecord) == 192);

// Holds a value that one writer overwrites while others read, by a sequence lock. REQUIRES a trivially copyable T of
// whole 8-byte words, the first of which is the value's number, never 0. That word is 0 during a write.
template <typename T>
class SeqLock {
 public:
  void write(const T& value) {
    const auto words = std::bit_cast<Words>(value);
    words_[0].store(0, std::memory_order_relaxed);
    for (size_t i = 1; i < kWords; ++i) words_[i].store(words[i], std::memory_order_release);
    words_[0].store(words[0], std::memory_order_release);
  }
  std::optional<T> read(uint64_t number) const {
    if (words_[0].load(std::memory_order_acquire) != number) return std::nullopt;
    Words words = {number};
    for (size_t i = 1; i < kWords; ++i) words[i] = words_[i].load(std::memory_order_acquire);
    if (words_[0].load(std::memory_order_relaxed) != number) return std::nullopt;
    return std::bit_cast<T>(words);
  }
  // Returns nothing while it is empty or being written. Look again a bounded number of times: a writer that died leaves
  // it so for good.
  std::optional<T> newest() const {
    const uint64_t number = words_[0].load(std::memory_order_acquire);
    return number == 0 ? std::nullopt : read(number);
  }

 private:
  static constexpr size_t kWords = sizeof(T) / 8;
  using Words = std::array<uint64_t, kWords>;
  std::atomic<uint64_t> words_[kWords] = {};
};
using RecordSlot = SeqLock<OperationRecord>;

// Says which send or receive a rank waits in, as one word.
struct TransferNote {
  bool is_send = false;
  Rank peer = -1;  // rank in the group; -1 = any
  uint64_t word() const { return 1 | uint64_t{is_send} << 1 | static_cast<uint64_t>(peer + 1) << 2; }
  static std::optional<TransferNote> of(uint64_t word) {  // nothing for 0
    if (word == 0) return std::nullopt;
    return TransferNote{(word & 2) != 0, static_cast<Rank>(word >> 2) - 1};
  }
};

inline constexpr uint64_t kRecords = 32;  // a power of two

struct alignas(64) RankBoard {
  std::atomic<uint64_t> finished{0};  // sequence of the last collective that this rank has finished
  // Holds the sequence of the last collective that this rank has begun, and whose record it has written.
  alignas(64) std::atomic<uint64_t> started{0};
  // The next four say where the rank stands in collective `waits_in`; it writes them when it has waited for a while.
  std::atomic<uint64_t> waits_in{0};  // sequence that the next three are about
  std::atomic<uint64_t> step{0};      // steps done
  std::atomic<uint64_t> total_steps{0};
  std::atomic<int64_t> awaits{-1};                     // a rank that this rank waits for in that step; -1 = none
  std::atomic<uint64_t> transfer{0};                   // TransferNote of a send or receive that has waited for a while
  std::atomic<uint64_t> left{0};                       // 1: this rank closed the group in good order
  alignas(64) std::atomic<uint64_t> awaits_finish{0};  // 1: peers must wake this rank when they finish an operation
  alignas(64) RecordSlot records[kRecords];
  alignas(64) SeqLock<AgreementNote> note;  // what this rank says while a failed group agrees which ranks are left
};

// The first rank to fail writes why, once; all others fail with the same words.
struct alignas(64) FailureBoard {
  std::atomic<uint64_t> state{0};  // 0: none; (1 + rank) << 1: that rank writes it; | 1: it is ready
  int32_t rank = -1;  // rank in the transport, not in the group, that found the cause; maybe in another group
  Code code = Code::kAborted;
  char text[4000] = {};

  bool ready() const { return (state.load(std::memory_order_acquire) & 1) != 0; }
  // Returns the rank of the group that is writing, or has written; -1: none.
  int writer() const { return static_cast<int>(state.load(std::memory_order_acquire) >> 1) - 1; }
  // Returns true for the first rank to claim the board, which alone writes it; else false.
  bool claim(int by) {
    uint64_t none = 0;
    return state.compare_exchange_strong(none, static_cast<uint64_t>(1 + by) << 1, std::memory_order_acq_rel);
  }
  bool post(int by, Rank finder, Code why, const std::string& message) {
    if (!claim(by)) return false;
    rank = finder;
    code = why;
    std::strncpy(text, message.c_str(), sizeof text - 1);
    state.fetch_or(1, std::memory_order_seq_cst);
    return true;
  }
};

}  // namespace herd::transport
