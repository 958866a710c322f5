#include "herd/convert/companions.h"

#include "herd/convert/transformers_files_internal.h"
#include "herd/storage/file_kind.h"
#include "herd/storage/manifest.h"

namespace herd::convert {
namespace {

constexpr const char* kNames[] = {
    kGenerationConfig, kSentencePiece, "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
    "vocab.json",      "vocab.txt",    "merges.txt",     "added_tokens.json",     "chat_template.jinja"};

}  // namespace

bool has_tokenizer(const Companions& companions) {
  for (const char* name : {kSentencePiece, "tokenizer.json", "vocab.json", "vocab.txt"}) {
    if (companions.contains(name)) return true;
  }
  return false;
}

Companions read_companions(const std::filesystem::path& folder) {
  Companions companions;
  const FileSystem of_checkpoint(folder);
  const FileSystem& files = is_taken(folder / kManifestName) ? of_checkpoint : FileSystem::system();
  for (const char* name : kNames) {
    if (!is_taken(folder / name, files)) continue;
    refuse_lfs_pointer(folder / name);
    companions[name] = read_small_file(folder / name, files);
  }
  return companions;
}

void write_companions(const std::filesystem::path& folder, const Companions& companions, FileSystem& files) {
  for (const auto& [name, file] : companions) write_small_file(folder / name, file, files);
}

}  // namespace herd::convert
