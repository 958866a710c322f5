#include "herd/cli/write_file.h"

#include <filesystem>
#include <fstream>

#include "herd/base/error.h"
#include "herd/storage/atomic_file.h"

namespace herd::cli {

void write_file(const std::string& path, std::string_view content, std::FILE* say) {
  if (!std::filesystem::exists(path) || std::filesystem::is_regular_file(path)) {
    write_file_atomically(path, content);
  } else {
    std::ofstream out(path, std::ios::binary);
    out << content;
    out.close();
    if (!out) throw Error(Code::kStorage, "can't write " + path);
  }
  std::fprintf(say, "wrote %s\n", path.c_str());
}

}  // namespace herd::cli
