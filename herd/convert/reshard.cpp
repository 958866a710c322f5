#include "herd/convert/reshard.h"

#include <algorithm>
#include <set>

#include "herd/base/error.h"
#include "herd/convert/companions.h"
#include "herd/spec/build_model_table.h"
#include "herd/spec/layout.h"
#include "herd/spec/model_states.h"
#include "herd/storage/checkpoint_folder.h"
#include "herd/storage/checkpoint_reader.h"
#include "herd/storage/checkpoint_writer.h"

namespace herd::convert {
namespace {

constexpr int64_t kBufferBytes = int64_t{4} << 20;
constexpr int kMostRanks = 99999;  // shard files are numbered with five digits

spec::RunFile run_of(const Manifest& manifest) {
  if (manifest.config.empty()) {
    throw Error(
        Code::kBadConfig,
        "the checkpoint holds no run file, so how ranks would share its tensors is not known\n  fix: --ranks 1, "
        "which puts all into one file");
  }
  return spec::parse_run_text(manifest.config, std::string("the run file in ") + kManifestName);
}

// Returns the suffixes of optimizer states, such as ".exp_avg" if "w" and "w.exp_avg" are both there. Weights have "".
std::set<std::string> suffixes_of(const Manifest& manifest, const std::set<std::string>& weights) {
  std::set<std::string> suffixes;
  for (const auto& [name, tensor] : manifest.tensors) {
    const size_t dot = name.rfind('.');
    if (weights.contains(name))
      suffixes.insert("");
    else if (dot != name.npos && weights.contains(name.substr(0, dot)))
      suffixes.insert(name.substr(dot));
  }
  return suffixes;
}

void add_whole(const std::string& name, const CheckpointTensor& tensor, std::vector<ShardPiece>& out) {
  out.push_back({name, tensor.dtype, tensor.shape, whole_slice(tensor.shape)});
}

// Adds to each rank's list the elements of each tensor that lie in its part of the group.
void add_group(const Manifest& manifest, const spec::ParameterGroupShape& group, const std::string& suffix,
               int64_t elements_per_rank, std::vector<std::vector<ShardPiece>>& out) {
  int64_t offset = 0;
  for (const auto& parameter : group.parameters) {
    const auto found = manifest.tensors.find(parameter.name + suffix);
    const int64_t elements = parameter.elements(), first = offset;
    offset += elements;
    if (found == manifest.tensors.end()) continue;
    for (int64_t rank = first / elements_per_rank; rank * elements_per_rank < first + elements; ++rank) {
      const int64_t begin = std::max(rank * elements_per_rank, first);
      const int64_t end = std::min((rank + 1) * elements_per_rank, first + elements);
      out[static_cast<size_t>(rank)].push_back({found->first, found->second.dtype, found->second.shape,
                                                slice_of_elements(found->second.shape, begin - first, end - first)});
    }
  }
}

void copy_pieces(CheckpointReader& reader, const std::vector<ShardPiece>& pieces, ShardWriter& shard,
                 const std::function<void(int64_t)>& copied) {
  std::vector<std::byte> buffer;
  for (const size_t index : shard.order()) {
    const ShardPiece& piece = pieces[index];
    const int64_t width = size_of(piece.dtype), step = kBufferBytes / width;
    const IndexRange all = piece.slice.elements;
    for (int64_t begin = all.begin; begin < all.end; begin += step) {
      TensorSlice part = piece.slice;
      part.elements = {begin, std::min(all.end, begin + step)};
      buffer.resize(static_cast<size_t>(part.elements.size() * width));
      reader.read(piece.name, part, buffer);
      shard.append(buffer);
      copied(static_cast<int64_t>(buffer.size()));
    }
  }
}

}  // namespace

std::vector<std::vector<ShardPiece>> shards_of(const Manifest& manifest, int ranks) {
  if (ranks < 1 || ranks > kMostRanks) {
    throw Error(Code::kBadConfig,
                "no run has " + std::to_string(ranks) + " ranks\n  fix: --ranks 1 to " + std::to_string(kMostRanks));
  }
  std::vector<std::vector<ShardPiece>> shards(static_cast<size_t>(ranks));
  const bool is_chain = !manifest.config.empty() && run_of(manifest).model.kind == "chain";
  if (ranks == 1 && (manifest.config.empty() || is_chain)) {
    for (const auto& [name, tensor] : manifest.tensors) add_whole(name, tensor, shards[0]);
    return shards;
  }
  if (is_chain) {
    throw Error(
        Code::kBadConfig,
        "the checkpoint holds a chain, whose blocks are known to its program alone, so how ranks would share "
        "its tensors is not known\n  fix: --ranks 1, which puts all into one file; runs of that program load it "
        "at any number of ranks");
  }
  const spec::RunFile run = run_of(manifest);
  const spec::ModelTable table = spec::model_table(run, 1);
  const int64_t element_bytes = run.strategy.precision == "fp32" ? 4 : 2;  // of the weights that ZeRO cuts
  std::set<std::string> weights;
  for (const auto& group : table.groups) {
    for (const auto& parameter : group.parameters) weights.insert(parameter.name);
  }
  const std::set<std::string> suffixes = suffixes_of(manifest, weights);
  for (const std::string& suffix : suffixes) {
    for (const auto& group : table.groups)
      add_group(manifest, group, suffix, spec::shard_bytes(group.elements() * element_bytes, ranks) / element_bytes,
                shards);
  }
  for (const auto& [name, tensor] : manifest.tensors) {
    const size_t dot = name.rfind('.');
    if (!weights.contains(name) && (dot == name.npos || !weights.contains(name.substr(0, dot))))
      add_whole(name, tensor, shards[0]);
  }
  return shards;
}

Resharded reshard(const ReshardOptions& options, FileSystem& files) {
  CheckpointReader reader(resolve_checkpoint(options.source));
  const Manifest& from = reader.manifest();
  const auto shards = shards_of(from, options.ranks);
  Resharded result{.step = from.step};
  int64_t total_bytes = 0;
  for (const auto& pieces : shards) {
    for (const ShardPiece& piece : pieces) total_bytes += piece.bytes();
  }
  AtomicFolder folder(options.out, options.replace, files);
  std::vector<Manifest> parts;
  for (size_t rank = 0; rank < shards.size(); ++rank) {
    if (shards[rank].empty()) continue;
    ShardWriter shard(folder.working_path(), static_cast<Rank>(rank), shards[rank], files);
    copy_pieces(reader, shards[rank], shard, [&](int64_t bytes) {
      result.bytes += bytes;
      if (options.progress) options.progress(result.bytes, total_bytes);
    });
    parts.push_back(shard.commit());
  }
  Manifest manifest = from;
  manifest.tensors.clear();
  manifest.files.clear();
  write_companions(folder.working_path(), read_companions(reader.folder()), files);
  commit_checkpoint(folder.working_path(), std::move(manifest), parts, files);
  folder.commit();
  result.files = static_cast<int>(parts.size());
  return result;
}

}  // namespace herd::convert
