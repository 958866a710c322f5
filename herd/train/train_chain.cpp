#include "herd/train/train_chain.h"

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "herd/base/error.h"
#include "herd/base/standard_streams.h"
#include "herd/train/train_rank.h"

namespace herd::train {
namespace {

constexpr char kUsage[] =
    "usage: %s FILE.toml [section.key=value ...]\n"
    "Trains the model of this program. FILE.toml is a run file without [model]; each further argument overrides one "
    "of\n"
    "its keys (docs/guide/run_file.md). Start several ranks with: herd run -n 4 -- %s FILE.toml mesh.pp=2\n";

int run_command(const std::vector<std::string>& arguments, const char* program, const Chain& chain,
                const ChainData& data, const TrainHooks& hooks) {
  const auto is_help = [](const std::string& argument) { return argument == "--help" || argument == "-h"; };
  const bool asks = std::ranges::any_of(arguments, is_help);
  if (asks || arguments.empty() || arguments[0].starts_with("-")) {
    std::fprintf(asks ? stdout : stderr, kUsage, program, program);
    return asks ? 0 : 2;
  }
  try {
    return train_rank(arguments[0], {arguments.begin() + 1, arguments.end()},
                      [&](spec::RunFile run, Communicator& comm, const JobAttempt& attempt) {
                        Trainer(chain, data, std::move(run), comm, attempt, hooks).run();
                      });
  } catch (const Error& error) {
    std::fprintf(stderr, "herd: %s\n", error.what());
    return exit_status(error);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "herd: %s\n", error.what());
    return 1;
  }
}

}  // namespace

int train_chain(int argc, char** argv, const Chain& chain, const ChainData& data, const TrainHooks& hooks) {
  open_missing_streams();
  return flush_output(run_command({argv + 1, argv + argc}, argv[0], chain, data, hooks));
}

}  // namespace herd::train
