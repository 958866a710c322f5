#include "herd/storage/shard_writer.h"

#include <algorithm>
#include <cstdio>
#include <map>

#include "herd/base/check.h"
#include "herd/base/error.h"
#include "herd/storage/checksum.h"

namespace herd {
namespace {

constexpr size_t kPortionBytes = size_t{1} << 20;  // still in the cache when it is written after its checksum

// Returns "w" for a whole tensor, "w[0:4,8:16]" for a box, "w#10:20" for a range of elements, or both.
std::string entry_name(const ShardPiece& piece) {
  const TensorSlice whole = whole_slice(piece.shape);
  std::string name = piece.name;
  if (piece.slice.box != whole.box) {
    std::string box;
    for (const auto& range : piece.slice.box) {
      box += (box.empty() ? "" : ",") + std::to_string(range.begin) + ":" + std::to_string(range.end);
    }
    name += "[" + box + "]";
  }
  const auto& elements = piece.slice.elements;
  if (elements != IndexRange{0, num_box_elements(piece.slice)}) {
    name += "#" + std::to_string(elements.begin) + ":" + std::to_string(elements.end);
  }
  return name;
}

// Returns the shape of a piece in its file: that of its box if the piece is all of it, else one dimension.
std::vector<int64_t> entry_shape(const TensorSlice& slice) {
  if (slice.elements != IndexRange{0, num_box_elements(slice)}) return {slice.elements.size()};
  std::vector<int64_t> shape;
  for (const auto& range : slice.box) shape.push_back(range.size());
  return shape;
}

std::map<std::string, std::string> metadata_of(std::map<std::string, std::string> notes) {
  notes.emplace("format", "pt");
  return notes;
}

std::string shard_name(Rank rank) {
  char name[64];
  std::snprintf(name, sizeof name, "shard-%05d.safetensors", rank);
  return name;
}

std::vector<std::string> entry_names(const std::vector<ShardPiece>& pieces) {
  std::vector<std::string> names;
  for (const auto& piece : pieces) {
    if (auto fault = find_fault(piece.slice, piece.shape); !fault.empty()) {
      throw Error(Code::kBadConfig, "tensor \"" + piece.name + "\": " + fault);
    }
    names.push_back(entry_name(piece));
  }
  return names;
}

std::vector<TensorEntry> entries_of(const std::vector<ShardPiece>& pieces, const std::vector<std::string>& names) {
  std::vector<TensorEntry> entries;
  for (size_t i = 0; i < pieces.size(); ++i) {
    entries.push_back({names[i], std::string(tensor_type_of(pieces[i].dtype)), entry_shape(pieces[i].slice)});
  }
  return entries;
}

}  // namespace

int64_t ShardPiece::bytes() const { return slice.elements.size() * size_of(dtype); }

ShardWriter::ShardWriter(const std::filesystem::path& folder, Rank rank, std::vector<ShardPiece> pieces,
                         FileSystem& files, const std::map<std::string, std::string>& notes)
    : file_name_(shard_name(rank)),
      pieces_(std::move(pieces)),
      entries_(entry_names(pieces_)),
      checksums_(pieces_.size(), 0),
      writer_(folder / file_name_, entries_of(pieces_, entries_), metadata_of(notes), files) {
  HERD_CHECK(!pieces_.empty(), "a shard holds something");
  std::map<std::string, size_t> by_entry;
  for (size_t i = 0; i < entries_.size(); ++i) by_entry[entries_[i]] = i;
  for (const auto& entry : writer_.entries()) order_.push_back(by_entry.at(entry.name));
}

void ShardWriter::append(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    while (current_ < order_.size() && appended_ == pieces_[order_[current_]].bytes()) ++current_, appended_ = 0;
    HERD_CHECK(current_ < order_.size(), "more bytes than the pieces have");
    const size_t piece = order_[current_];
    const int64_t left = pieces_[piece].bytes() - appended_;
    const auto portion = bytes.first(std::min({bytes.size(), static_cast<size_t>(left), kPortionBytes}));
    checksums_[piece] = crc32c(portion, checksums_[piece]);
    writer_.append(portion);
    appended_ += static_cast<int64_t>(portion.size());
    bytes = bytes.subspan(portion.size());
  }
}

Manifest ShardWriter::commit() {
  writer_.commit();
  Manifest part;
  for (size_t i = 0; i < pieces_.size(); ++i) {
    const ShardPiece& piece = pieces_[i];
    Manifest single;
    single.tensors[piece.name] = {piece.dtype, piece.shape, {{piece.slice, file_name_, entries_[i], checksums_[i]}}};
    merge_manifest(part, single);
  }
  part.files[file_name_] = writer_.size();
  return part;
}

}  // namespace herd
