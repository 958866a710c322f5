#include "herd/cli/checkpoint_inspect.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "herd/base/printable.h"
#include "herd/base/units.h"
#include "herd/cli/progress_line.h"
#include "herd/draw/table.h"
#include "herd/storage/checkpoint_folder.h"
#include "herd/storage/checkpoint_reader.h"

namespace herd::cli {
namespace {

constexpr char kInspectHelp[] =
    R"help(Of several checkpoints the newest whole one is shown. A checkpoint is a folder with manifest.json and shards;
weights are named as the model names them, AdamW's moments of w are w.exp_avg and w.exp_avg_sq. "in" says which
shard holds a tensor, or in how many pieces it is cut over them.
  herd checkpoint inspect runs/mine             the newest of a run
  herd checkpoint inspect runs/mine --verify    is every byte as it was written?)help";

int64_t bytes_of(const CheckpointTensor& tensor) {
  return num_elements(tensor.shape).value_or(0) * size_of(tensor.dtype);
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text;
  for (const int64_t size : shape) text += (text.empty() ? "" : " x ") + std::to_string(size);
  return text.empty() ? "-" : text;
}

std::string shards_text(const CheckpointTensor& tensor) {
  if (tensor.pieces.size() == 1) return tensor.pieces[0].file;
  return std::to_string(tensor.pieces.size()) + " pieces";
}

std::string as_json(const CheckpointReader& reader, bool verified) {
  const Manifest& manifest = reader.manifest();
  nlohmann::ordered_json tensors = nlohmann::ordered_json::array();
  for (const auto& [name, tensor] : manifest.tensors) {
    tensors.push_back({{"name", name},
                       {"dtype", dtype_name(tensor.dtype)},
                       {"shape", tensor.shape},
                       {"bytes", bytes_of(tensor)},
                       {"pieces", tensor.pieces.size()}});
  }
  const nlohmann::ordered_json json = {{"folder", reader.folder().string()},
                                       {"herd", manifest.herd_version},
                                       {"step", manifest.step},
                                       {"samples", manifest.samples},
                                       {"config", manifest.config},
                                       {"notes", manifest.notes},
                                       {"files", manifest.files},
                                       {"tensors", tensors},
                                       {"verified", verified}};
  return json.dump(2, ' ', true, nlohmann::json::error_handler_t::replace) + "\n";
}

std::string as_text(const CheckpointReader& reader, bool verified) {
  const Manifest& manifest = reader.manifest();
  draw::Table table{{{"tensor"}, {"dtype"}, {"shape"}, {"bytes", true}, {"in"}}, {}};
  int64_t bytes = 0;
  for (const auto& [name, tensor] : manifest.tensors) {
    bytes += bytes_of(tensor);
    table.rows.push_back({name, std::string(dtype_name(tensor.dtype)), shape_text(tensor.shape),
                          std::to_string(bytes_of(tensor)), shards_text(tensor)});
  }
  std::string text = printable(reader.folder().string()) + "\nstep " + std::to_string(manifest.step) + ", " +
                     std::to_string(manifest.samples) + " samples, written by herd " +
                     (manifest.herd_version.empty() ? "?" : printable(manifest.herd_version)) + "\n\n" +
                     draw::text_table(table) + "\n" + std::to_string(manifest.tensors.size()) + " tensors, " +
                     format_bytes(static_cast<double>(bytes)) + " in " + std::to_string(manifest.files.size()) +
                     " files" + (verified ? "; every checksum holds\n" : "; checksums not read (--verify)\n");
  for (const auto& [name, note] : manifest.notes) text += printable(name) + ": " + printable(note) + "\n";
  return text + "\n# the run file\n" + printable_lines(manifest.config);
}

}  // namespace

std::string inspect_checkpoint(const InspectOptions& options) {
  CheckpointReader reader(resolve_checkpoint(options.path));
  if (options.verify) {
    ProgressLine line("verify", true);
    reader.verify([&](int64_t done, int64_t total) { line.update(done, total); });
  }
  return options.json ? as_json(reader, options.verify) : as_text(reader, options.verify);
}

int run_checkpoint_inspect(const InspectOptions& options) {
  std::fputs(inspect_checkpoint(options).c_str(), stdout);
  return 0;
}

void add_checkpoint_inspect_command(CLI::App& app) {
  auto options = std::make_shared<InspectOptions>();
  CLI::App* inspect = app.add_subcommand("inspect", "Show step, tensors and run file of a checkpoint");
  inspect->add_option("path", options->path, "A checkpoint, a folder of checkpoints, or a run's folder")->required();
  inspect->add_flag("--verify", options->verify, "Read everything and compare the checksums");
  inspect->add_flag("--json", options->json, "Print one JSON object");
  inspect->footer(kInspectHelp);
  inspect->callback([options] {
    if (const int status = run_checkpoint_inspect(*options); status != 0) throw CLI::RuntimeError(status);
  });
}

}  // namespace herd::cli
