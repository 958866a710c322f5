#include "herd/convert/convert.h"

#include <algorithm>

#include "herd/base/check.h"
#include "herd/base/error.h"
#include "herd/base/printable.h"
#include "herd/convert/cast.h"
#include "herd/convert/stream_internal.h"
#include "herd/storage/checkpoint_writer.h"
#include "herd/storage/shard_writer.h"

namespace herd::convert {
namespace {

void write_checkpoint(const std::filesystem::path& folder, WeightSource& source, DType dtype, const Progress& progress,
                      FileSystem& files) {
  std::vector<ShardPiece> pieces;
  int64_t done = 0, total = 0;
  for (const Weight& weight : source.weights()) {
    pieces.push_back({weight.name, dtype, weight.shape, whole_slice(weight.shape)});
    total += pieces.back().bytes();
  }
  ShardWriter shard(folder, 0, std::move(pieces), files);
  for (const size_t index : shard.order()) {
    stream_weight(source, source.weights()[index], false, dtype, [&](std::span<const std::byte> bytes) {
      shard.append(bytes);
      done += static_cast<int64_t>(bytes.size());
      if (progress) progress(done, total);
    });
  }
  const Manifest part = shard.commit();
  Manifest manifest = source.manifest();
  manifest.notes[kContentNote] = kWeightsOnly;
  commit_checkpoint(folder, std::move(manifest), {part}, files);
}

// Transformers prefers generation_config.json to config.json, so both have to name the present ends of text.
Companions companions_of(const WeightSource& source, const ConvertOptions& options) {
  Companions companions = read_companions(source.path());
  if (const auto config = companions.find(kGenerationConfig); config != companions.end())
    config->second.bytes =
        with_text_ends(config->second.bytes, text_ends_of(source.manifest().notes, default_text_ends()),
                       (source.path() / kGenerationConfig).string());
  if (options.extra_companions) companions.merge(options.extra_companions(source));
  return companions;
}

const TransformersFormat& format_of(Format to) {
  const std::vector<const TransformersFormat*> formats = transformers_formats();
  const auto found = std::ranges::find(formats, kFormatNames[static_cast<size_t>(to)],
                                       [](const TransformersFormat* format) { return format->type; });
  HERD_CHECK(found != formats.end(), "a format for each name");
  return **found;
}

std::vector<std::string> warnings_of(const WeightSource& source, const Companions& companions, Format to) {
  std::vector<std::string> warnings;
  const auto& run = source.run();
  if (!has_tokenizer(companions) && run.data.kind != "random")
    warnings.push_back(
        "no tokenizer goes along: " +
        (source.manifest().notes.contains("tokenizer")
             ? source.path().string() + " holds none"
             : "neither " + source.path().string() + " nor " + run.data.path + " holds one") +
        ", so the folder takes and gives token ids alone\n  fix: put the tokenizer of the weights (tokenizer.model, or "
        "tokenizer.json) into the folder");
  if (to != Format::kHerd && to != Format::kGpt2 && run.model.width % run.model.heads != 0)
    warnings.push_back("model.width is no multiple of model.heads: " + std::to_string(run.model.width) + " % " +
                       std::to_string(run.model.heads) + " = " + std::to_string(run.model.width % run.model.heads) +
                       ". Newer versions of transformers refuse such a config.json (5.24 does, 4.57 and 5.0 load it); "
                       "herd reads it\n  fix: model.heads that divides model.width, before the model is trained");
  if (const std::vector<std::string>& names = source.left_out(); !names.empty()) {
    std::string list;
    for (const std::string& name : names) list += (list.empty() ? "" : ", ") + printable(name);
    warnings.push_back("herd's " + run.model.kind + " has no place for " + list + ", which are left out\n  fix: keep " +
                       source.path().string() + " for programs that need them");
  }
  return warnings;
}

}  // namespace

Converted convert(const ConvertOptions& options, FileSystem& files) {
  if (!is_weight_type(options.dtype)) {
    throw Error(Code::kBadConfig, "weights can't be kept in " + std::string(dtype_name(options.dtype)) +
                                      "\n  fix: --dtype fp32, bf16 or fp16");
  }
  const auto source = open_weights(options.source);
  if (source->run().model.kind == "chain") {
    throw Error(Code::kBadConfig,
                options.source.string() +
                    " holds a chain, whose blocks are known to its program alone"
                    "\n  fix: herd checkpoint reshard --ranks 1, or model.weights in a run of that program");
  }
  std::error_code ignored;
  if (std::filesystem::equivalent(source->path(), options.out, ignored) ||
      std::filesystem::equivalent(options.source, options.out, ignored)) {
    throw Error(Code::kBadConfig, "--out is the folder that is converted, " + options.out.string() +
                                      ", whose weights would be lost\n  fix: --out of another folder");
  }
  AtomicFolder folder(options.out, options.replace, files);
  if (options.to == Format::kHerd)
    write_checkpoint(folder.working_path(), *source, options.dtype, options.progress, files);
  else
    write_transformers_folder(folder.working_path(), format_of(options.to), *source, options.dtype, options.progress,
                              files);
  const Companions companions = companions_of(*source, options);
  write_companions(folder.working_path(), companions, files);
  folder.commit();
  Converted result{.run = source->run()};
  for (const auto& [name, bytes] : companions) result.companions.push_back(name);
  for (const Weight& weight : source->weights()) result.parameters += weight.rows() * weight.columns();
  result.bytes = result.parameters * size_of(options.dtype);
  result.warnings = warnings_of(*source, companions, options.to);
  return result;
}

}  // namespace herd::convert
