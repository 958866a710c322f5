#include "herd/runtime/flat_parameters.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <bit>

#include "herd/base/check.h"
#include "herd/base/error.h"
#include "herd/bridge/device_stream.h"
#include "herd/bridge/tensor_buffer.h"
#include "herd/kernels/codec.h"
#include "herd/program/collective_message.h"
#include "herd/program/program_names.h"
#include "herd/spec/model_states.h"

namespace herd::runtime {
namespace {

using program::Codec;
using program::Value;
using program::ValueKind;

constexpr int64_t kLineBytes = 64;  // values begin at a cache line
constexpr int kPartNumbers = 3;     // begin and size of a part, and the place of its group

constexpr Codec kWeightCodec = Codec::kInt8;  // in which weights may be gathered
constexpr kernels::CodecSettings kWeightCodecSettings = {.kind = kernels::CodecKind::kInt8};

kernels::CodecSettings settings_of(Codec codec) {
  return {.kind = codec == Codec::kInt4 ? kernels::CodecKind::kInt4 : kernels::CodecKind::kInt8};
}

at::ScalarType type_of(const nn::ParameterGroup& group, ValueKind kind) {
  return kind == ValueKind::kWeight ? group.dtype() : group.gradient_dtype();
}
int64_t element_bytes(const nn::ParameterGroup& group, ValueKind kind) {
  return static_cast<int64_t>(c10::elementSize(type_of(group, kind)));
}
int64_t bytes_of(const nn::ParameterGroup& group, ValueKind kind) {
  return group.elements() * element_bytes(group, kind);
}

// Returns a step in which every value is whole, and gradients have slots of their own.
program::Program whole_step(const Groups& groups) {
  program::Program step;
  for (int g = 0; g < static_cast<int>(groups.size()); ++g) {
    const nn::ParameterGroup& group = *groups[static_cast<size_t>(g)];
    step.values[program::weight(g)] = {.bytes = bytes_of(group, ValueKind::kWeight), .persistent = true};
    if (!group.frozen())
      step.values[program::gradient(g)] = {.bytes = bytes_of(group, ValueKind::kGradient), .slot = g};
  }
  return step;
}

// Tells whether the gradient is what encoded_gradients.h keeps.
bool is_exchanged_with_residuals(const program::Program& step, const Value& value) {
  return value.kind == ValueKind::kGradient && program::keeps_residuals(value.codec) && !step.values.at(value).pooled;
}

bool on_host(const Value& value, ValueKind kind) { return value.kind == kind && value.tier == program::Tier::kHost; }

}  // namespace

FlatParameters::FlatParameters(Groups groups, Communicator& comm, const std::vector<at::ScalarType>& states,
                               uint64_t seed)
    : FlatParameters(groups, whole_step(groups), comm, states, seed) {}

FlatParameters::FlatParameters(Groups groups, const program::Program& step, Communicator& comm,
                               const std::vector<at::ScalarType>& states, std::optional<uint64_t> seed,
                               const FilePlace& file)
    : groups_(std::move(groups)), in_files_(at::kByte), state_types_(states) {
  HERD_CHECK(!groups_.empty(), "a model without parameters");
  for (const auto& group : groups_)
    for (const ValueKind kind : {ValueKind::kWeight, ValueKind::kGradient})
      HERD_CHECK(type_of(*group, kind) == type_of(*groups_.front(), kind),
                 group->name() + " has another dtype than the first group");
  cuts_.resize(groups_.size());
  const std::map<int, int> axes = program::weight_shard_axes(step);
  for (const auto& [group, axis] : axes)
    cuts_.at(static_cast<size_t>(group)) = {step.mesh.index(axis, step.rank), step.mesh.size(axis),
                                            program::kWhole.shard_on(axis)};
  for (const program::Op& op : step.ops) {
    if (!program::is_rooted(op)) continue;
    for (const Value& value : program::moved_values(op))
      cuts_.at(static_cast<size_t>(value.index)) = {
          .shards = step.mesh.size(op.axis), .placement = program::kWhole.owned_on(op.axis), .owned = true};
  }
  for (const auto& [value, info] : step.values) {
    if (value.kind != ValueKind::kGradient || value.placement.partial == 0) continue;
    host_sums_ = value.placement;
    hosts_ = step.mesh.size(std::countr_zero(value.placement.partial));
    host_terms_ = {.shard = value.placement.shard};
  }
  find_pieces(step);
  check_room(step);
  make_arenas(step);
  std::optional<Communicator> equal_ranks = ranks_of_equal_size(comm);
  allocate_arenas(equal_ranks ? *equal_ranks : comm, seed.has_value());
  open_file(step, file);

  on_host_.assign(groups_.size(), false);
  for (int g = 0; g < num_groups(); ++g) {
    const Value whole = program::weight(g);
    const auto info = step.values.find(whole);
    keeps_whole_.push_back(info != step.values.end() && info->second.persistent);
    const Value own = own_value(ValueKind::kWeight, g);
    const auto persists = [&](const Value& value) {
      const auto at = step.values.find(value);
      return at != step.values.end() && at->second.persistent;
    };
    const bool waits = persists(in_tier(own, program::Tier::kHost)) || persists(in_tier(own, program::Tier::kNvme));
    stays_on_host_.push_back(!keeps_whole(g) && !persists(own) && waits);
    if (stays_on_host(g)) {
      const at::Tensor all = in_file(ValueKind::kWeight, g) ? at::Tensor() : whole_on_host(g);
      if (seed && all.defined())
        group(g).initialize(*seed, all);
      else if (seed)
        group(g).initialize(*seed, own_weights(g), part(g).begin);
    } else if (keeps_whole(g)) {
      if (seed) group(g).initialize(*seed, memory(whole).narrow(0, 0, group(g).elements()));
      attach(g);
    } else if (holds(g) && seed) {
      group(g).initialize(*seed, own_weights(g), part(g).begin);
    }
    const auto gradient = step.values.find(program::gradient(g));
    pools_gradient_.push_back(gradient != step.values.end() && gradient->second.pooled);
    if (gradient != step.values.end() && !gradient->second.pooled) attach_gradient(g);
  }
  find_replicas(comm);
  allocate_states(std::any_of(step.values.begin(), step.values.end(),
                              [](const auto& entry) { return on_host(entry.first, ValueKind::kState); }),
                  comm);
  for (int g = 0; g < num_groups(); ++g) {
    refresh_host(g);
    if (gathers_encoded(g)) encode_shard(g);
  }
  for (int g = 0; remainder_ && g < num_groups(); ++g) {
    if (!seed || !holds(g) || group(g).frozen()) continue;
    const bool is_in_file = in_file(ValueKind::kState, g);
    group(g).initialize(*seed, is_in_file ? own_master(g) : own_remainder(g, remainder_->type()), part(g).begin);
  }
  forget_mapped();
}

FlatParameters::~FlatParameters() {
  for (const auto& group : groups_) {
    group->detach();
    group->detach_gradient();
  }
}

void FlatParameters::check_room(const program::Program& step) const {
  for (const auto& [value, info] : step.values) {
    const bool parameters = value.kind == ValueKind::kWeight || value.kind == ValueKind::kGradient;
    if (!parameters || value.tier != program::Tier::kDevice || !value.placement.is_whole()) continue;
    if (program::keeps_residuals(value.codec)) continue;  // its bytes are those of the codec
    const int64_t width = value.codec == Codec::kBf16 ? 2 : element_bytes(group(value.index), value.kind);
    HERD_CHECK(info.bytes >= group(value.index).elements() * width && info.bytes % width == 0,
               program::value_name(step.mesh, value) + " of the program has no room for " + group(value.index).name());
  }
}

void FlatParameters::make_arenas(const program::Program& step) {
  const auto shard_of = [&](int group) { return cut_of(group).shard; };
  const auto make = [&](const Arena::Contents& contents, at::ScalarType type, int64_t alignment) {
    const auto belongs = [&](const Value& value) {
      const bool other = Arena::contents_of(value) != contents;
      // What keeps residuals has memory of its own (encoded_gradients.h), and so have states that stay on the host.
      const bool elsewhere =
          value.kind == ValueKind::kState ? step.values.at(value).persistent : is_exchanged_with_residuals(step, value);
      return !other && !elsewhere;
    };
    arenas_.emplace(contents, Arena(type, alignment)).first->second.lay_out(step, belongs, shard_of);
  };
  const nn::ParameterGroup& first = *groups_.front();
  for (const ValueKind kind : {ValueKind::kWeight, ValueKind::kGradient}) {
    make({kind}, type_of(first, kind), kLineBytes);
    make({.kind = kind, .tier = program::Tier::kHost}, type_of(first, kind), 0);
  }
  make({ValueKind::kGradient, Codec::kBf16}, at::kBFloat16, kLineBytes);
  make({ValueKind::kGradient, Codec::kBf16, program::Tier::kHost}, at::kBFloat16, 0);
  make({ValueKind::kWeight, kWeightCodec}, at::kByte, kLineBytes);
  for (const Codec codec : {Codec::kInt8, Codec::kInt4}) make({ValueKind::kGradient, codec}, at::kByte, kLineBytes);
  for (const ValueKind kind : {ValueKind::kState, ValueKind::kActivation})
    make({.kind = kind, .tier = program::Tier::kHost}, at::kByte, 0);
}

// Collective over `comm`.
void FlatParameters::allocate_arenas(Communicator& comm, bool zeros_in_weights) {
  const bool is_cut = std::any_of(cuts_.begin(), cuts_.end(), [](const Cut& cut) { return cut.shards > 1; });
  const bool gathers_encoded = arena(ValueKind::kWeight, kWeightCodec).elements() > 0;
  for (auto& [contents, arena] : arenas_) {
    if (contents.tier == program::Tier::kHost) {
      arena.allocate_on_host(device());
      continue;
    }
    const bool weights = contents.kind == ValueKind::kWeight, plain = contents.codec == Codec::kPlain;
    const bool apart = plain && lies_apart(arena);
    const bool read_by_peers = (!weights || !plain || is_cut) && !apart && comm.size() > 1;
    const bool symmetric = device().is_cpu() && read_by_peers && arena.elements() > 0;
    arena.allocate({.label = weights ? MemoryLabel::kWeights : MemoryLabel::kGradients,
                    .symmetric = symmetric,
                    .zeros = !weights || !plain || zeros_in_weights || gathers_encoded,
                    .counts_slots_apart = device().is_cpu() && apart},
                   device(), comm);
  }
}

void FlatParameters::allocate_states(bool are_on_host, Communicator& comm) {
  states_on_host_ = are_on_host;
  std::vector<Arena*> arenas;
  for (const at::ScalarType type : state_types_) states_.emplace_back(type);
  for (Arena& arena : states_) arenas.push_back(&arena);
  const at::ScalarType type = groups_.front()->dtype();
  if (type != at::kFloat)
    arenas.push_back(&remainder_.emplace(type == at::kBFloat16 && !are_on_host ? at::kShort : at::kFloat));
  for (Arena* arena : arenas) {
    for (int g = 0; g < num_groups(); ++g) {
      if (!holds(g) || group(g).frozen() || in_file(ValueKind::kState, g)) continue;
      const int64_t line = kLineBytes / element_bytes(group(g), ValueKind::kWeight);
      const int64_t elements = is_of_other_owner(g) ? 0 : cut(g) ? part_elements(g) : group(g).elements();
      arena->add(own_value(ValueKind::kState, g), (elements + line - 1) / line * line);
    }
    are_on_host ? arena->allocate_on_host(device()) : arena->allocate({.label = MemoryLabel::kStates}, device(), comm);
  }
}

void FlatParameters::open_file(const program::Program& step, const FilePlace& place) {
  in_files_.lay_out(
      step, [](const Value& value) { return value.tier == program::Tier::kNvme; }, [](int) { return 0; });
  std::string contents;
  for (const auto& [value, info] : step.values) {
    if (in_files_.contains(value))
      contents += program::value_name(step.mesh, value) + " " + std::to_string(info.bytes) + "\n";
  }
  if (contents.empty()) return;
  file_ = std::make_unique<NvmeFile>(NvmeFile::Options{.paths = place.paths,
                                                       .bytes = in_files_.elements(),
                                                       .run = place.run,
                                                       .contents = contents,
                                                       .memory = staging_memory(step)});
}

// Returns the memory from which files are written, and to which they are read: the staging buffers, neighbours as one.
std::vector<std::span<std::byte>> FlatParameters::staging_memory(const program::Program& step) const {
  std::map<std::byte*, size_t> parts;
  for (const Value& value : staged_values()) {
    if (step.values.at(value).persistent) continue;
    const at::Tensor part = memory(value);
    size_t& bytes = parts[static_cast<std::byte*>(part.mutable_data_ptr())];
    bytes = std::max(bytes, static_cast<size_t>(part.nbytes()));
  }
  std::vector<std::span<std::byte>> out;
  for (const auto& [begin, bytes] : parts) {
    if (!out.empty() && out.back().data() + out.back().size() >= begin)
      out.back() = {out.back().data(),
                    std::max(out.back().size(), static_cast<size_t>(begin - out.back().data()) + bytes)};
    else
      out.emplace_back(begin, bytes);
  }
  return out;
}

void FlatParameters::find_pieces(const program::Program& step) {
  pieces_.resize(groups_.size());
  for (const auto& [value, info] : step.values) {
    if (!on_host(value, ValueKind::kWeight) || value.tensor == 0) continue;
    Pieces& pieces = pieces_.at(static_cast<size_t>(value.index));
    const int64_t elements = info.bytes / element_bytes(group(value.index), ValueKind::kWeight);
    if (value.tensor == 1) pieces.elements = elements;
    pieces.count = std::max(pieces.count, value.tensor);
    pieces.all += elements;
  }
}

kernels::ElementRange FlatParameters::piece(int index, int number) const {
  const kernels::ElementRange own = part(index);
  if (number == 0) return own;
  const int64_t size = pieces_[static_cast<size_t>(index)].elements;
  const int64_t begin = std::min(own.end, own.begin + (number - 1) * size);
  return {begin, std::min(own.end, begin + size)};
}

int64_t FlatParameters::state_room(int index, int number) const {
  const Pieces& pieces = pieces_[static_cast<size_t>(index)];
  if (pieces.count == 0) return part(index).size();
  const auto blocks = [](int64_t elements) { return (elements + kNvmeBlock - 1) / kNvmeBlock * kNvmeBlock; };
  if (number == 0) return blocks(pieces.all);
  return number < pieces.count ? pieces.elements : blocks(pieces.all - (pieces.count - 1) * pieces.elements);
}

at::Tensor FlatParameters::mapped(const Value& value) const {
  const bool has_pieces = value.kind != ValueKind::kActivation && num_pieces(value.index) > 0;
  Value piece = value;
  piece.tensor = has_pieces ? 1 : 0;
  if (!in_files_.contains(piece)) return {};
  const int64_t begin = in_files_.place(piece).begin;
  const std::span<std::byte> all = file_->map();
  int64_t bytes = host_bytes_of(piece);
  while (has_pieces && piece.tensor < num_pieces(value.index)) {  // its pieces follow each other
    ++piece.tensor;
    bytes += host_bytes_of(piece);
  }
  return at::from_blob(all.data() + begin, {bytes}, at::kByte);
}

int64_t FlatParameters::host_bytes_of(const Value& value) const {
  return static_cast<int64_t>(memory(in_tier(value, program::Tier::kHost)).nbytes());
}

std::vector<Value> FlatParameters::staged_values() const {
  std::vector<Value> out;
  for (const Value& in_file : in_files_.values()) out.push_back(in_tier(in_file, program::Tier::kHost));
  return out;
}

std::vector<NvmeFile::Extent> FlatParameters::extents_in_file(std::span<const Value> values) const {
  std::vector<NvmeFile::Extent> out;
  const auto add = [&](int64_t offset, const at::Tensor& memory) {
    out.push_back({offset, {static_cast<std::byte*>(memory.mutable_data_ptr()), memory.nbytes()}});
  };
  for (const Value& value : values) {
    const at::Tensor all = memory(value);
    Value in_file = in_tier(value, program::Tier::kNvme);
    if (value.kind != ValueKind::kState || value.tensor == 0) {
      add(in_files_.place(in_file).begin, all);
      continue;
    }
    in_file.tensor = 1;
    const int group = value.index;
    const int64_t room = state_room(group, value.tensor), in_all = state_room(group, 0);
    const int64_t skipped = (value.tensor - 1) * state_room(group, 1);
    int64_t begin = in_files_.place(in_file).begin;
    for (int k = 0; k < num_states() + (groups_.front()->dtype() == at::kFloat ? 0 : 1); ++k) {
      const auto width = static_cast<int64_t>(c10::elementSize(type_of_state(k)));
      add(begin + skipped * width, part_of_states(all, k, room, room));
      begin += in_all * width;
    }
  }
  return out;
}

void FlatParameters::read_file(std::span<const Value> on_host) { file_->read(extents_in_file(on_host)); }
void FlatParameters::write_file(std::span<const Value> on_host) { file_->write(extents_in_file(on_host)); }
void FlatParameters::forget_mapped() {
  if (file_) file_->forget_mapped();
}

int64_t FlatParameters::host_bytes() const {
  int64_t bytes = 0;
  for (const auto& [contents, arena] : arenas_) bytes += contents.tier == program::Tier::kHost ? arena.bytes() : 0;
  if (states_on_host_) {
    bytes += remainder_ ? remainder_->bytes() : 0;
    for (const Arena& state : states_) bytes += state.bytes();
  }
  return bytes;
}

void FlatParameters::refresh_host(int index) {
  if (!holds(index) || stays_on_host(index)) return;
  const Value own = own_value(ValueKind::kWeight, index);
  if (const at::Tensor in_file = mapped(in_tier(own, program::Tier::kNvme)); in_file.defined())
    in_file.view(own_weights(index).scalar_type()).narrow(0, 0, part(index).size()).copy_(own_weights(index));
  else if (memory(in_tier(own, program::Tier::kHost)).defined())
    update_weights(index).copy_(own_weights(index));
}

at::Tensor FlatParameters::encoded_weights(int group, program::Placement placement) const {
  return memory(in_codec(program::weight(group, placement), kWeightCodec));
}

bool FlatParameters::gathers_encoded(int group) const {
  return encoded_weights(group, cut_of(group).placement).defined();
}

void FlatParameters::encode_shard(int index) {
  const at::Tensor shard = memory(program::weight(index, cut_of(index).placement)),
                   encoded = encoded_weights(index, cut_of(index).placement);
  kernels_of(shard).encode(on_stream(shard),
                           {kWeightCodecSettings, dtype_of(shard.scalar_type()), shard.const_data_ptr(), shard.numel(),
                            static_cast<std::byte*>(encoded.mutable_data_ptr())});
}

void FlatParameters::decode_gathered(int index) {
  const at::Tensor whole = memory(program::weight(index)), encoded = encoded_weights(index, program::kWhole);
  const DType type = dtype_of(whole.scalar_type());
  const auto* from = static_cast<const std::byte*>(encoded.const_data_ptr());
  auto* to = static_cast<std::byte*>(whole.mutable_data_ptr());
  const int64_t shards = cut_of(index).shards, elements = whole.numel() / shards, bytes = encoded.numel() / shards;
  for (int64_t shard = 0; shard < shards; ++shard)
    kernels_of(whole).decode_sum(on_stream(whole), {kWeightCodecSettings, type, from + shard * bytes, /*num_terms=*/1,
                                                    elements, /*adds=*/false, to + shard * elements * size_of(type)});
}

void FlatParameters::encode_terms(int index, Codec codec) {
  const at::Tensor whole = memory(program::gradient(index)),
                   encoded = memory(in_codec(program::gradient(index), codec));
  const DType type = dtype_of(whole.scalar_type());
  const auto* from = static_cast<const std::byte*>(whole.const_data_ptr());
  auto* to = static_cast<std::byte*>(encoded.mutable_data_ptr());
  const int64_t shards = cut_of(index).shards, elements = whole.numel() / shards, bytes = encoded.numel() / shards;
  const int64_t in_host = shards / hosts_;  // whose shards of all hosts follow each other
  for (int64_t shard = 0; shard < shards; ++shard)
    kernels_of(whole).encode(on_stream(whole), {settings_of(codec), type, from + shard * elements * size_of(type),
                                                elements, to + (shard % in_host * hosts_ + shard / in_host) * bytes});
}

void FlatParameters::sum_host_terms(int index, Codec codec) {
  const Value whole = in_codec(program::gradient(index), codec);
  const at::Tensor terms = memory(placed(whole, host_terms_)), sums = memory(placed(whole, host_sums_));
  const int64_t elements = memory(program::gradient(index, cut_of(index).placement)).numel();
  const auto* from = static_cast<const std::byte*>(terms.const_data_ptr());
  auto* to = static_cast<std::byte*>(sums.mutable_data_ptr());
  const int64_t bytes = sums.numel() / hosts_;
  for (int64_t host = 0; host < hosts_; ++host)
    kernels_of(sums).encode_sum(on_stream(sums),
                                {settings_of(codec), from + host * bytes, cut_of(index).shards / hosts_, sums.numel(),
                                 elements, to + host * bytes});
}

void FlatParameters::sum_terms(int index, Codec codec, bool adds) {
  const Value own = program::gradient(index, cut_of(index).placement);
  const at::Tensor shard = memory(own), terms = memory(in_codec(own, codec));
  kernels_of(shard).decode_sum(
      on_stream(shard),
      {settings_of(codec), dtype_of(shard.scalar_type()), static_cast<const std::byte*>(terms.const_data_ptr()),
       hosts_ > 1 ? hosts_ : cut_of(index).shards, shard.numel(), adds, shard.mutable_data_ptr()});
}

// Returns the group of ranks whose arenas are as long as this rank's, since memory that peers map has one size.
// Returns nothing if all ranks are in it. Collective.
std::optional<Communicator> FlatParameters::ranks_of_equal_size(Communicator& comm) const {
  if (comm.size() == 1) return std::nullopt;
  std::vector<int64_t> mine;
  for (const auto& [contents, arena] : arenas_) {
    if (contents.tier != program::Tier::kDevice) continue;
    mine.push_back(arena.elements());
    mine.push_back(lies_apart(arena));
  }
  const auto sizes = static_cast<long>(mine.size());
  std::vector<int64_t> all(mine.size() * static_cast<size_t>(comm.size()));
  comm.all_gather(mine, all, {.name = "sizes of the parameters"});
  const auto have_equal_sizes = [&](int a, int b) {
    return std::equal(all.begin() + sizes * a, all.begin() + sizes * (a + 1), all.begin() + sizes * b);
  };
  int first = 0;
  while (!have_equal_sizes(first, comm.rank())) ++first;
  bool any_other = false;
  for (int rank = 1; rank < comm.size(); ++rank) any_other = any_other || !have_equal_sizes(0, rank);
  if (!any_other) return std::nullopt;
  return comm.split(first, comm.rank(), "parameters");
}

// Counts the ranks that hold the same part of each parameter group, and finds this rank's index among them. Collective.
void FlatParameters::find_replicas(Communicator& comm) {
  const auto groups = static_cast<size_t>(num_groups());
  std::vector<int64_t> mine, all(kPartNumbers * groups * static_cast<size_t>(comm.size()));
  for (int g = 0; g < num_groups(); ++g) {
    const kernels::ElementRange own = holds(g) ? part(g) : kernels::ElementRange{-1, -1};
    mine.insert(mine.end(), {own.begin, own.size(), group(g).place()});
  }
  if (comm.size() > 1)
    comm.all_gather(mine, all, {.name = "parts of the parameters"});
  else
    all = mine;
  for (size_t g = 0; g < groups; ++g) {
    auto& [replica, num_replicas] = replica_index_and_count_.emplace_back(0, 0);
    for (int rank = 0; rank < comm.size(); ++rank) {
      const auto part_of_rank =
          all.begin() + static_cast<long>(kPartNumbers * (static_cast<size_t>(rank) * groups + g));
      if (!std::equal(part_of_rank, part_of_rank + kPartNumbers, mine.begin() + static_cast<long>(kPartNumbers * g)))
        continue;
      replica += rank < comm.rank() ? 1 : 0;
      ++num_replicas;
    }
  }
}

int FlatParameters::index_of(const nn::ParameterGroup& group) const {
  for (int i = 0; i < num_groups(); ++i)
    if (groups_[static_cast<size_t>(i)].get() == &group) return i;
  throw Error(Code::kBug, "group " + group.name() + " is not one of this rank's");
}

bool FlatParameters::keeps_whole(int group) const { return keeps_whole_[static_cast<size_t>(group)]; }
at::Tensor FlatParameters::memory(const Value& value) const {
  const auto found = arenas_.find(Arena::contents_of(value));
  return found == arenas_.end() ? at::Tensor() : found->second.memory(value);
}

at::Tensor FlatParameters::gradient_range(int first, int last, Codec codec) const {
  const Arena& gradients = arena(ValueKind::kGradient, codec);
  return gradients.range(gradients.place(in_codec(program::gradient(first), codec)),
                         gradients.place(in_codec(program::gradient(last), codec)));
}

bool FlatParameters::holds(int group) const { return keeps_whole(group) || stays_on_host(group) || cut(group); }

bool FlatParameters::cut(int group) const { return cut_of(group).shards > 1 && part_elements(group) >= 0; }

int64_t FlatParameters::part_elements(int group) const {
  const Value part = program::weight(group, cut_of(group).placement);
  for (const program::Tier tier : {program::Tier::kDevice, program::Tier::kHost}) {
    const Arena& weights = arena(ValueKind::kWeight, Codec::kPlain, tier);
    if (weights.contains(in_tier(part, tier))) return weights.place(in_tier(part, tier)).elements;
  }
  return -1;
}

bool FlatParameters::is_of_other_owner(int group) const { return cut_of(group).owned && !cut(group); }

bool FlatParameters::lies_apart(const Arena& arena) const {
  return arena.slot_elements() > 0 && std::any_of(cuts_.begin(), cuts_.end(), [](const Cut& cut) { return cut.owned; });
}

kernels::ElementRange FlatParameters::part(int index) const {
  const int64_t all = group(index).elements();
  if (is_of_other_owner(index)) return {0, 0};
  if (!cut(index)) return {0, all};
  const int64_t size = part_elements(index);
  const int64_t begin = std::min(all, cut_of(index).shard * size);
  return {begin, std::min(begin + size, all)};
}

kernels::ElementRange FlatParameters::saved_part(int index) const {
  const kernels::ElementRange own = part(index);
  const int64_t width = element_bytes(group(index), ValueKind::kWeight);
  const auto [replica, num_replicas] = replica_index_and_count_[static_cast<size_t>(index)];
  const int64_t size = spec::shard_bytes(own.size() * width, num_replicas) / width;
  const int64_t begin = std::min(own.end, own.begin + replica * size);
  return {begin, std::min(begin + size, own.end)};
}

Value FlatParameters::own_value(ValueKind kind, int group, int piece) const {
  Value value{kind, group, -1, cut(group) ? cut_of(group).placement : program::kWhole};
  value.tensor = piece;
  return value;
}
at::Tensor FlatParameters::own(ValueKind kind, int group) const {
  return memory(own_value(kind, group)).narrow(0, 0, part(group).size());
}
at::Tensor FlatParameters::own_weights(int group) const {
  if (!stays_on_host(group)) return own(ValueKind::kWeight, group);
  if (!in_file(ValueKind::kWeight, group)) return update_weights(group);
  return mapped(in_tier(own_value(ValueKind::kWeight, group), program::Tier::kNvme))
      .view(this->group(group).dtype())
      .narrow(0, 0, part(group).size());
}
at::Tensor FlatParameters::own_gradient(int group) const { return own(ValueKind::kGradient, group); }
at::Tensor FlatParameters::update_memory(ValueKind kind, int group, int number) const {
  const auto on_host = [&](ValueKind of) {
    return memory(in_tier(own_value(of, group, number), program::Tier::kHost));
  };
  if (!on_host(ValueKind::kWeight).defined()) return own(kind, group);  // gradients may be there to be encoded
  return on_host(kind).narrow(0, 0, piece(group, number).size());
}
at::Tensor FlatParameters::update_weights(int group, int piece) const {
  return update_memory(ValueKind::kWeight, group, piece);
}
at::Tensor FlatParameters::update_gradient(int group, int piece) const {
  if (num_pieces(group) == 0 || piece > 0) return update_memory(ValueKind::kGradient, group, piece);
  // One that waits has memory for all of its pieces, which follow each other.
  const Arena& waiting = arena(ValueKind::kGradient, Codec::kPlain, program::Tier::kHost);
  const Arena::Place first = waiting.place(in_tier(own_value(ValueKind::kGradient, group, 1), program::Tier::kHost));
  return waiting.memory().narrow(0, first.begin, part(group).size());
}

at::ScalarType FlatParameters::type_of_state(int k) const {
  return k < num_states() ? state_types_[static_cast<size_t>(k)] : at::kFloat;
}

at::Tensor FlatParameters::part_of_states(const at::Tensor& states, int k, int64_t room, int64_t elements) const {
  int64_t begin = 0;
  for (int i = 0; i < k; ++i) {
    const int64_t bytes = room * static_cast<int64_t>(c10::elementSize(type_of_state(i)));
    begin += (bytes + kLineBytes - 1) / kLineBytes * kLineBytes;
  }
  const int64_t bytes = elements * static_cast<int64_t>(c10::elementSize(type_of_state(k)));
  HERD_CHECK(begin + bytes <= states.numel(), "the states of a group have no room");
  return states.narrow(0, begin, bytes).view(type_of_state(k));
}

at::Tensor FlatParameters::update_state(int k, int group, int number) const {
  if (!in_file(ValueKind::kState, group)) return own_state(k, group);
  return part_of_states(memory(in_tier(own_value(ValueKind::kState, group, number), program::Tier::kHost)), k,
                        state_room(group, number), piece(group, number).size());
}
at::Tensor FlatParameters::update_master(int group, int piece) const {
  if (!in_file(ValueKind::kState, group)) return own_master(group);
  if (groups_.front()->dtype() == at::kFloat || this->group(group).frozen()) return {};
  return update_state(num_states(), group, piece);
}

at::Tensor FlatParameters::own_state(int k, int group) const {
  if (in_file(ValueKind::kState, group))
    return part_of_states(mapped(in_tier(own_value(ValueKind::kState, group), program::Tier::kNvme)), k,
                          state_room(group, 0), part(group).size());
  return states_[static_cast<size_t>(k)].memory(own_value(ValueKind::kState, group)).narrow(0, 0, part(group).size());
}

at::Tensor FlatParameters::own_remainder(int index, at::ScalarType type) const {
  if (!remainder_ || remainder_->type() != type || group(index).frozen()) return {};
  return remainder_->memory(own_value(ValueKind::kState, index)).narrow(0, 0, part(index).size());
}
at::Tensor FlatParameters::own_master(int group) const {
  if (!in_file(ValueKind::kState, group)) return own_remainder(group, at::kFloat);
  if (groups_.front()->dtype() == at::kFloat || this->group(group).frozen()) return {};
  return own_state(num_states(), group);
}
at::Tensor FlatParameters::own_low_halves(int group) const { return own_remainder(group, at::kShort); }

at::Tensor FlatParameters::whole_on_host(int index) const {
  const at::Tensor all = memory(in_tier(program::weight(index), program::Tier::kHost));
  return all.defined() ? all.narrow(0, 0, group(index).elements()) : all;
}

void FlatParameters::attach(int index) {
  nn::ParameterGroup& target = group(index);
  if (target.attached() && !on_host_[static_cast<size_t>(index)]) return;
  target.attach(memory(program::weight(index)).narrow(0, 0, target.elements()));
  on_host_[static_cast<size_t>(index)] = false;
}
void FlatParameters::attach_on_host(int index) {
  group(index).attach(whole_on_host(index).mutable_data_ptr(), /*keep_alive=*/nullptr);
  on_host_[static_cast<size_t>(index)] = true;
}
void FlatParameters::attach_gradient(int index) {
  nn::ParameterGroup& target = group(index);
  if (!target.gradient_attached())
    target.attach_gradient(memory(program::gradient(index)).narrow(0, 0, target.elements()));
}
void FlatParameters::detach(int index) {
  if (!keeps_whole(index)) group(index).detach();
}

}  // namespace herd::runtime
