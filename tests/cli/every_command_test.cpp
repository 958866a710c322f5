// Every command in one table: status 0 on success alone, answers on the standard output and all else on the standard
// error, help and errors that fit the terminal, JSON that parses, and no word where the reader of a pipe has left. In a
// pipe or a file the lines of errors are whole.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "../convert/model_fixture.h"
#include "../launch/child_process.h"
#include "tests/support/herd_command.h"
#include "tests/support/temporary_folder.h"

namespace herd::launch {
namespace {

using testing::AnyOf;
using testing::HasSubstr;
using testing_support::kHerd;

struct Row {
  std::string command;     // the words after herd
  std::string json = {};   // arguments of a call with --json that succeeds; empty: it has no --json
  std::string wrong = {};  // arguments that are understood, but name what there is not
  int wrong_status = 2;    // 1: the system refuses, as for a file that is not there
  bool needs_trainer = false;
};

const std::vector<Row>& table() {
  static const std::vector<Row> rows = {{"", "", "nothing"},
                                        {"bench", "barrier --ranks 2 --seconds 0.001", "nothing"},
                                        {"checkpoint", "", "nothing"},
                                        {"checkpoint inspect", "CHECKPOINT", "/nowhere"},
                                        {"checkpoint convert", "", "/nowhere --to herd --out OUT"},
                                        {"checkpoint reshard", "", "/nowhere --ranks 2 --out OUT"},
                                        {"doctor", "--no-measure", "nothing"},
                                        {"explain", "all_reduce --ranks 8", "nothing --ranks 8"},
                                        {"generate", "", "/nowhere --prompt x", 2, true},
                                        {"parity", "", "/nowhere.toml --a mesh.dp=1 --b mesh.dp=2", 1},
                                        {"plan", "gpt2 model.layers=2", "nothing"},
                                        {"run", "", "-n 0 true"},
                                        {"show", "", "nothing"},
                                        {"show layer", "", "nothing"},
                                        {"show order", "", "nothing"},
                                        {"show overlap", "", "nothing"},
                                        {"show program", "", "/nowhere.toml", 1},
                                        {"show schedule", "", "nothing --ranks 2"},
                                        {"tokenize", "", "/nowhere --out OUT"},
                                        {"train", "", "/nowhere.toml", 1}};
  return rows;
}

bool has_trainer() { return std::filesystem::exists(std::filesystem::path(kHerd).parent_path() / "herd-trainer"); }

class EveryCommand : public testing::Test {
 protected:
  struct Result {
    int status = -1;
    std::string out, err;
  };

  // Runs a shell command line in which $HERD stands for the command. `into` is where its standard output goes.
  Result run(const std::string& arguments, const std::string& before = "", const std::string& into = "") {
    const std::string out = (folder_ / "out").string(), err = (folder_ / "err").string(),
                      status = (folder_ / "status").string();
    write_text(folder_ / "out", "");
    const std::string line = "{ " + before + kHerd + " " + arguments + " 2>" + err + "; echo $? >" + status + "; } " +
                             (into.empty() ? ">" + out : into);
    ChildProcess shell({"sh", "-c", "unset COLUMNS; " + line + " </dev/null"});
    EXPECT_EQ(shell.wait(), 0) << line;
    EXPECT_EQ(shell.output(), "") << line;
    return {std::stoi(read_text(folder_ / "status")), read_text(folder_ / "out"), read_text(folder_ / "err")};
  }

  static std::string joined(const std::string& command, const std::string& arguments) {
    return command + (command.empty() || arguments.empty() ? "" : " ") + arguments;
  }

  std::string filled_in(std::string arguments) {
    const std::pair<std::string, std::string> places[] = {{"CHECKPOINT", checkpoint_.string()},
                                                          {"OUT", (folder_ / "new").string()}};
    for (const auto& [place, path] : places) {
      if (const size_t at = arguments.find(place); at != arguments.npos) arguments.replace(at, place.size(), path);
    }
    return arguments;
  }

  TemporaryFolder folder_;
  std::filesystem::path checkpoint_ = convert::save_model(folder_ / "runs", convert::small_run());
};

TEST_F(EveryCommand, AnswersHelpOnTheStandardOutput_InTheWidthOfTheTerminal) {
  for (const Row& row : table()) {
    if (row.needs_trainer && !has_trainer()) continue;
    for (const auto& [setting, width] : {std::pair<std::string, size_t>("", 80), {"COLUMNS=100 ", 100}}) {
      const Result help = run(joined(row.command, "--help"), setting);
      EXPECT_EQ(help.status, 0) << row.command;
      EXPECT_EQ(help.err, "") << row.command;
      EXPECT_THAT(help.out, HasSubstr("Usage:")) << row.command;
      std::istringstream lines(help.out);
      for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), width) << row.command << "\n" << line;
      EXPECT_EQ(help.out.find("--json") != help.out.npos, !row.json.empty()) << row.command << ": a row for its --json";
    }
    const Result piped = run(joined(row.command, "--help"), "", "| true");
    EXPECT_THAT(piped.status, AnyOf(0, 128 + SIGPIPE)) << row.command;
    EXPECT_EQ(piped.err, "") << row.command;
  }
}

TEST_F(EveryCommand, ExplainsTheEngineOfADevice_OrSaysWhyThereIsNone) {
  const Result answer = run("explain all_reduce --ranks 2 --bytes 64KiB --device cuda");
  if (answer.status == 0) {
    EXPECT_THAT(answer.out,
                AnyOf(HasSubstr("engine of buffers on cuda: nccl: "), HasSubstr("engine of buffers on cuda: ipc: "),
                      HasSubstr("engine of buffers on cuda: staged: ")));
  } else {
    EXPECT_EQ(answer.status, 2);
    EXPECT_EQ(answer.out, "");
    EXPECT_THAT(answer.err, testing::MatchesRegex("herd: kBadConfig: .*CUDA.*\n  fix: .*"));
  }
  EXPECT_THAT(run("explain all_reduce --ranks 2 --device cuda --topology hosts:2x1").err,
              HasSubstr("so not with --topology"));
}

TEST_F(EveryCommand, PutsJsonAloneOnTheStandardOutput) {
  for (const Row& row : table()) {
    if (row.json.empty()) continue;
    const std::string arguments = joined(row.command, filled_in(row.json)) + " --json";
    const Result answer = run(arguments);
    EXPECT_EQ(answer.status, 0) << arguments << "\n" << answer.err;
    EXPECT_EQ(answer.err, "") << arguments;
    EXPECT_TRUE(nlohmann::json::accept(answer.out)) << arguments << "\n" << answer.out;
    const Result piped = run(arguments, "", "| true");
    EXPECT_THAT(piped.status, AnyOf(0, 128 + SIGPIPE)) << arguments;
    EXPECT_EQ(piped.err, "") << arguments;
    const Result full = run(arguments, "", ">/dev/full");
    EXPECT_EQ(full.status, 1) << arguments;
    EXPECT_THAT(full.err, HasSubstr("the standard output can't be written")) << arguments;
  }
}

TEST_F(EveryCommand, PutsErrorsAloneOnTheStandardError_WithAStatusOfTheirOwn) {
  for (const Row& row : table()) {
    if (row.needs_trainer && !has_trainer()) continue;
    const std::string option = joined(row.command, "--no-such-option"),
                      wrong = joined(row.command, filled_in(row.wrong));
    for (const auto& [arguments, status] : {std::pair(option, 2), {wrong, row.wrong_status}}) {
      const Result refused = run(arguments);
      EXPECT_EQ(refused.status, status) << arguments << "\n" << refused.err;
      EXPECT_EQ(refused.out, "") << arguments;
      EXPECT_NE(refused.err, "") << arguments;
    }
    if (row.json.empty()) continue;
    const Result json = run(wrong + " --json");
    EXPECT_NE(json.status, 0) << wrong;
    EXPECT_EQ(json.out, "") << wrong << ": nothing that a reader of JSON takes for an answer";
    EXPECT_NE(json.err, "") << wrong;
  }
  EXPECT_FALSE(std::filesystem::exists(folder_ / "new"));
}

// A path alone may be longer than a line.
TEST_F(EveryCommand, FitsErrorsIntoTheTerminal) {
  for (const Row& row : table()) {
    if (row.needs_trainer && !has_trainer()) continue;
    for (const std::string& arguments :
         {joined(row.command, "--no-such-option"), joined(row.command, filled_in(row.wrong))}) {
      const std::string typescript = (folder_ / "typescript").string();
      ChildProcess terminal(
          {"script", "-qc", "unset COLUMNS; stty cols 100; exec " + kHerd + " " + arguments, typescript});
      terminal.wait();
      std::istringstream lines(read_text(typescript));
      for (std::string line; std::getline(lines, line);) {
        if (line.starts_with("Script ")) continue;
        std::erase(line, '\r');
        const size_t word = line.find_first_not_of(' ');
        EXPECT_TRUE(line.size() <= 100 || line.find(' ', word) == line.npos) << arguments << "\n" << line;
      }
    }
  }
}

TEST_F(EveryCommand, NamesTheRangeOfANumberThatIsTooLarge) {
  const Result refused = run("tokenize " + (folder_ / "x.txt").string() + " --out new --vocab 2147483648");
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.err, HasSubstr("--vocab: Value 2147483648 not in range 1 to 2147483647"));
}

TEST_F(EveryCommand, HasARow) {
  const std::string help = run("--help").out;
  std::istringstream listed(help.substr(help.find("Subcommands:")));
  std::string line;
  for (std::getline(listed, line); std::getline(listed, line) && !line.empty();) {
    if (line.size() < 3 || line[2] == ' ') continue;  // goes on from the line above
    const std::string name = line.substr(2, line.find(' ', 2) - 2);
    EXPECT_TRUE(std::ranges::any_of(table(), [&](const Row& row) { return row.command == name; })) << name;
  }
  for (const char* group : {"checkpoint", "show"}) {
    const std::string of_group = run(std::string(group) + " --help").out;
    std::istringstream lines(of_group.substr(of_group.find("Subcommands:")));
    for (std::getline(lines, line); std::getline(lines, line) && !line.empty();) {
      if (line.size() < 3 || line[2] == ' ') continue;
      const std::string name = std::string(group) + " " + line.substr(2, line.find(' ', 2) - 2);
      EXPECT_TRUE(std::ranges::any_of(table(), [&](const Row& row) { return row.command == name; })) << name;
    }
  }
}

}  // namespace
}  // namespace herd::launch
