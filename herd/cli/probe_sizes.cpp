#include "herd/cli/probe_sizes.h"

#include <algorithm>

#include "herd/collectives/staging.h"
#include "herd/comm/compiled_schedule.h"
#include "herd/memory/shared_memory.h"

namespace herd::cli {
namespace {

constexpr int64_t kLine = 64, kLeastBytes = 64, kLeastByTurns = 16 << 10, kMostBytes = 128 << 20;
constexpr int64_t kLeastMessage = 8, kMostOfShorter = 4 << 10;

int64_t moved_at_once(const ProbedOperation& operation, int ranks) {
  return operation.in_place ? operation.bytes : operation.bytes / ranks;
}

// A rank has the whole message, and out of place its part: two buffers like these take as much. Of parts that one rank
// gathers or scatters only that one has the whole; the others wait for it.
int64_t half_of_touched(const ProbedOperation& operation, int ranks) {
  return operation.bytes * (operation.in_place ? ranks : ranks + 1) / (2 * ranks);
}

// But short buffers are what is moved at once, for the first lines of a copy take longer than those that follow.
int64_t buffer_bytes(const ProbedOperation& operation, int ranks) {
  return operation.bytes <= kMinPieceBytes ? moved_at_once(operation, ranks) : half_of_touched(operation, ranks);
}

// Around a ring go parts of what a buffer holds. Along a tree goes what is moved at once; but past the caches it counts
// what an operation touches in all.
int64_t message_bytes(const ProbedOperation& operation, int ranks, int64_t buffer) {
  if (!operation.rooted) return std::max(buffer, std::min(operation.bytes, kMinPieceBytes)) / ranks;
  const bool streams = operation.bytes >= comm::CompiledSchedule::kStreamBytes;
  return std::clamp(std::max(moved_at_once(operation, ranks), streams ? half_of_touched(operation, ranks) : 0),
                    kLeastBytes, kMostBytes);
}

// Sums that all ranks share go to each of them in parts, but where each reduces all itself.
int64_t staged_at_once(const ProbedOperation& operation, int ranks, int64_t buffer, int64_t part) {
  const bool in_parts = operation.reduce && !operation.rooted && operation.bytes > kOneShotBytes;
  const int64_t staged = in_parts || operation.in_place ? operation.bytes : part;
  const int64_t at_once = staged / num_pieces(staged, DType::kU8) / (in_parts ? ranks : 1);
  return std::clamp(round_up(at_once, kLine), kLine, buffer);
}

}  // namespace

int64_t ProbeSizes::memory(const ProbedOperation& operation, int ranks) const {
  return std::max({buffer, operation.reduces_elsewhere() ? 2 * read : read, message * (operation.rooted ? 1 : ranks),
                   operation.copies_what_was_read() ? 2 * part : part});
}

int64_t ProbeSizes::place(const ProbedOperation& operation, int ranks, bool other) const {
  return other ? (memory(operation, ranks) - part) / kLine * kLine : 0;
}

ProbeSizes probe_sizes(const ProbedOperation& operation, int ranks, bool by_turns) {
  // Each rank has a message for each other one, also of the shorter ones.
  const int64_t least = std::max(by_turns ? kLeastByTurns : kLeastBytes, 2 * ranks * kLeastMessage);
  ProbeSizes size;
  size.buffer = round_up(std::clamp(buffer_bytes(operation, ranks), least, kMostBytes), kLine);
  const int64_t least_part = by_turns ? std::min(kLeastByTurns, size.buffer) : kLeastBytes;
  size.part = round_up(std::clamp(operation.bytes / ranks, least_part, size.buffer), kLine);
  size.staged = staged_at_once(operation, ranks, size.buffer, size.part);
  size.message = round_up(message_bytes(operation, ranks, size.buffer), kLeastMessage);
  size.shorter = std::min(round_up(size.message / 8, kLeastMessage), kMostOfShorter);
  const bool in_parts = operation.reduces_elsewhere() || (!operation.rooted && operation.bytes <= kMinPieceBytes);
  size.read = in_parts ? size.part : operation.takes_whole() ? size.message : size.buffer;
  return size;
}

}  // namespace herd::cli
