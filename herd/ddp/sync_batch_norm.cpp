#include "herd/ddp/sync_batch_norm.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <sstream>
#include <utility>
#include <vector>

#include "herd/base/error.h"
#include "herd/bridge/tensor_buffer.h"

namespace herd::ddp {
namespace {

std::vector<int64_t> all_but_channels(const at::Tensor& x) {
  std::vector<int64_t> dims;
  for (int64_t d = 0; d < x.dim(); ++d)
    if (d != 1) dims.push_back(d);
  return dims;
}

// Returns figures of the channels in a shape that broadcasts over x.
at::Tensor beside(const at::Tensor& of_channels, const at::Tensor& x) {
  std::vector<int64_t> sizes(static_cast<size_t>(x.dim()), 1);
  sizes[1] = of_channels.numel();
  return of_channels.view(sizes);
}

// The moments of each channel over all ranks.
struct Moments {
  at::Tensor mean, variance;  // [channels]; the variance divides by count
  double count = 0;           // values of a channel
};

Moments moments_of_all_ranks(Communicator& comm, const at::Tensor& x) {
  const int64_t channels = x.size(1);
  const auto dims = all_but_channels(x);
  const int64_t count = x.numel() / std::max<int64_t>(channels, 1);
  at::Tensor own = at::zeros({1, 2 * channels + 1}, x.options());
  if (count > 0) {
    const at::Tensor mean = x.mean(dims);
    own.narrow(1, 0, channels).copy_(mean);
    own.narrow(1, channels, channels).copy_((x - beside(mean, x)).square().sum(dims));
    own.narrow(1, 2 * channels, 1).fill_(static_cast<double>(count));
  }
  const at::Tensor all = comm.all_gathered(own, {.name = "moments of a batch norm"});
  const at::Tensor means = all.narrow(1, 0, channels), deviations = all.narrow(1, channels, channels);
  const at::Tensor counts = all.narrow(1, 2 * channels, 1);
  Moments moments;
  moments.count = counts.sum().item<double>();
  moments.mean = (means * counts).sum(0) / moments.count;
  moments.variance = (deviations + counts * (means - moments.mean).square()).sum(0) / moments.count;
  return moments;
}

// Keeps the group until backward.
struct Handle : torch::CustomClassHolder {
  explicit Handle(std::shared_ptr<Communicator> c) : comm(std::move(c)) {}
  std::shared_ptr<Communicator> comm;
};

struct Normalise : torch::autograd::Function<Normalise> {
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x, const at::Tensor& mean,
                            const at::Tensor& inverse_deviation, double count, std::shared_ptr<Communicator> comm) {
    const at::Tensor normal = (x - beside(mean, x)) * beside(inverse_deviation, x);
    ctx->save_for_backward({normal, inverse_deviation});
    ctx->saved_data["count"] = count;
    ctx->saved_data["comm"] = c10::IValue::make_capsule(c10::make_intrusive<Handle>(std::move(comm)));
    return normal;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list gradients) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &normal = saved[0], &gradient = gradients[0];
    Communicator& comm = *static_cast<Handle&>(*ctx->saved_data["comm"].toCapsule()).comm;
    const auto dims = all_but_channels(normal);
    at::Tensor sums = at::stack({gradient.sum(dims), (gradient * normal).sum(dims)});
    comm.all_reduce(sums, {.name = "gradient of a batch norm"});
    sums /= ctx->saved_data["count"].toDouble();
    const at::Tensor of_x =
        (gradient - beside(sums[0], normal) - normal * beside(sums[1], normal)) * beside(saved[1], normal);
    return {of_x, {}, {}, {}, {}};
  }
};

}  // namespace

void SyncBatchNormImpl::_check_input_dim(const at::Tensor& x) {
  if (x.dim() >= 2 && x.size(1) == options.num_features()) return;
  std::ostringstream text;
  text << "a batch norm of " << options.num_features() << " channels takes [samples, " << options.num_features()
       << ", ...], not " << x.sizes();
  throw Error(Code::kBadConfig, text.str());
}

at::Tensor SyncBatchNormImpl::forward(const at::Tensor& x) {
  const bool uses_batch = is_training() || !options.track_running_stats();
  if (!uses_batch || comm_->size() == 1) return Base::forward(x);
  _check_input_dim(x);
  const bool is_short = x.scalar_type() == at::kHalf || x.scalar_type() == at::kBFloat16;
  const at::Tensor wide = is_short ? x.to(at::kFloat) : x;
  Moments moments;
  {
    at::NoGradGuard no_grad;
    moments = moments_of_all_ranks(*comm_, wide);
    if (moments.count < 2) {
      throw Error(Code::kBadConfig, "a batch norm in training needs two values of a channel or more, and the " +
                                        std::to_string(comm_->size()) + " ranks have " +
                                        std::to_string(static_cast<int64_t>(moments.count)) + " together");
    }
    if (is_training() && options.track_running_stats()) {
      num_batches_tracked.add_(1);
      const double share = options.momentum() ? *options.momentum() : 1.0 / num_batches_tracked.item<double>();
      running_mean.lerp_(moments.mean.to(running_mean.scalar_type()), share);
      running_var.lerp_((moments.variance * (moments.count / (moments.count - 1))).to(running_var.scalar_type()),
                        share);
    }
  }
  at::Tensor y = Normalise::apply(wide, moments.mean, (moments.variance + options.eps()).rsqrt(), moments.count, comm_);
  if (options.affine()) y = y * beside(weight, y) + beside(bias, y);
  return y.to(x.scalar_type());
}

}  // namespace herd::ddp
