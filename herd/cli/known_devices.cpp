#include "herd/cli/known_devices.h"

#include <fstream>
#include <sstream>

#include "herd/base/error.h"
#include "herd/cli/known_models.h"

namespace herd::cli {

planner::DeviceTable known_devices() {
  const std::filesystem::path path = share_folder() / "devices/devices.toml";
  std::ifstream file(path, std::ios::binary);
  if (!file) throw Error(Code::kStorage, path.string() + " can't be read\n  fix: install herd again");
  std::ostringstream text;
  text << file.rdbuf();
  return planner::parse_device_table(text.str(), path.string());
}

}  // namespace herd::cli
