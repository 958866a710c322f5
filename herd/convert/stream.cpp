#include <algorithm>
#include <cmath>
#include <cstdio>

#include "herd/base/check.h"
#include "herd/base/error.h"
#include "herd/convert/cast.h"
#include "herd/convert/stream_internal.h"
#include "herd/kernels/finite.h"

namespace herd::convert {
namespace {

constexpr int64_t kMaxElements = int64_t{1} << 20;  // elements in memory at a time, or one row if it has more

// Transposes `in` (rows, columns) to `out` (columns, rows), in squares that fit the cache.
void transpose(std::span<const float> in, int64_t rows, int64_t columns, std::span<float> out) {
  constexpr int64_t kSide = 32;  // elements
  for (int64_t r0 = 0; r0 < rows; r0 += kSide) {
    for (int64_t c0 = 0; c0 < columns; c0 += kSide) {
      for (int64_t r = r0; r < std::min(rows, r0 + kSide); ++r) {
        for (int64_t c = c0; c < std::min(columns, c0 + kSide); ++c) {
          out[static_cast<size_t>(c * rows + r)] = in[static_cast<size_t>(r * columns + c)];
        }
      }
    }
  }
}

// Calls visit() with several rows at a time, of the columns [columns.begin, columns.end), in the layout that
// `transposed` asks for.
void stream_rows(WeightSource& source, const Weight& weight, bool transposed, IndexRange rows, IndexRange columns,
                 const std::function<void(std::span<const float>)>& visit) {
  const bool needs_transpose = transposed != weight.transposed;
  const int64_t step = std::max<int64_t>(1, kMaxElements / std::max<int64_t>(columns.size(), 1));
  std::vector<float> stored, values;
  for (int64_t begin = rows.begin; begin < rows.end; begin += step) {
    const IndexRange some_rows{begin, std::min(rows.end, begin + step)};
    values.resize(static_cast<size_t>(some_rows.size() * columns.size()));
    if (needs_transpose) {
      stored.resize(values.size());
      source.read(weight, columns, some_rows, stored);
      transpose(stored, columns.size(), some_rows.size(), values);
    } else {
      source.read(weight, some_rows, columns, values);
    }
    visit(values);
  }
}

std::string place_text(const Weight& weight, int64_t element) {
  const std::string column = std::to_string(element % weight.columns());
  return weight.shape.size() < 2 ? "[" + column + "]"
                                 : "[" + std::to_string(element / weight.columns()) + ", " + column + "]";
}

// Refuses a weight that holds NaN or infinity; counts them in all of it, so that every rank says the same.
[[noreturn]] void throw_not_finite(WeightSource& source, const Weight& weight) {
  int64_t position = 0, first = -1, count = 0;
  bool first_is_nan = false;
  stream_rows(source, weight, false, {0, weight.rows()}, {0, weight.columns()}, [&](std::span<const float> values) {
    for (const float value : values) {
      if (!std::isfinite(value) && ++count == 1) first = position, first_is_nan = std::isnan(value);
      ++position;
    }
  });
  throw Error(Code::kBadConfig,
              "weight \"" + weight.name + "\" of " + source.path().string() +
                  " is not finite: " + std::to_string(count) + " of its " + std::to_string(position) + " elements " +
                  (count == 1 ? "is" : "are") + " NaN or infinite, the first, " + (first_is_nan ? "NaN" : "infinity") +
                  ", at " + place_text(weight, first) +
                  "\n  fix: weights from before they became so, such as an older checkpoint of the run");
}

// Does as stream_rows(), and refuses a weight with NaN or infinity in what it reads.
void stream_finite_rows(WeightSource& source, const Weight& weight, bool transposed, IndexRange rows,
                        IndexRange columns, const std::function<void(std::span<const float>)>& visit) {
  stream_rows(source, weight, transposed, rows, columns, [&](std::span<const float> values) {
    if (kernels::first_non_finite(values.data(), static_cast<int64_t>(values.size())) >= 0)
      throw_not_finite(source, weight);
    visit(values);
  });
}

[[noreturn]] void throw_too_large(const Weight& weight, float value, DType dtype) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", static_cast<double>(value));
  throw Error(Code::kBadConfig, "weight \"" + weight.name + "\" holds " + text + ", more than " +
                                    std::string(dtype_name(dtype)) + " can state\n  fix: --dtype " +
                                    (dtype == DType::kF16 ? "bf16, which has the range of fp32" : "fp32"));
}

}  // namespace

void stream_weight(WeightSource& source, const Weight& weight, bool transposed, DType dtype,
                   const std::function<void(std::span<const std::byte>)>& visit) {
  const int64_t rows = transposed ? weight.columns() : weight.rows();  // of the layout that is asked for
  const int64_t columns = transposed ? weight.rows() : weight.columns();
  std::vector<std::byte> bytes;
  stream_finite_rows(source, weight, transposed, {0, rows}, {0, columns}, [&](std::span<const float> values) {
    bytes.resize(values.size() * static_cast<size_t>(size_of(dtype)));
    if (const int64_t wrong = from_float(values, dtype, bytes); wrong >= 0)
      throw_too_large(weight, values[static_cast<size_t>(wrong)], dtype);
    visit(bytes);
  });
}

void read_slice(WeightSource& source, const Weight& weight, const TensorSlice& slice,
                const std::function<void(std::span<const float>)>& visit) {
  const std::string fault = find_fault(slice, weight.shape);
  HERD_CHECK(fault.empty(), fault);
  const IndexRange elements = slice.elements, columns = slice.box.empty() ? IndexRange{0, 1} : slice.box.back();
  if (elements.size() == 0) return;
  const int64_t width = columns.size();
  int64_t first_row = slice.box.size() < 2 ? 0 : slice.box[0].begin;
  for (size_t d = 1; d + 1 < slice.box.size(); ++d) {  // rows of the matrices of experts, or of a filter
    HERD_CHECK(slice.box[d].size() == weight.shape[d], "part of the rows of matrices");
    first_row *= weight.shape[d];
  }
  // The rows of the box that hold the elements.
  const int64_t begin = elements.begin / width, end = (elements.end + width - 1) / width;
  int64_t position = begin * width;
  const IndexRange rows{first_row + begin, first_row + end};
  stream_finite_rows(source, weight, false, rows, columns, [&](std::span<const float> values) {
    const int64_t first = std::max(elements.begin - position, int64_t{0});
    const int64_t last = std::min(elements.end - position, static_cast<int64_t>(values.size()));
    visit(values.subspan(static_cast<size_t>(first), static_cast<size_t>(last - first)));
    position += static_cast<int64_t>(values.size());
  });
}

}  // namespace herd::convert
