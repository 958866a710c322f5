// Texts that somebody has reviewed, in files of the source tree.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

namespace herd::testing_support {

// `file` counts from the root of the source tree.
inline void expect_golden(const std::string& file, const std::string& text) {
  const std::string path = std::string(std::getenv("HERD_SOURCE_DIR")) + "/" + file;
  if (std::getenv("HERD_UPDATE_GOLDEN") != nullptr) std::ofstream(path) << text;
  std::ostringstream stored;
  stored << std::ifstream(path).rdbuf();
  EXPECT_EQ(stored.str(), text) << "HERD_UPDATE_GOLDEN=1 rewrites " << file;
}

}  // namespace herd::testing_support
