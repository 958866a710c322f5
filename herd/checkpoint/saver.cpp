#include "herd/checkpoint/saver.h"

#include <ATen/ATen.h>

#include <cstring>

#include "herd/base/check.h"
#include "herd/base/error.h"
#include "herd/base/log.h"
#include "herd/bridge/tensor_buffer.h"
#include "herd/storage/checkpoint_folder.h"
#include "herd/storage/checkpoint_writer.h"

namespace herd {
namespace {

// An outcome as text between ranks: "ok <content>" or "<code> <message>".
std::string failure_text(const Error& error) {
  return std::to_string(static_cast<int>(error.code())) + " " + error.message();
}
std::string success_text(const std::string& content) { return "ok " + content; }
bool is_success(const std::string& text) { return text.starts_with("ok "); }
std::string content_of(const std::string& text) { return text.substr(text.find(' ') + 1); }

[[noreturn]] void throw_failure(const std::string& text) {
  throw Error(static_cast<Code>(std::stoi(text)), content_of(text));
}

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

// This rank's pieces and their bytes; the memory is kept from save to save.
struct CheckpointSaver::Snapshot {
  std::vector<std::byte> memory;
  std::vector<TensorPiece> pieces;

  void take(const std::vector<NamedTensor>& tensors) {
    size_t bytes = 0;
    for (const auto& tensor : tensors) bytes += static_cast<size_t>(tensor.value.nbytes());
    memory.resize(bytes);
    pieces.clear();
    size_t at = 0;
    for (const auto& tensor : tensors) {
      HERD_CHECK_EQ(tensor.value.numel(), tensor.slice.elements.size());
      const at::Tensor value = tensor.value.detach().to(at::kCPU).contiguous();
      const auto size = static_cast<size_t>(value.nbytes());
      if (size > 0) std::memcpy(memory.data() + at, value.const_data_ptr(), size);
      pieces.push_back({tensor.name, dtype_of(value.scalar_type()), tensor.shape, tensor.slice,
                        std::span<const std::byte>(memory).subspan(at, size)});
      at += size;
    }
  }
};

CheckpointSaver::CheckpointSaver(Options options, CheckpointPeers& peers, FileSystem& files)
    : options_(std::move(options)), peers_(peers), files_(files), snapshot_(std::make_unique<Snapshot>()) {}

CheckpointSaver::~CheckpointSaver() {
  try {
    wait();
  } catch (const std::exception& error) {
    log::error(std::string("a checkpoint was not saved: ") + error.what());
  }
}

void CheckpointSaver::save(CheckpointState state, const std::vector<NamedTensor>& tensors) {
  wait();
  snapshot_->take(tensors);
  writer_ = std::thread([this, state = std::move(state)] {
    try {
      write(state);
    } catch (...) {
      failure_ = std::current_exception();
    }
  });
}

void CheckpointSaver::wait() {
  if (!writer_.joinable()) return;
  writer_.join();
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
  last_saved_ = written_;
}

// Every rank makes the same three exchanges, whatever fails where.
void CheckpointSaver::write(const CheckpointState& state) {
  std::string opened;
  if (peers_.rank() == 0) {
    opened = outcome_of([&] { return new_checkpoint_folder(options_.root, state.step, files_).string(); });
  }
  opened = peers_.from_root(opened);
  if (!is_success(opened)) throw_failure(opened);
  const std::filesystem::path folder = content_of(opened);

  const auto parts = peers_.to_root(outcome_of([&] { return write_part(folder); }));
  std::string committed;
  if (peers_.rank() == 0) {
    committed = outcome_of([&] {
      commit(folder, state, parts);
      return std::string();
    });
  }
  committed = peers_.from_root(committed);
  if (!is_success(committed)) throw_failure(committed);
  written_ = folder;
}

std::string CheckpointSaver::write_part(const std::filesystem::path& folder) {
  return format_manifest(write_shard(folder, peers_.rank(), snapshot_->pieces, files_));
}

void CheckpointSaver::commit(const std::filesystem::path& folder, const CheckpointState& state,
                             const std::vector<std::string>& parts) {
  std::vector<Manifest> manifests;
  for (size_t peer = 0; peer < parts.size(); ++peer) {
    const std::string from = "rank " + std::to_string(peer);
    if (!is_success(parts[peer])) {
      throw Error(static_cast<Code>(std::stoi(parts[peer])), from + ": " + content_of(parts[peer]));
    }
    manifests.push_back(parse_manifest(content_of(parts[peer]), "the part of " + from, /*partial=*/true));
  }
  Manifest manifest;
  manifest.herd_version = options_.herd_version;
  manifest.step = state.step;
  manifest.samples = state.samples;
  manifest.config = state.config;
  manifest.notes = state.notes;
  commit_checkpoint(folder, std::move(manifest), manifests, files_);
  for (const auto& path : keep_newest(options_.root, options_.keep, files_)) {
    log::warning("could not delete the old checkpoint " + path.string());
  }
}

}  // namespace herd
