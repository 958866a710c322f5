#include "herd/convert/companions.h"

#include "herd/storage/atomic_file.h"
#include "herd/storage/file_kind.h"
#include "herd/storage/manifest.h"
#include "herd/storage/mapped_file.h"

namespace herd::convert {
namespace {

constexpr const char* kNames[] = {kGenerationConfig,         kSentencePiece, "tokenizer.json", "tokenizer_config.json",
                                  "special_tokens_map.json", "vocab.json",   "merges.txt",     "added_tokens.json",
                                  "chat_template.jinja"};

}  // namespace

Companions read_companions(const std::filesystem::path& folder) {
  Companions companions;
  const FileSystem of_checkpoint(folder);
  const FileSystem& files = is_taken(folder / kManifestName) ? of_checkpoint : FileSystem::system();
  for (const char* name : kNames) {
    if (!is_file(folder / name, files)) continue;
    const MappedFile file(folder / name, files);
    companions[name].assign(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  }
  return companions;
}

void write_companions(const std::filesystem::path& folder, const Companions& companions, FileSystem& files) {
  for (const auto& [name, bytes] : companions) write_file_atomically(folder / name, bytes, files);
}

}  // namespace herd::convert
