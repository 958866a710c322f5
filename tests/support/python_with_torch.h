// The Python that scripts of tests run in: HERD_PYTHON, the checkout's .venv, or python3. Empty if none has torch and
// numpy.
#pragma once

#include <cstdlib>
#include <string>
#include <vector>

namespace herd {

inline std::string python_with_torch() {
  std::vector<std::string> candidates;
  if (const char* chosen = std::getenv("HERD_PYTHON")) candidates.push_back(chosen);
  if (const char* source = std::getenv("HERD_SOURCE_DIR"))
    candidates.push_back(std::string(source) + "/.venv/bin/python");
  candidates.push_back("python3");
  for (const std::string& python : candidates) {
    const std::string command = python +
                                " -c 'from importlib.util import find_spec as f; exit(not (f(\"torch\") and "
                                "f(\"numpy\")))' >/dev/null 2>&1";
    if (std::system(command.c_str()) == 0) return python;
  }
  return "";
}

}  // namespace herd
