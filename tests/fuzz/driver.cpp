// Feeds a fuzz target without a fuzzing engine: every file of the corpus folders, then seeded mutations of them. What
// the target lets escape (an exception that is not its documented error, a signal, a sanitizer report) fails the run;
// the input is left in fuzz_<target>.input beside the working folder's files.
#include <signal.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "accepted.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

using Input = std::vector<uint8_t>;
constexpr size_t kMaxInput = 1 << 16;

class Mutator {
 public:
  explicit Mutator(const std::vector<Input>& corpus) : corpus_(corpus), random_(1) {}

  Input next() {
    Input input = corpus_[below(corpus_.size())];
    for (size_t edits = 1 + below(4); edits > 0; --edits) edit(input);
    if (input.size() > kMaxInput) input.resize(kMaxInput);
    return input;
  }

 private:
  size_t below(size_t bound) { return bound == 0 ? 0 : random_() % bound; }

  void edit(Input& input) {
    static const std::vector<std::string> kTokens = {"-1",
                                                     "0",
                                                     "9223372036854775807",
                                                     "99999999999999999999",
                                                     "1e999",
                                                     "nan",
                                                     "\n",
                                                     "\0",
                                                     "[",
                                                     "]",
                                                     "{",
                                                     "}",
                                                     "\"",
                                                     "=",
                                                     ",",
                                                     "\xff\xfe"};
    const size_t at = below(input.size() + 1);
    switch (below(7)) {
      case 0:
        if (at < input.size()) input[at] ^= static_cast<uint8_t>(1u << below(8));
        break;
      case 1:
        if (at < input.size()) input[at] = static_cast<uint8_t>(random_());
        break;
      case 2:
        input.resize(at);
        break;
      case 3:
        input.erase(input.begin() + at, input.begin() + at + below(input.size() - at + 1));
        break;
      case 4: {  // a piece of itself, again
        const size_t from = below(input.size()), size = below(std::min<size_t>(64, input.size() - from) + 1);
        const Input piece(input.begin() + from, input.begin() + from + size);
        input.insert(input.begin() + at, piece.begin(), piece.end());
        break;
      }
      case 5: {  // a piece of another
        const Input& other = corpus_[below(corpus_.size())];
        const size_t from = below(other.size()), size = below(std::min<size_t>(256, other.size() - from) + 1);
        input.insert(input.begin() + at, other.begin() + from, other.begin() + from + size);
        break;
      }
      default: {
        const std::string& token = kTokens[below(kTokens.size())];
        input.insert(input.begin() + at, token.begin(), token.end());
      }
    }
  }

  const std::vector<Input>& corpus_;
  std::mt19937_64 random_;
};

std::vector<Input> read_corpus(std::span<char*> folders) {
  std::set<std::filesystem::path> files;
  for (const char* folder : folders)
    for (const auto& entry : std::filesystem::directory_iterator(folder)) files.insert(entry.path());
  std::vector<Input> corpus;
  for (const auto& file : files) {
    std::ifstream in(file, std::ios::binary);
    corpus.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
  }
  return corpus;
}

Input g_current;
std::string g_input_file;

void keep_input() {
  std::ofstream(g_input_file, std::ios::binary)
      .write(reinterpret_cast<const char*>(g_current.data()), static_cast<std::streamsize>(g_current.size()));
  std::fprintf(stderr, "the input that broke it: %s (%zu bytes)\n", g_input_file.c_str(), g_current.size());
}

// A target's own std::abort() too. The handler's stack is its own, for a parser that has used up the other one.
void keep_input_at_signals() {
  static std::array<char, 1 << 16> memory;
  const stack_t own = {memory.data(), 0, memory.size()};
  sigaltstack(&own, nullptr);
  struct sigaction action = {};
  action.sa_flags = SA_ONSTACK | SA_RESETHAND;
  action.sa_handler = [](int number) {
    keep_input();
    raise(number);
  };
  for (const int number : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL}) {
    struct sigaction before = {};
    sigaction(number, nullptr, &before);
    if (before.sa_handler == SIG_DFL) sigaction(number, &action, nullptr);  // else a sanitizer tells more
  }
}

void run(const Input& input) {
  g_current = input;
  try {
    LLVMFuzzerTestOneInput(g_current.data(), g_current.size());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "escaped: %s\n", error.what());
    keep_input();
    std::exit(1);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s FILE | CORPUS_FOLDER...\n", argv[0]);
    return 2;
  }
  g_input_file = std::filesystem::path(argv[0]).filename().string() + ".input";
  keep_input_at_signals();
  if (std::filesystem::is_regular_file(argv[1])) {  // one input, to look at it again
    std::ifstream in(argv[1], std::ios::binary);
    run(Input(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()));
    return 0;
  }
  const std::vector<Input> corpus = read_corpus({argv + 1, argv + argc});
  if (corpus.empty()) {
    std::fprintf(stderr, "no corpus in %s\n", argv[1]);
    return 2;
  }
  run({});
  for (const Input& input : corpus) run(input);
  if (num_accepted == 0) {
    std::fprintf(stderr,
                 "%s: the parser accepts none of its %zu files\n  fix: a file of the format's present version, from "
                 "herd or its golden texts\n",
                 argv[1], corpus.size());
    return 1;
  }
  const char* runs_text = std::getenv("HERD_FUZZ_RUNS");
  const long runs = runs_text ? std::atol(runs_text) : 10000;
  Mutator mutator(corpus);
  for (long i = 0; i < runs; ++i) run(mutator.next());
  std::printf("%zu files and %ld mutations of them\n", corpus.size(), runs);
  return 0;
}
