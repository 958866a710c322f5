#include "herd/cli/write_file.h"

#include <cerrno>
#include <fstream>

#include "herd/base/error.h"
#include "herd/storage/atomic_file.h"
#include "herd/storage/file_kind.h"

namespace herd::cli {

void write_file(const std::string& path, std::string_view content, std::FILE* say) {
  const FileKind kind = kind_of(path);
  if (kind == FileKind::kFolder) throw_errno(Code::kStorage, "write " + path, EISDIR);
  if (kind != FileKind::kOther) {
    write_file_atomically(path, content);
  } else {
    std::ofstream out(path, std::ios::binary);
    out << content;
    out.close();
    if (!out) throw_errno(Code::kStorage, "write " + path, errno);
  }
  std::fprintf(say, "wrote %s\n", path.c_str());
}

}  // namespace herd::cli
