#include "herd/comm/failure_report.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <utility>

#include "herd/base/dtype.h"
#include "herd/schedule/meaning.h"
#include "herd/schedule/schedule_names.h"

namespace herd::comm {
namespace {

using std::chrono::duration_cast;
using std::chrono::milliseconds;
using transport::OperationRecord;
using transport::RankBoard;

std::string waited_for(const PendingOp& pending) {
  const auto now = std::chrono::steady_clock::now();
  return std::to_string(duration_cast<milliseconds>(now - pending.issued).count()) + " ms";
}

std::string name_of(const GroupState& group, Rank member) { return "rank " + std::to_string(group.job_rank(member)); }

std::string name_ranks(const GroupState& group, const std::vector<Rank>& members) {
  if (members.empty()) return "its peers";
  std::string text = members.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < members.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(group.job_rank(members[i]));
  return text;
}

std::string describe_operation(const PendingOp& pending) {
  return pending.kind == PendingOpKind::kCollective ? describe(pending.record) : describe_transfer(pending);
}

std::optional<OperationRecord> record_of(GroupState& group, Rank rank, uint64_t sequence) {
  return group.channel().board(rank).records[sequence % transport::kRecords].read(sequence);
}

// Returns ", step 3 of 8", or "" if the rank does not show its step.
std::string step_of(const RankBoard& board, uint64_t sequence) {
  if (board.waits_in.load(std::memory_order_acquire) != sequence) return "";
  return ", step " + std::to_string(board.step.load(std::memory_order_relaxed)) + " of " +
         std::to_string(board.total_steps.load(std::memory_order_relaxed));
}

// Describes what a rank does, from its own board.
std::string place_of(GroupState& group, Rank rank) {
  RankBoard& board = group.channel().board(rank);
  const uint64_t started = board.started.load(std::memory_order_acquire);
  const uint64_t finished = board.finished.load(std::memory_order_acquire);
  if (board.left.load(std::memory_order_acquire) != 0) {
    return "has left the group after " + std::to_string(finished) + " operations";
  }
  if (const auto transfer = transport::TransferNote::of(board.transfer.load(std::memory_order_relaxed))) {
    return std::string("waits in ") + (transfer->is_send ? "send to " : "receive from ") +
           (transfer->peer < 0 || transfer->peer >= group.size() ? "any rank" : name_of(group, transfer->peer));
  }
  if (started == 0) return "has begun no operation of this group";
  const auto record = record_of(group, rank, started);
  const std::string what = record ? describe(*record) : "operation #" + std::to_string(started);
  if (finished >= started) return "has finished " + what + " and called nothing since";
  return "is in " + what + step_of(board, started);
}

// Describes whether a rank of the job lives, and its last activity.
std::string life_of(transport::Transport& transport, Rank rank) {
  const std::string activity = transport.activity_of(rank);
  return transport.describe(rank) + (activity.empty() ? "" : ", last in " + activity);
}

std::string life_of(GroupState& group, Rank member) {
  return life_of(group.engine().transport(), group.job_rank(member));
}

// Returns the rank that `rank` waits for in the same operation, or -1 if it is not alive or does not wait.
Rank awaited_by(GroupState& group, const PendingOp& pending, Rank rank) {
  const RankBoard& board = group.channel().board(rank);
  if (pending.kind != PendingOpKind::kCollective ||
      board.waits_in.load(std::memory_order_acquire) != pending.record.sequence)
    return -1;
  if (board.finished.load(std::memory_order_acquire) >= pending.record.sequence) return -1;
  const transport::PeerState state = group.engine().transport().state(group.job_rank(rank));
  return state == transport::PeerState::kAlive ? static_cast<Rank>(board.awaits.load(std::memory_order_relaxed)) : -1;
}

// Describes every other rank. Those that wait in the same operation share one line.
std::string describe_other_ranks(GroupState& group, const PendingOp& pending) {
  std::string text, waiting;
  for (Rank rank = 0; rank < group.size(); ++rank) {
    const RankBoard& board = group.channel().board(rank);
    if (rank == group.rank()) continue;
    const Rank next = awaited_by(group, pending, rank);
    if (next >= 0) {
      waiting += (waiting.empty() ? "" : ", ") + name_of(group, rank) + " for " + name_of(group, next) +
                 step_of(board, pending.record.sequence);
    } else if (pending.kind != PendingOpKind::kCollective ||
               board.finished.load(std::memory_order_acquire) < pending.record.sequence) {
      text += "\n  " + name_of(group, rank) + " " + place_of(group, rank) + "; " + life_of(group, rank);
    }
  }
  return text + (waiting.empty() ? "" : "\n  waiting in the same operation: " + waiting);
}

// Describes ranks outside the group that are not alive, since this rank's peers may wait for them.
std::string describe_outside_ranks(GroupState& group) {
  transport::Transport& transport = group.engine().transport();
  const std::vector<Rank>& members = group.settings().members;
  std::string text;
  for (Rank rank = 0; rank < transport.size(); ++rank) {
    if (std::find(members.begin(), members.end(), rank) != members.end()) continue;
    if (transport.state(rank) == transport::PeerState::kAlive) continue;
    text += "\n  rank " + std::to_string(rank) + " of another group: " + life_of(transport, rank);
  }
  return text;
}

// Tells whether the peer of a send waits in a send to this rank.
bool sends_cross(GroupState& group, const PendingOp& pending) {
  if (pending.kind != PendingOpKind::kSend) return false;
  const RankBoard& board = group.channel().board(pending.message.peer);
  const auto transfer = transport::TransferNote::of(board.transfer.load(std::memory_order_relaxed));
  return transfer && transfer->is_send && transfer->peer == group.rank();
}

// Returns "; train/loop.cpp:88", or nothing where the caller is unknown: options that were declared before they were
// filled in, as bindings of other languages do, carry the place of their default.
std::string caller(std::string_view path, uint32_t line) {
  size_t slash = path.rfind('/');
  if (slash != std::string_view::npos && slash > 0) slash = path.rfind('/', slash - 1);
  const std::string_view file = slash == std::string_view::npos ? path : path.substr(slash + 1);
  if (line == 0 || file == "comm/communicator.h") return {};
  return "; " + std::string(file) + ":" + std::to_string(line);
}

}  // namespace

std::string describe(const OperationRecord& record) {
  const auto collective = static_cast<Collective>(record.collective);
  std::string text = std::string(collective_name(collective)) + " #" + std::to_string(record.sequence);
  if (record.name[0] != 0) text += " \"" + std::string(record.name) + "\"";
  text += " (";
  if (collective != Collective::kBarrier) {
    text += std::string(dtype_name(static_cast<DType>(record.dtype))) + " x " + std::to_string(record.count) + ", ";
  }
  if (record.has_reduce_op != 0) text += std::string(reduce_op_name(static_cast<ReduceOp>(record.reduce_op))) + ", ";
  if (has_root(collective)) {
    text += "root " + std::to_string(record.root) + ", ";
  }
  text += record.algorithm;
  if (record.details[0] != 0) text += ", " + std::string(record.details);
  return text + caller(record.file, record.line) + ")";
}

std::string describe_transfer(const PendingOp& pending) {
  const transport::Envelope& envelope = pending.message.envelope;
  std::string text = pending.message.peer == kAnySource
                         ? "receive from any rank"
                         : (pending.kind == PendingOpKind::kSend ? "send to " : "receive from ") +
                               name_of(*pending.group, pending.message.peer);
  if (!pending.name.empty()) text += " \"" + pending.name + "\"";
  return text + " (tag " + std::to_string(static_cast<int64_t>(envelope.tag)) + ", " +
         std::string(dtype_name(pending.dtype)) + " x " +
         std::to_string(static_cast<int64_t>(envelope.bytes) / size_of(pending.dtype)) +
         caller(pending.where.file_name(), pending.where.line()) + ")";
}

std::string timeout_report(GroupState& group, const PendingOp& pending, const std::vector<Rank>& awaited) {
  std::string text = describe_operation(pending) + " in group \"" + group.settings().name +
                     "\": " + name_of(group, group.rank()) + " waited " + waited_for(pending) + " for " +
                     name_ranks(group, awaited);
  if (pending.kind == PendingOpKind::kCollective && pending.begun) {
    text += " (step " + std::to_string(group.executor().steps_done()) + " of " +
            std::to_string(group.executor().num_steps()) + ")";
  }
  text += describe_other_ranks(group, pending) + describe_outside_ranks(group);
  if (sends_cross(group, pending))
    return text + "\n  fix: sends that cross wait for each other: send_async() on one side, or receive first there";
  return text +
         "\n  fix: every rank of the group must make the same calls in the same order; a rank that is alive and "
         "elsewhere lags, or its program differs. Raise `deadline` if it is only slow";
}

std::string device_timeout_report(GroupState& group, const PendingOp& pending) {
  return describe_operation(pending) + " in group \"" + group.settings().name + "\": " + name_of(group, group.rank()) +
         " waited " + waited_for(pending) +
         " for its device, to do what comes before the operation on the stream of its buffers, or to copy them"
         "\n  fix: look for a kernel that does not end, or a stream that waits for what comes later. Raise `deadline` "
         "if "
         "it is only slow";
}

std::string lost_report(GroupState& group, const PendingOp& pending, Rank peer) {
  const bool left = group.channel().board(peer).left.load(std::memory_order_acquire) != 0;
  std::string text = name_of(group, peer) + (left ? " has left" : " is lost") + ", while " +
                     name_of(group, group.rank()) + " is in " + describe_operation(pending) + " in group \"" +
                     group.settings().name + "\": " + life_of(group, peer);
  return text + "\n  " + name_of(group, peer) + " " + place_of(group, peer);
}

uint64_t first_difference(GroupState& group, Rank peer, uint64_t sequence) {
  for (uint64_t earlier = sequence - std::min(sequence, transport::kRecords) + 1; earlier <= sequence; ++earlier) {
    const auto ours = record_of(group, group.rank(), earlier), theirs = record_of(group, peer, earlier);
    if (ours && theirs && ours->fingerprint != theirs->fingerprint) return earlier;
  }
  return 0;
}

namespace {

// Lists what differs between two records whose fingerprints do.
std::string differing_fields(const OperationRecord& a, const OperationRecord& b) {
  const std::pair<bool, const char*> fields[] = {
      {a.collective != b.collective, "operation"},
      {std::string_view(a.name) != b.name, "name"},
      {a.dtype != b.dtype, "dtype"},
      {a.count != b.count, "count"},
      {a.has_reduce_op != b.has_reduce_op || a.reduce_op != b.reduce_op, "reduce op"},
      {a.root != b.root, "root"},
      {std::string_view(a.algorithm) != b.algorithm, "algorithm (without a name it follows from count and memory)"},
      {std::string_view(a.details) != b.details, "sizes of a list, counts, strides or segment_bytes"},
      {a.in_place != b.in_place, "in place or not"}};
  std::string text;
  for (const auto& [differs, field] : fields) {
    if (differs) text += (text.empty() ? "" : "; ") + std::string(field);
  }
  return text.empty() ? text : "\n  they differ in: " + text;
}

std::string difference(GroupState& group, Rank peer, uint64_t sequence, const std::string& found) {
  const auto ours = record_of(group, group.rank(), sequence), theirs = record_of(group, peer, sequence);
  return "operation #" + std::to_string(sequence) + " of group \"" + group.settings().name +
         "\" differs between ranks" + found + "\n  " + name_of(group, group.rank()) + " calls " +
         (ours ? describe(*ours) : "something else") + "\n  " + name_of(group, peer) + " calls " +
         (theirs ? describe(*theirs) : "something else") + (ours && theirs ? differing_fields(*ours, *theirs) : "") +
         "\n  fix: all ranks must agree in operation, name, count, counts, dtype, strides, reduce op, root, algorithm, "
         "segment_bytes, in place or not, and kind of memory";
}

}  // namespace

std::string mismatch_report(GroupState& group, const PendingOp& pending, Rank peer) {
  const uint64_t sequence = pending.record.sequence, first = first_difference(group, peer, sequence);
  if (first == sequence) return difference(group, peer, first, "");
  const std::string found = "; found in operation #" + std::to_string(sequence);
  if (first != 0) return difference(group, peer, first, found);
  return difference(group, peer, sequence, ", or one before it that is no longer on the boards");
}

std::string closing_report(GroupState& group, Rank peer, uint64_t sequence) {
  return difference(group, peer, sequence, "; found when " + name_of(group, group.rank()) + " closed the group");
}

std::string transfer_mismatch_report(const GroupState& group, const PendingOp& pending) {
  const transport::Envelope& received = pending.message.received_envelope;
  const auto dtype = static_cast<DType>(received.description - 1);
  return describe_transfer(pending) + " of " + name_of(group, group.rank()) + " meets a message of " +
         std::string(dtype_name(dtype)) + " x " +
         std::to_string(static_cast<int64_t>(received.bytes) / size_of(dtype)) +
         "\n  fix: send and receive must agree in count and dtype";
}

}  // namespace herd::comm
