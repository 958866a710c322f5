// The herd command: one subcommand per file of this folder.
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "herd/base/error.h"
#include "herd/base/printable.h"
#include "herd/base/standard_streams.h"
#include "herd/base/version.h"
#include "herd/cli/bench.h"
#include "herd/cli/checkpoint.h"
#include "herd/cli/doctor.h"
#include "herd/cli/explain.h"
#include "herd/cli/generate.h"
#include "herd/cli/parity.h"
#include "herd/cli/plan.h"
#include "herd/cli/refused_arguments.h"
#include "herd/cli/run.h"
#include "herd/cli/show.h"
#include "herd/cli/tokenize.h"
#include "herd/cli/train.h"
#include "herd/launch/environment.h"
#include "herd/launch/help_text.h"
#include "herd/spec/foreign_keys.h"

namespace {

constexpr char kFirstSession[] = R"(A first session (examples/gpt_kjv.toml is a run file):
  herd doctor                                       what this machine offers
  herd tokenize book.txt --out data/mine            text files -> tokens
  herd train run.toml data.path=data/mine           train what a run file describes; -n 2 for two ranks
  herd generate runs/NAME --prompt "Once"           continue a text with what was trained
  herd parity run.toml --a mesh.dp=1 --b mesh.dp=2  are the losses of one rank those of two?
  herd plan run.toml --budget 2GiB                  will it fit, how fast, what would make it fit
  herd show program run.toml                        the training step, op by op, before it runs
  herd explain all_reduce --ranks 8 --bytes 64MiB   which algorithm, how long, and why
herd COMMAND --help says more about each.)";

// Throws kBadConfig with the known commands. CLI11 says of an unknown one only that a command is required.
void check_command(const CLI::App& app, const std::vector<std::string>& arguments) {
  const std::string& word = arguments[0];
  if (word.empty() || word[0] == '-') return;
  std::string names;
  for (const CLI::App* command : app.get_subcommands(nullptr)) {
    if (command->get_name() == word) return;
    names += (names.empty() ? "" : ", ") + command->get_name();
  }
  const herd::Error error(herd::Code::kBadConfig, "there is no command \"" + word + "\"\n  fix: one of " + names);
  herd::cli::tell_nodes_of_refused(arguments, error);
  throw error;
}

// "help train" -> "train --help", and "help" -> "--help", as other commands of commands take it.
std::vector<std::string> without_help_word(std::vector<std::string> arguments) {
  if (arguments.empty() || arguments[0] != "help") return arguments;
  arguments.erase(arguments.begin());
  arguments.push_back("--help");
  return arguments;
}

int run_command(int argc, char** argv) {
  CLI::App app("herd: train large models on many devices", "herd");
  app.require_subcommand(1);
  app.set_version_flag("--version", std::string("herd ") + herd::version());
  const int width = herd::launch::terminal_width();
  app.get_formatter()->column_width(std::min(34, std::max(24, width / 3)));
  // Each add_x_command(app) registers a subcommand with its callback; the lines stand in alphabetical order.
  herd::cli::add_bench_command(app);
  herd::cli::add_checkpoint_command(app);
  herd::cli::add_doctor_command(app);
  herd::cli::add_explain_command(app);
  herd::cli::add_generate_command(app);
  herd::cli::add_parity_command(app);
  herd::cli::add_plan_command(app);
  herd::cli::add_run_command(app);
  herd::cli::add_show_command(app);
  herd::cli::add_tokenize_command(app);
  herd::cli::add_train_command(app);
  app.footer(kFirstSession);  // set last, since subcommands inherit it

  if (argc == 1) {
    std::fputs(herd::launch::fitted(app.help(), width).c_str(), stdout);
    return 0;
  }
  const std::vector<std::string> given = without_help_word({argv + 1, argv + argc});
  try {
    check_command(app, given);
    if (const std::string unknown = herd::cli::unknown_option_of_run(app, given); !unknown.empty())
      throw CLI::ExtrasError(std::vector<std::string>{unknown});
    std::vector<std::string> arguments = herd::cli::mark_program(given);
    std::reverse(arguments.begin(), arguments.end());  // CLI11 takes them in reverse
    app.parse(arguments);
    return 0;
  } catch (const CLI::RuntimeError& stop) {
    return stop.get_exit_code();  // a subcommand's own exit status
  } catch (const CLI::ParseError& wrong) {
    std::ostringstream out, problems;
    const int status = app.exit(wrong, out, problems);
    std::fputs(herd::launch::fitted(herd::printable_lines(out.str()), width).c_str(), stdout);
    herd::launch::print_error(herd::printable_lines(problems.str()));
    // An option whose value is wrong is one of the command's own.
    const bool may_be_foreign = wrong.get_name() != "ValidationError" && wrong.get_name() != "ConversionError";
    for (int i = 1; i < argc && status != 0 && may_be_foreign; ++i) {
      const std::string word = std::string(argv[i]).substr(0, std::string(argv[i]).find('='));
      const std::string ours = word.starts_with("--") ? herd::spec::key_for_foreign(word) : "";
      if (!ours.empty())
        std::fputs((herd::printable(word) + ": " + ours +
                    (ours.starts_with("herd has ") ? ", as section.key=value" : "") + "\n")
                       .c_str(),
                   stderr);
    }
    if (status != 0)
      herd::cli::tell_nodes_of_refused(given, herd::Error(herd::Code::kBadConfig, herd::printable(wrong.what())));
    return status == 0 ? 0 : 2;
  } catch (const herd::Error& error) {
    herd::launch::print_error("herd: " + std::string(error.what()) + "\n");
    return error.code() == herd::Code::kBadConfig ? 2 : 1;
  } catch (const std::exception& error) {
    herd::launch::print_error("herd: " + std::string(error.what()) + "\n");
    return 1;
  }
}

}  // namespace

int main(int argc, char** argv) {
  herd::open_missing_streams();
  // An empty TMPDIR counts as none, as for mktemp.
  if (herd::launch::process_variable("TMPDIR").empty()) unsetenv("TMPDIR");
  return herd::flush_output(run_command(argc, argv));
}
