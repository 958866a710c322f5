// config.json and generation_config.json of a Hugging Face folder: whatever the bytes, a model that comes back from its
// own text, or kCorruptFile or kBadConfig.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "accepted.h"
#include "herd/base/error.h"
#include "herd/convert/gpt2_names.h"

namespace {

template <typename Parse>
void allow_refusal(const Parse& parse) {
  try {
    parse();
  } catch (const herd::Error& error) {
    if (error.code() != herd::Code::kCorruptFile && error.code() != herd::Code::kBadConfig) throw;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace herd::convert;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  allow_refusal([&] { parse_generation_config(text, "generation_config.json"); });
  allow_refusal([&] {
    const TransformersConfig config = parse_gpt2_config(text, "config.json");
    herd::spec::RunFile run;
    run.model = config.model;
    herd::spec::parse_run_text(herd::spec::to_toml(run), "config.json");
    require_gpt2(config.model);
    const TransformersConfig again = parse_gpt2_config(format_gpt2_config(config, "float32"), "again.json");
    if (!(again.model == config.model) || !(again.ends == config.ends)) std::abort();
    ++num_accepted;
  });
  return 0;
}
