#include "herd/checkpoint/saver.h"

#include <ATen/ATen.h>
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

#include "herd/base/check.h"
#include "herd/base/elapsed.h"
#include "herd/base/error.h"
#include "herd/base/log.h"
#include "herd/base/units.h"
#include "herd/bridge/split_float.h"
#include "herd/bridge/tensor_buffer.h"
#include "herd/storage/atomic_file.h"
#include "herd/storage/checkpoint_folder.h"
#include "herd/storage/checkpoint_writer.h"
#include "herd/storage/run_id.h"

namespace herd {
namespace {

using Clock = std::chrono::steady_clock;

// Ranks exchange outcomes as texts: "ok <content>" or "<code> <message>".
std::string failure_text(const Error& error) {
  return std::to_string(static_cast<int>(error.code())) + " " + error.message();
}
std::string success_text(const std::string& content) { return "ok " + content; }
bool is_success(const std::string& text) { return text.starts_with("ok "); }
std::string content_of(const std::string& text) { return text.substr(text.find(' ') + 1); }

Code code_of(const std::string& text) { return static_cast<Code>(std::stoi(text)); }

[[noreturn]] void throw_failure(const std::string& text) { throw Error(code_of(text), content_of(text)); }

// Rank 0 answers a failure with one of these texts, which every rank gets.
constexpr char kRetry[] = "again", kSkip[] = "the next save takes its place", kFail[] = "it has failed";

// Runs `action`, which returns the content of a success.
template <typename Action>
std::string outcome_of(const Action& action) {
  try {
    return success_text(action());
  } catch (const Error& error) {
    return failure_text(error);
  } catch (const std::exception& error) {
    return failure_text(Error(Code::kStorage, error.what()));
  }
}

}  // namespace

// Holds copies of this rank's tensors. The memory is kept from save to save. It is not cleared, and lies in large
// pages: the first touch of small pages would take longer than the copy.
struct CheckpointSaver::Snapshot {
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::unique_ptr<std::byte, Free> memory;
  size_t capacity = 0;
  std::vector<TensorPiece> pieces;

  void make_room(size_t bytes) {
    constexpr size_t kLargePage = size_t{2} << 20;
    if (bytes <= capacity) return;
    memory.reset();
    capacity = 0;
    const size_t rounded = (bytes + kLargePage - 1) / kLargePage * kLargePage;
    memory.reset(static_cast<std::byte*>(std::aligned_alloc(kLargePage, rounded)));
    if (!memory) throw std::bad_alloc();
    capacity = rounded;
    ::madvise(memory.get(), capacity, MADV_HUGEPAGE);  // advice, which the kernel may ignore
  }

  static size_t bytes_of(const NamedTensor& tensor) {
    return static_cast<size_t>(tensor.value.numel()) * c10::elementSize(type_of(tensor));
  }

  static void copy(const NamedTensor& tensor, std::byte* to, size_t bytes) {
    const at::Tensor value = tensor.value.detach().to(at::kCPU).contiguous();
    if (tensor.low_halves.defined())
      join_float(value, tensor.low_halves.to(at::kCPU).contiguous(), at::from_blob(to, value.sizes(), at::kFloat));
    else if (bytes > 0)
      std::memcpy(to, value.const_data_ptr(), bytes);
  }

  void take(const std::vector<NamedTensor>& tensors) {
    size_t bytes = 0;
    for (const auto& tensor : tensors) bytes += bytes_of(tensor);
    make_room(bytes);
    pieces.clear();
    size_t offset = 0;
    for (const auto& tensor : tensors) {
      HERD_CHECK_EQ(tensor.value.numel(), tensor.slice.elements.size());
      const auto size = bytes_of(tensor);
      copy(tensor, memory.get() + offset, size);
      pieces.push_back({tensor.name, dtype_of(type_of(tensor)), tensor.shape, tensor.slice,
                        std::span<const std::byte>(memory.get() + offset, size)});
      offset += size;
    }
  }
};

CheckpointSaver::CheckpointSaver(Options options, CheckpointPeers& peers, FileSystem& file_system)
    : options_(std::move(options)), peers_(peers), files_(file_system), snapshot_(std::make_unique<Snapshot>()) {}

CheckpointSaver::~CheckpointSaver() {
  try {
    join(WaitingFor::kDestruction);
  } catch (const std::exception& error) {
    log_error(std::string("a checkpoint was not saved: ") + error.what());
  }
}

void CheckpointSaver::save(CheckpointState state, const std::vector<NamedTensor>& tensors) {
  const auto begin = std::chrono::steady_clock::now();
  join(WaitingFor::kNextSave);
  snapshot_->take(tensors);
  times_.blocked_ms += us_since(begin) / 1e3;
  writer_ = std::thread([this, state = std::move(state)] {
    const auto writing = std::chrono::steady_clock::now();
    try {
      write(state);
    } catch (...) {
      failure_ = std::current_exception();
      failed_ = true;
    }
    writing_ms_ = us_since(writing) / 1e3;
  });
}

void CheckpointSaver::wait() { join(WaitingFor::kEnd); }

void CheckpointSaver::join(WaitingFor reason) {
  if (!writer_.joinable()) return;
  {
    const std::lock_guard hold(mutex_);
    waiting_for_ = reason;
    attempts_left_ = options_.retries.max_attempts;
  }
  changed_.notify_all();
  writer_.join();
  waiting_for_ = WaitingFor::kNothing;
  failed_ = false;
  const std::exception_ptr failure = std::exchange(failure_, nullptr);
  if (std::exchange(given_up_, false)) return;
  if (failure) std::rethrow_exception(failure);
  last_saved_ = written_;
  times_.background_ms += writing_ms_;
  ++times_.saves;
}

int64_t CheckpointSaver::snapshot_bytes() const { return static_cast<int64_t>(snapshot_->capacity); }

// Every rank gets the same text of a failure; rank 0 decides what follows and tells the others.
void CheckpointSaver::write(const CheckpointState& state) {
  {
    const std::lock_guard hold(mutex_);
    if (waiting_for_ == WaitingFor::kNothing) attempts_left_ = options_.retries.max_attempts;
  }
  while (true) {
    const std::string failure = try_write(state);
    if (failure.empty()) break;
    const std::string next = peers_.broadcast_from_root(peers_.rank() == 0 ? after_failure(state, failure) : "");
    if (next == kRetry) continue;
    given_up_ = next == kSkip;
    throw_failure(failure);
  }
  if (last_warning_ != Clock::time_point())
    log_info("saved again: the checkpoint of step " + std::to_string(state.step));
  pause_ = {};
  last_warning_ = {};
}

// Returns the answer to a failure, after a pause that ends as soon as somebody waits for the save.
std::string CheckpointSaver::after_failure(const CheckpointState& state, const std::string& failure) {
  if (code_of(failure) != Code::kStorage) return kFail;
  const bool older_exists = has_older();
  const std::string goes_on = older_exists ? ", training goes on with an older checkpoint" : "";
  std::unique_lock hold(mutex_);
  if (waiting_for_ == WaitingFor::kDestruction) return kFail;
  if (!(older_exists && waiting_for_ == WaitingFor::kNextSave)) {
    const bool is_needed = !older_exists || waiting_for_ == WaitingFor::kEnd;
    if (is_needed && --attempts_left_ <= 0) return kFail;
    pause_ = pause_.count() == 0 ? options_.retries.first_pause : std::min(2 * pause_, options_.retries.longest_pause);
    say_failure(state.step, failure,
                "it is tried again in " + format_us(1e3 * static_cast<double>(pause_.count())) + goes_on);
    if (changed_.wait_for(hold, pause_, [this, seen = waiting_for_] { return waiting_for_ != seen; })) pause_ = {};
    if (waiting_for_ == WaitingFor::kDestruction) return kFail;
  }
  if (!older_exists || waiting_for_ != WaitingFor::kNextSave) return kRetry;
  say_failure(state.step, failure, "the next save takes its place" + goes_on);
  return kSkip;
}

bool CheckpointSaver::has_older() const {
  try {
    return holds_checkpoint(options_.root, options_.run);
  } catch (const Error&) {  // a folder that can't be listed can't be relied on
    return false;
  }
}

// Warns at most once in ten seconds.
void CheckpointSaver::say_failure(int64_t step, const std::string& failure, const std::string& what_follows) {
  constexpr std::chrono::seconds kMinInterval{10};
  const auto now = Clock::now();
  if (last_warning_ != Clock::time_point() && now - last_warning_ < kMinInterval) return;
  last_warning_ = now;
  log_warning("the checkpoint of step " + std::to_string(step) + " is not saved: " + content_of(failure) + "\n  " +
              what_follows);
}

// Returns the text of a failure, or "". Every rank makes the same exchanges, whatever fails where.
std::string CheckpointSaver::try_write(const CheckpointState& state) {
  std::string opened;
  if (peers_.rank() == 0) {
    opened = outcome_of([&] { return new_checkpoint_folder(options_.root, state.step, files_).string(); });
  }
  opened = peers_.broadcast_from_root(opened);
  if (!is_success(opened)) return opened;
  const std::filesystem::path folder = content_of(opened);

  const auto parts = peers_.gather_to_root(outcome_of([&] { return write_part(folder, state); }));
  std::string committed;
  if (peers_.rank() == 0) {
    committed = outcome_of([&] {
      commit(folder, state, parts);
      return std::string();
    });
  }
  committed = peers_.broadcast_from_root(committed);
  if (is_success(committed)) {
    written_ = folder;
    return {};
  }
  if (peers_.rank() == 0) discard_unfinished(folder, files_);  // frees its space on what may be a full disk
  return committed;
}

std::string CheckpointSaver::write_part(const std::filesystem::path& folder, const CheckpointState& state) {
  return format_manifest(write_shard(folder, peers_.rank(), snapshot_->pieces, files_, state.shard_notes));
}

void CheckpointSaver::commit(const std::filesystem::path& folder, const CheckpointState& state,
                             const std::vector<std::string>& parts) {
  std::vector<Manifest> manifests;
  for (size_t peer = 0; peer < parts.size(); ++peer) {
    const std::string from = "rank " + std::to_string(peer);
    if (!is_success(parts[peer])) {
      throw Error(code_of(parts[peer]), from + ": " + content_of(parts[peer]));
    }
    manifests.push_back(parse_manifest(content_of(parts[peer]), "the part of " + from, /*partial=*/true));
  }
  Manifest manifest;
  manifest.herd_version = options_.herd_version;
  manifest.step = state.step;
  manifest.samples = state.samples;
  manifest.config = state.config;
  manifest.notes = state.notes;
  if (!options_.run.empty()) manifest.notes[kRunNote] = options_.run;
  if (state.extra_files) {
    for (const auto& [name, file] : *state.extra_files) write_small_file(folder / name, file, files_);
  }
  commit_checkpoint(folder, std::move(manifest), manifests, files_);
  for (const auto& path : keep_newest(options_.root, {options_.keep, options_.run, folder}, files_)) {
    log_warning("could not delete the old checkpoint " + path.string());
  }
}

}  // namespace herd
