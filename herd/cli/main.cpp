// The herd command: one subcommand per file of this folder.
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "herd/base/error.h"
#include "herd/cli/bench.h"
#include "herd/cli/checkpoint.h"
#include "herd/cli/doctor.h"
#include "herd/cli/explain.h"
#include "herd/cli/generate.h"
#include "herd/cli/parity.h"
#include "herd/cli/run.h"
#include "herd/cli/show.h"
#include "herd/cli/tokenize.h"
#include "herd/cli/train.h"

int main(int argc, char** argv) {
  CLI::App app("herd: train large models on many devices", "herd");
  app.require_subcommand(1);
  app.get_formatter()->column_width(34);
  // add_x_command(app) lines, in alphabetical order: each registers a subcommand with its callback.
  herd::cli::add_bench_command(app);
  herd::cli::add_checkpoint_command(app);
  herd::cli::add_doctor_command(app);
  herd::cli::add_explain_command(app);
  herd::cli::add_generate_command(app);
  herd::cli::add_parity_command(app);
  herd::cli::add_run_command(app);
  herd::cli::add_show_command(app);
  herd::cli::add_tokenize_command(app);
  herd::cli::add_train_command(app);

  try {
    std::vector<std::string> arguments = herd::cli::mark_program({argv + 1, argv + argc});
    std::reverse(arguments.begin(), arguments.end());  // as CLI11 takes them
    app.parse(arguments);
    return 0;
  } catch (const CLI::RuntimeError& stop) {
    return stop.get_exit_code();  // a subcommand's own exit status
  } catch (const CLI::ParseError& wrong) {
    return app.exit(wrong) == 0 ? 0 : 2;
  } catch (const herd::Error& error) {
    std::fprintf(stderr, "herd: %s\n", error.what());
    return error.code() == herd::Code::kBadConfig ? 2 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "herd: %s\n", error.what());
    return 1;
  }
}
