#include "herd/train/loss_scale_notes.h"

#include <charconv>

#include "herd/base/error.h"
#include "herd/base/units.h"

namespace herd::train {
namespace {

constexpr char kScale[] = "loss_scale", kGoodSteps[] = "loss_scale_good_steps", kSkipped[] = "loss_scale_skipped";
constexpr int64_t kMostSteps = int64_t{1} << 60;

// Returns the number in a note, or `otherwise` if there is no such note. Throws kCorruptFile unless it is in
// [least, most].
template <typename Number>
Number number_of(const Notes& notes, const char* name, Number otherwise, Number least, Number most,
                 const std::string& checkpoint) {
  const auto note = notes.find(name);
  if (note == notes.end()) return otherwise;
  const std::string& text = note->second;
  Number value{};
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failed == std::errc() && end == text.data() + text.size() && value >= least && value <= most) return value;
  throw Error(Code::kCorruptFile, "the note \"" + std::string(name) + "\" of the checkpoint " + checkpoint +
                                      " must be a number from " + format_number(static_cast<double>(least)) + " to " +
                                      format_number(static_cast<double>(most)) + ", but it is \"" + text +
                                      "\"\n  fix: resume from an older checkpoint; this one can't be trusted");
}

}  // namespace

void note_loss_scale(const optim::LossScale& scale, Notes& notes) {
  notes[kScale] = format_number(scale.scale());
  notes[kGoodSteps] = std::to_string(scale.good_steps());
  notes[kSkipped] = std::to_string(scale.skipped());
}

optim::LossScale loss_scale_of(const Notes& notes, const std::string& checkpoint) {
  const optim::LossScale fresh;
  return optim::LossScale(
      number_of(notes, kScale, fresh.scale(), 1.0, optim::LossScale::kLargest, checkpoint),
      number_of(notes, kGoodSteps, fresh.good_steps(), int64_t{0}, optim::LossScale::kGrowAfter - 1, checkpoint),
      number_of(notes, kSkipped, fresh.skipped(), int64_t{0}, kMostSteps, checkpoint));
}

}  // namespace herd::train
