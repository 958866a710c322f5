#include "herd/cli/refused_arguments.h"

#include <charconv>

#include "herd/cli/run.h"

namespace herd::cli {
namespace {

// Reads a number; leaves `number` as it is where the text is none.
void read_number(const std::string& text, int& number) {
  int read = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), read);
  if (status == std::errc() && end == text.data() + text.size()) number = read;
}

}  // namespace

NamedNodes nodes_in(const std::vector<std::string>& arguments) {
  NamedNodes out;
  for (size_t i = 0; i < arguments.size() && arguments[i] != "--"; ++i) {
    const size_t equals = arguments[i].find('=');
    const std::string option = arguments[i].substr(0, equals);
    const std::string next = i + 1 < arguments.size() ? arguments[i + 1] : "";
    const std::string value = equals == std::string::npos ? next : arguments[i].substr(equals + 1);
    if (option == "--nnodes") read_number(value, out.job.num_nodes);
    if (option == "--node-rank") read_number(value, out.job.node_rank);
    if (option == "--rendezvous") out.job.rendezvous = value;
    if (option == "--token-file") out.token_file = value;
  }
  return out;
}

void tell_nodes_of_refused(const std::vector<std::string>& arguments, const std::exception& error) noexcept {
  try {
    NamedNodes named = nodes_in(arguments);
    if (named.job.rendezvous.empty()) return;
    named.job.token = job_token(named.token_file);
    launch::tell_other_nodes(named.job, error);
  } catch (const std::exception&) {  // the file of the token: this node can't prove that it belongs to the job
  }
}

}  // namespace herd::cli
