#include "herd/cli/generate.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>

#include "herd/base/error.h"
#include "herd/cli/trainer_process.h"

namespace herd::cli {

void add_generate_command(CLI::App& app) {
  CLI::App* generate = app.add_subcommand("generate", "continue a text: herd generate CHECKPOINT --prompt TEXT");
  generate->set_help_flag("");  // herd-trainer answers --help
  generate->prefix_command();
  generate->callback([generate] { run_generate(generate->remaining()); });
}

int run_generate(const std::vector<std::string>& arguments) {
  const std::string trainer = trainer_path();
  std::vector<std::string> words = {trainer, "generate"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  execv(trainer.c_str(), pointers.data());
  throw_errno(Code::kBadConfig, "start " + trainer, errno);
}

}  // namespace herd::cli
