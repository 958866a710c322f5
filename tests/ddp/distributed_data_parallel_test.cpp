#include "herd/ddp/distributed_data_parallel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <chrono>
#include <cmath>
#include <mutex>
#include <optional>

#include "herd/base/check.h"
#include "herd/base/error.h"
#include "herd/comm/inproc_world.h"

namespace herd::ddp {
namespace {

// Odd sizes, a buffer, and one tensor registered under two names.
struct Net : torch::nn::Module {
  explicit Net(uint64_t seed, int64_t width = 7) {
    torch::manual_seed(seed);
    first = register_parameter("first", torch::randn({width, 5}) / 3);
    bias = register_parameter("bias", torch::randn({width}));
    shared = register_parameter("shared", torch::randn({width, width}) / 3);
    register_parameter("shared_again", shared);
    last = register_parameter("last", torch::randn({1, width}));
    calls = register_buffer("calls", torch::zeros({}, torch::kLong));
  }
  at::Tensor forward(const at::Tensor& x, bool use_bias = true) {
    calls += 1;
    at::Tensor hidden = torch::matmul(x, first.t());
    if (use_bias) hidden = hidden + bias;
    hidden = torch::tanh(torch::matmul(torch::tanh(hidden), shared.t()));
    return torch::matmul(torch::matmul(hidden, shared.t()), last.t());
  }
  void replace_last() {
    parameters_.erase("last");
    last = register_parameter("last", torch::ones_like(last));
  }
  at::Tensor first, bias, shared, last, calls;
};

// Torch's generator is shared by the ranks, which are threads here.
std::shared_ptr<Net> make_net(uint64_t seed, int64_t width = 7) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  return std::make_shared<Net>(seed, width);
}

constexpr int64_t kBatch = 12;
struct Data {
  at::Tensor x, y;
};
std::vector<Data> make_data() {
  torch::manual_seed(77);
  std::vector<Data> data;
  for (int step = 0; step < 10; ++step) data.push_back({torch::randn({kBatch, 5}), torch::randn({kBatch, 1})});
  return data;
}

at::Tensor mean_loss(const at::Tensor& out, const at::Tensor& y) { return (out - y).square().mean(); }

at::Tensor weights_of(torch::nn::Module& net) {
  std::vector<at::Tensor> all;
  for (const auto& parameter : net.parameters()) all.push_back(parameter.detach().flatten().clone());
  return torch::cat(all);
}

torch::optim::SGD make_optimizer(Net& net) {
  const std::vector<at::Tensor> once = {net.first, net.bias, net.shared, net.last};
  return torch::optim::SGD(once, torch::optim::SGDOptions(0.1).momentum(0.9));
}

at::Tensor train_alone(const std::vector<Data>& data) {
  const auto net = make_net(1);
  auto optimizer = make_optimizer(*net);
  for (const Data& batch : data) {
    mean_loss(net->forward(batch.x), batch.y).backward();
    optimizer.step();
    optimizer.zero_grad();
  }
  return weights_of(*net);
}

using Ddp = DistributedDataParallel<Net>;

using Step = std::function<void(Ddp&, Communicator&, const Data&)>;  // a forward and backward on this rank's part

// Returns every rank's weights after a step on each batch.
std::vector<at::Tensor> train_on_ranks(int num_ranks, const DataParallelOptions& options, const std::vector<Data>& data,
                                       const Step& step) {
  std::vector<at::Tensor> weights(static_cast<size_t>(num_ranks));
  run_inproc(num_ranks, [&](Communicator& comm) {
    const auto net = make_net(static_cast<uint64_t>(1 + comm.rank()));  // rank 0's weights go to all
    Ddp ddp(net, comm, options);
    auto optimizer = make_optimizer(*net);
    for (const Data& batch : data) {
      step(ddp, comm, batch);
      optimizer.step();
      optimizer.zero_grad();
    }
    weights[static_cast<size_t>(comm.rank())] = weights_of(*net);
  });
  return weights;
}

// Trains 10 steps, and compares the weights of every rank with those of one process on the whole batches.
void expect_parity(int num_ranks, const DataParallelOptions& options, const Step& step) {
  const auto data = make_data();
  const at::Tensor alone = train_alone(data);
  const auto weights = train_on_ranks(num_ranks, options, data, step);
  for (const at::Tensor& w : weights) {
    EXPECT_TRUE(w.equal(weights[0])) << "replicas drift apart";
    EXPECT_LT((w - alone).abs().max().item<double>(), 2e-6);
  }
}

Data part(const Data& whole, int64_t begin, int64_t end) {
  return {whole.x.slice(0, begin, end), whole.y.slice(0, begin, end)};
}
Data even_part(const Data& whole, const Communicator& comm) {
  return part(whole, kBatch * comm.rank() / comm.size(), kBatch * (comm.rank() + 1) / comm.size());
}
void even_step(Ddp& ddp, Communicator& comm, const Data& batch) {
  const Data mine = even_part(batch, comm);
  mean_loss(ddp(mine.x), mine.y).backward();
}

TEST(DistributedDataParallel, GivesTheWeightsOfOneProcessOnTheWholeBatch) {
  for (int num_ranks : {1, 2, 3}) expect_parity(num_ranks, {}, even_step);
}

TEST(DistributedDataParallel, DoesSoWithABucketPerParameterAndByRing) {
  DataParallelOptions options;
  options.first_bucket_bytes = options.bucket_bytes = 1;
  options.algorithm = "ring";
  expect_parity(3, options, even_step);
}

TEST(DistributedDataParallel, AccumulatesGradientsWithoutReducing) {
  expect_parity(2, {}, [](Ddp& ddp, Communicator& comm, const Data& batch) {
    const Data mine = even_part(batch, comm);
    for (int64_t piece = 0; piece < 3; ++piece) {
      const Data micro = part(mine, 2 * piece, 2 * piece + 2);
      const auto run = [&] { (mean_loss(ddp(micro.x), micro.y) / 3).backward(); };
      if (piece < 2) {
        const auto guard = ddp.no_sync();
        run();
      } else {
        run();
      }
    }
  });
}

TEST(DistributedDataParallel, WeighsUnevenBatchesAndLetsARankHaveNone) {
  DataParallelOptions options;
  options.buffers = ModuleBuffers::kLocal;
  expect_parity(3, options, [](Ddp& ddp, Communicator& comm, const Data& batch) {
    const std::vector<int64_t> ends = {0, 5, 12, 12};  // 5 samples, 7, none
    const auto rank = static_cast<size_t>(comm.rank());
    const Data mine = part(batch, ends[rank], ends[rank + 1]);
    ddp.set_weight(static_cast<double>(mine.x.size(0)));
    if (mine.x.size(0) == 0) return ddp.without_batch();
    mean_loss(ddp(mine.x), mine.y).backward();
  });
}

TEST(DistributedDataParallel, KeepsGradientsThatAreZeroedInPlace) {
  const auto data = make_data();
  run_inproc(2, [&](Communicator& comm) {
    const auto net = make_net(1);
    Ddp ddp(net, comm);
    even_step(ddp, comm, data[0]);
    const at::Tensor once = net->first.grad().clone();
    for (at::Tensor* x : {&net->first, &net->bias, &net->shared, &net->last}) x->mutable_grad().zero_();
    even_step(ddp, comm, data[0]);
    EXPECT_TRUE(net->first.grad().allclose(once, 1e-6, 1e-7));
  });
}

TEST(DistributedDataParallel, SendsBuffersOfRankZero) {
  const auto data = make_data();
  run_inproc(2, [&](Communicator& comm) {
    const auto net = make_net(1);
    net->calls += comm.rank() == 0 ? 100 : 0;
    Ddp ddp(net, comm);
    EXPECT_EQ(net->calls.item<int64_t>(), 100);
    net->calls += comm.rank();
    ddp(data[0].x);
    EXPECT_EQ(net->calls.item<int64_t>(), 101);
  });
}

// Runs `body` on the ranks and returns what each threw.
std::vector<std::string> errors_of(int num_ranks, const std::function<void(Communicator&)>& body) {
  std::vector<std::string> errors(static_cast<size_t>(num_ranks));
  run_inproc(num_ranks, [&](Communicator& comm) {
    try {
      body(comm);
    } catch (const Error& error) {
      errors[static_cast<size_t>(comm.rank())] = error.what();
    }
    comm.barrier();
  });
  return errors;
}

TEST(DistributedDataParallel, NamesUnusedParametersOnTheRankThatHasThem) {
  const auto data = make_data();
  const auto errors = errors_of(2, [&](Communicator& comm) {
    Ddp ddp(make_net(1), comm);
    ddp(data[0].x, comm.rank() == 0).sum().backward();
  });
  EXPECT_NE(errors[1].find("kBadConfig: 1 of 4 parameters got no gradient in this backward on rank 1: bias"),
            std::string::npos)
      << errors[1];
  EXPECT_NE(errors[0].find("another rank got no gradient"), std::string::npos) << errors[0];
  EXPECT_NE(errors[0].find("bias"), std::string::npos) << errors[0];
}

TEST(DistributedDataParallel, RefusesAWeightOnAllRanksAtOnce_WhereOneGivesItWrong) {
  const auto begin = std::chrono::steady_clock::now();
  for (const double bad : {-1.0, std::nan(""), HUGE_VAL}) {
    const auto errors = errors_of(3, [&](Communicator& comm) {
      Ddp ddp(make_net(1), comm);
      ddp.set_weight(comm.rank() == 1 ? bad : 2);
    });
    EXPECT_NE(errors[1].find("on rank 1"), std::string::npos) << errors[1];
    for (const int other : {0, 2})
      EXPECT_NE(errors[static_cast<size_t>(other)].find("kBadConfig: the weight of a batch is not >= 0 and finite on "
                                                        "1 of 3 ranks"),
                std::string::npos)
          << errors[static_cast<size_t>(other)];
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20)) << "nobody waits for a deadline";
}

DataParallelOptions allow_unused() {
  DataParallelOptions options;
  options.unused = UnusedParameters::kZero;
  options.buffers = ModuleBuffers::kLocal;  // a rank without a batch has no forward to send them in
  return options;
}

TEST(DistributedDataParallel, CountsAParameterThatSomeRankUsedAsZeroOnTheOthers) {
  const auto data = make_data();
  for (const bool one_bucket : {true, false}) {
    std::vector<at::Tensor> bias(2);
    run_inproc(2, [&](Communicator& comm) {
      const auto net = make_net(1);
      DataParallelOptions options = allow_unused();
      if (!one_bucket) options.first_bucket_bytes = options.bucket_bytes = 1;
      Ddp ddp(net, comm, options);
      ddp(data[0].x, comm.rank() == 1).sum().backward();
      bias[static_cast<size_t>(comm.rank())] = net->bias.grad().clone();
    });
    EXPECT_TRUE(bias[0].equal(bias[1]));
    const auto net = make_net(1);
    net->forward(data[0].x).sum().backward();
    EXPECT_TRUE(bias[0].allclose(net->bias.grad() / 2));
  }
}

TEST(DistributedDataParallel, LeavesAGradientUndefinedThatNoRankUsed_SoThatNothingDecaysIt) {
  const auto data = make_data();
  for (const int without_batch : {-1, 1}) {
    run_inproc(3, [&](Communicator& comm) {
      const auto net = make_net(1);
      Ddp ddp(net, comm, allow_unused());
      const at::Tensor bias = net->bias.detach().clone(), first = net->first.detach().clone();
      torch::optim::SGD optimizer({net->first, net->bias}, torch::optim::SGDOptions(0.1).weight_decay(0.5));
      for (int step = 0; step < 2; ++step) {
        ddp.set_weight(comm.rank() == without_batch ? 0 : 4);
        if (comm.rank() == without_batch)
          ddp.without_batch();
        else
          ddp(data[0].x, false).sum().backward();
        EXPECT_FALSE(net->bias.grad().defined());
        optimizer.step();
        optimizer.zero_grad();
      }
      EXPECT_TRUE(net->bias.equal(bias));
      EXPECT_FALSE(net->first.equal(first));
    });
  }
}

TEST(DistributedDataParallel, KeepsTheEarlierGradientOfAParameterThatNoRankUsed) {
  const auto data = make_data();
  run_inproc(3, [&](Communicator& comm) {
    const auto net = make_net(1);
    Ddp ddp(net, comm, allow_unused());
    ddp(data[0].x).sum().backward();
    const at::Tensor before = net->bias.grad().clone();
    ddp.set_weight(1 + comm.rank());
    if (comm.rank() == 2)
      ddp.without_batch();
    else
      ddp(data[1].x, false).sum().backward();
    ASSERT_TRUE(net->bias.grad().defined());
    EXPECT_TRUE(net->bias.grad().equal(before));
    ddp(data[0].x).sum().backward();
    EXPECT_TRUE(net->bias.grad().allclose(2 * before));
  });
}

TEST(DistributedDataParallel, RemembersWhatOnlyAMicroBatchUsed) {
  const auto data = make_data();
  run_inproc(2, [&](Communicator& comm) {
    const auto net = make_net(1);
    Ddp ddp(net, comm, allow_unused());
    {
      const auto guard = ddp.no_sync();
      ddp(data[0].x, comm.rank() == 0).sum().backward();
    }
    ddp(data[0].x, false).sum().backward();
    EXPECT_GT(net->bias.grad().abs().sum().item<double>(), 0.0);
    for (at::Tensor* x : {&net->first, &net->bias, &net->shared, &net->last}) x->mutable_grad().reset();
    ddp(data[0].x, false).sum().backward();
    EXPECT_FALSE(net->bias.grad().defined()) << "a use counts until the next reduction";
  });
}

TEST(DistributedDataParallel, UsesWhatAnEarlierMicroBatchGave) {
  const auto data = make_data();
  run_inproc(2, [&](Communicator& comm) {
    const auto net = make_net(1);
    Ddp ddp(net, comm);
    {
      const auto guard = ddp.no_sync();
      ddp(data[0].x, true).sum().backward();
    }
    const at::Tensor before = net->bias.grad().clone();
    ddp(data[0].x, false).sum().backward();
    EXPECT_TRUE(net->bias.grad().equal(before));
  });
}

TEST(DistributedDataParallel, RefusesModulesThatDiffer) {
  const auto errors = errors_of(3, [](Communicator& comm) { Ddp ddp(make_net(1, comm.rank() == 2 ? 9 : 7), comm); });
  for (const std::string& error : errors) {
    EXPECT_NE(error.find("kBadConfig: parameter 0: rank 0 has \"first [7, 5] fp32\", rank 2 has \"first [9, 5] fp32\""),
              std::string::npos)
        << error;
  }
}

TEST(DistributedDataParallel, RefusesOptionsThatDiffer) {
  const auto refused = [](const std::function<void(DataParallelOptions&)>& change, const std::string& words) {
    for (const std::string& error : errors_of(2, [&](Communicator& comm) {
           DataParallelOptions options;
           if (comm.rank() == 1) change(options);
           Ddp ddp(make_net(1), comm, options);
         })) {
      EXPECT_NE(error.find("kBadConfig: option " + words), std::string::npos) << error;
      EXPECT_NE(error.find("fix: the same DataParallelOptions on every rank"), std::string::npos) << error;
    }
  };
  refused([](auto& options) { options.bucket_bytes = 1 << 20; },
          "0: rank 0 has \"bucket_bytes 26214400\", rank 1 has \"bucket_bytes 1048576\"");
  refused([](auto& options) { options.first_bucket_bytes = 7; }, "1: rank 0 has \"first_bucket_bytes 1048576\"");
  refused([](auto& options) { options.unused = UnusedParameters::kZero; }, "2: rank 0 has \"unused kError\"");
  refused([](auto& options) { options.algorithm = "ring"; }, "3: rank 0 has \"algorithm \"\"\"");
  refused([](auto& options) { options.codec = {.kind = kernels::CodecKind::kInt8, .block = 64}; },
          "4: rank 0 has \"codec none\", rank 1 has \"codec int8, block 64, ratio 0.01\"");
  refused([](auto& options) { options.buffers = ModuleBuffers::kLocal; }, "5: rank 0 has \"buffers kFromRankZero\"");
}

struct Exploding : torch::autograd::Function<Exploding> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) { return x.clone(); }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*, torch::autograd::variable_list) {
    throw std::runtime_error("exploded");
  }
};

TEST(DistributedDataParallel, SaysSoWhenTheLastBackwardStoppedHalfWay) {
  const auto data = make_data();
  run_inproc(1, [&](Communicator& comm) {
    const auto net = make_net(1);
    Ddp ddp(net, comm);
    const at::Tensor hidden = Exploding::apply(torch::matmul(data[0].x, net->first.t()));
    EXPECT_THROW(torch::matmul(hidden, net->last.t()).sum().backward(), std::runtime_error);
    try {
      ddp(data[0].x);
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kAborted);
      EXPECT_NE(error.message().find("stopped half-way on rank 0, after 1 of 4 gradients"), std::string::npos)
          << error.what();
    }
  });
}

struct HeldImpl : torch::nn::Module {
  HeldImpl() : linear(register_module("linear", torch::nn::Linear(3, 2))) {}
  at::Tensor forward(const at::Tensor& x) { return linear(x); }
  torch::nn::Linear linear;
};
TORCH_MODULE(Held);

TEST(DistributedDataParallel, TakesAModuleHolder) {
  run_inproc(1, [](Communicator& comm) {
    const Held held;
    DistributedDataParallel<Held> ddp(held, comm);
    ddp(torch::ones({2, 3})).sum().backward();
    EXPECT_TRUE(held->linear->bias.grad().equal(torch::full({2}, 2.0)));
  });
}

// Runs a wrapped net on one rank after `change` has been made to it, and returns what its forward throws.
std::string error_after(const std::function<void(Net&)>& change, const DataParallelOptions& options = {}) {
  const auto errors = errors_of(1, [&](Communicator& comm) {
    const auto net = make_net(1);
    net->bias.set_requires_grad(false);
    Ddp ddp(net, comm, options);
    ddp(torch::ones({2, 5}));
    change(*net);
    ddp(torch::ones({2, 5}).to(net->first.scalar_type()));
  });
  return errors[0];
}

TEST(DistributedDataParallel, SendsGradientsInAShorterForm_AndMakesUpForWhatThatLoses) {
  using kernels::CodecKind;
  const auto data = make_data();
  const at::Tensor alone = train_alone(data);
  struct Case {
    kernels::CodecSettings codec;
    double apart;  // of weights of up to 1, after ten steps
  };
  for (const Case& c :
       {Case{{.kind = CodecKind::kBf16}, 0.02}, Case{{.kind = CodecKind::kInt8, .block = 16}, 0.02},
        Case{{.kind = CodecKind::kInt4, .block = 16}, 0.2}, Case{{.kind = CodecKind::kTopK, .ratio = 0.5}, 0.4}}) {
    DataParallelOptions options;
    options.first_bucket_bytes = options.bucket_bytes = 200;
    options.codec = c.codec;
    const auto weights = train_on_ranks(3, options, data, even_step);
    const auto name = kernels::codec_row(c.codec.kind).name;
    for (const at::Tensor& w : weights) EXPECT_TRUE(w.equal(weights[0])) << name;
    const double apart = (weights[0] - alone).abs().max().item<double>();
    EXPECT_LT(apart, c.apart) << name;
    EXPECT_GT(apart, 1e-6) << name << " has encoded nothing";
  }
}

// A gradient that is the same in every step, whose small elements top-k leaves out: they arrive later.
TEST(DistributedDataParallel, AddsWhatACodecLostToLaterGradients) {
  run_inproc(2, [](Communicator& comm) {
    const auto net = std::make_shared<torch::nn::LinearImpl>(torch::nn::LinearOptions(4, 1).bias(false));
    DataParallelOptions options;
    options.codec = kernels::CodecSettings{.kind = kernels::CodecKind::kTopK, .ratio = 0.25};
    DistributedDataParallel ddp(net, comm, options);
    const at::Tensor x = at::tensor({4.0f, 3.0f, 2.0f, 1.0f}).view({1, 4});
    at::Tensor sum = at::zeros({1, 4});
    for (int step = 0; step < 40; ++step) {
      ddp(x).sum().backward();
      sum += net->weight.grad();
      net->zero_grad();
    }
    HERD_CHECK((sum / 40 - x).abs().max().item<double>() < 0.3, "the mean of what arrived is the gradient");
  });
}

TEST(DistributedDataParallel, RefusesACodecThatGradientsCanNotHave) {
  const auto refusal = [](const std::function<void(DataParallelOptions&)>& set, at::ScalarType type) {
    std::string text;
    run_inproc(2, [&](Communicator& comm) {
      const auto net = make_net(1);
      net->to(type);
      DataParallelOptions options;
      options.codec = kernels::CodecSettings{.kind = kernels::CodecKind::kInt8};
      set(options);
      try {
        Ddp ddp(net, comm, options);
      } catch (const Error& error) {
        if (comm.rank() == 0) text = error.message();
      }
    });
    return text;
  };
  EXPECT_THAT(refusal([](auto&) {}, at::kDouble), testing::HasSubstr("encodes fp32 on the CPU"));
  EXPECT_THAT(refusal([](auto& o) { o.algorithm = "ring"; }, at::kFloat), testing::HasSubstr("not \"ring\""));
  EXPECT_THAT(refusal([](auto& o) { o.codec->block = 3; }, at::kFloat), testing::HasSubstr("block = 3"));
}

// A table of which each batch touches a few rows, and what is dense after it.
struct Words : torch::nn::Module {
  explicit Words(bool sparse = true)
      : table(register_module("table", torch::nn::Embedding(torch::nn::EmbeddingOptions(50, 6).sparse(sparse)))),
        bag(register_module(
            "bag", torch::nn::EmbeddingBag(torch::nn::EmbeddingBagOptions(9, 6).sparse(sparse).mode(torch::kSum)))),
        head(register_module("head", torch::nn::Linear(6, 1))) {}
  at::Tensor forward(const at::Tensor& words, bool use_bag = true) {
    at::Tensor hidden = table(words).sum(1);
    if (use_bag) hidden = hidden + bag(words % 9);
    return head(torch::tanh(hidden)).square().mean();
  }
  torch::nn::Embedding table;
  torch::nn::EmbeddingBag bag;
  torch::nn::Linear head;
};

std::shared_ptr<Words> make_words(bool sparse = true) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  torch::manual_seed(4);
  return std::make_shared<Words>(sparse);
}

std::vector<at::Tensor> gradients_of(torch::nn::Module& net) {
  std::vector<at::Tensor> all;
  for (const auto& parameter : net.parameters()) {
    const at::Tensor& grad = parameter.grad();
    all.push_back(!grad.defined() ? grad : grad.is_sparse() ? grad.to_dense() : grad.clone());
  }
  return all;
}

void expect_close(const std::vector<at::Tensor>& found, const std::vector<at::Tensor>& wanted) {
  ASSERT_EQ(found.size(), wanted.size());
  for (size_t k = 0; k < found.size(); ++k) {
    ASSERT_EQ(found[k].defined(), wanted[k].defined()) << k;
    if (found[k].defined()) {
      EXPECT_TRUE(torch::allclose(found[k], wanted[k], 1e-5, 1e-7)) << k << found[k] << wanted[k];
    }
  }
}

auto fails_with(const std::string& part) { return testing::ThrowsMessage<Error>(testing::HasSubstr(part)); }

at::Tensor random_words(int64_t samples) {
  torch::manual_seed(5);
  return torch::randint(50, {samples, 4}, torch::kLong);
}

TEST(DistributedDataParallel, SumsSparseGradientsByRow) {
  constexpr int64_t kSamples = 12;
  const at::Tensor words = random_words(kSamples);
  const auto alone = make_words(false);
  alone->forward(words).backward();
  for (const int ranks : {1, 2, 3}) {
    std::vector<at::Tensor> tables(static_cast<size_t>(ranks));
    run_inproc(ranks, [&](Communicator& comm) {
      const auto net = make_words();
      DistributedDataParallel ddp(net, comm);
      const int64_t samples = kSamples / comm.size();
      const at::Tensor mine = words.narrow(0, comm.rank() * samples, samples);
      {
        const NoSync no_sync = ddp.no_sync();  // of which the rows are added before they are sent
        (ddp(mine.narrow(0, 0, 1)) / static_cast<double>(samples)).backward();
      }
      (ddp(mine.narrow(0, 1, samples - 1)) * (static_cast<double>(samples - 1) / samples)).backward();
      EXPECT_TRUE(net->table->weight.grad().is_sparse());
      EXPECT_LE(net->table->weight.grad()._nnz(), kSamples * 4);
      expect_close(gradients_of(*net), gradients_of(*alone));
      torch::optim::SGD(ddp.parameters(), 0.1).step();
      tables[static_cast<size_t>(comm.rank())] = net->table->weight.detach().clone();
    });
    for (const at::Tensor& table : tables) EXPECT_TRUE(torch::equal(table, tables[0]));
  }
}

TEST(DistributedDataParallel, SumsSparseGradientsOfRanksThatHaveNone_AndBesideACodec) {
  const at::Tensor words = random_words(5);
  const auto alone = make_words(false);
  alone->forward(words).backward();
  run_inproc(3, [&](Communicator& comm) {
    const auto net = make_words();
    DistributedDataParallel ddp(net, comm, {{.codec = kernels::CodecSettings{.kind = kernels::CodecKind::kInt8}}});
    const int64_t first = comm.rank() == 0 ? 0 : 2, samples = comm.rank() == 0 ? 2 : comm.rank() == 1 ? 3 : 0;
    ddp.set_weight(static_cast<double>(samples));
    if (samples == 0)
      ddp.without_batch();
    else
      ddp(words.narrow(0, first, samples)).backward();
    EXPECT_TRUE(torch::allclose(net->table->weight.grad().to_dense(), alone->table->weight.grad(), 1e-5, 1e-7));
  });
  run_inproc(2, [&](Communicator& comm) {
    const auto net = make_words();
    DistributedDataParallel ddp(net, comm, {{.unused = UnusedParameters::kZero}});
    ddp(words.narrow(0, 0, 3), false).backward();
    EXPECT_FALSE(net->bag->weight.grad().defined()) << "no rank used it";
    net->zero_grad();
    ddp(words.narrow(0, 0, 3), comm.rank() == 1).backward();
    EXPECT_TRUE(net->bag->weight.grad().is_sparse()) << "rank 1 used it";
  });
}

TEST(DistributedDataParallel, RefusesTablesThatAreSparseOnSomeRanks_OrHaveDenseGradientsToo) {
  run_inproc(2, [](Communicator& comm) {
    const auto net = make_words(comm.rank() == 0);
    EXPECT_THAT([&] { DistributedDataParallel(net, comm); }, fails_with("table.weight [50, 6] fp32"));
  });
  struct Tied : Words {
    at::Tensor forward(const at::Tensor& words) {
      return torch::matmul(table(words), table->weight.t()).square().mean();
    }
  };
  run_inproc(1, [](Communicator& comm) {
    DistributedDataParallel ddp(std::make_shared<Tied>(), comm, {{.unused = UnusedParameters::kZero}});
    EXPECT_THAT([&] { ddp(random_words(2)).backward(); }, fails_with("build it with sparse = false"));
  });
}

TEST(DistributedDataParallel, IsTheModuleToItsCaller) {
  run_inproc(2, [](Communicator& comm) {
    const auto net = make_net(static_cast<uint64_t>(comm.rank()));
    DistributedDataParallel ddp(net, comm);
    static_assert(std::is_same_v<decltype(ddp), DistributedDataParallel<Net>>);
    HERD_CHECK(ddp->first.is_same(net->first), "-> reaches the members of the module");
    HERD_CHECK(ddp.parameters().size() == net->parameters().size(), "parameters() are those of the module");
    HERD_CHECK(ddp.parameters()[0].is_same(net->parameters()[0]), "and the tensors themselves");
    DistributedDataParallel of_holder(torch::nn::Linear(3, 1), comm);
    static_assert(std::is_same_v<decltype(of_holder), DistributedDataParallel<torch::nn::Linear>>);
    HERD_CHECK(of_holder->weight.size(1) == 3, "-> of a holder's module");
  });
}

TEST(DistributedDataParallel, NamesParametersThatChangedAfterItTookTheModule) {
  using testing::HasSubstr;
  EXPECT_EQ(error_after([](Net&) {}), "");
  EXPECT_EQ(error_after([](Net& net) { net.first.set_data(net.first.detach().clone()); }), "");
  EXPECT_THAT(error_after([](Net& net) { net.to(torch::kBFloat16); }),
              HasSubstr("kBadConfig: 5 parameters changed after the module was wrapped, on rank 0: first is BFloat16, "
                        "was Float; bias is BFloat16"));
  EXPECT_THAT(error_after([](Net& net) { net.bias.set_requires_grad(true); }),
              HasSubstr("1 parameter changed after the module was wrapped, on rank 0: bias requires a gradient, was "
                        "frozen\n  fix: "));
  EXPECT_THAT(error_after([](Net& net) { net.last.set_requires_grad(false); }),
              HasSubstr("last is frozen, required a gradient"));
  EXPECT_THAT(error_after([](Net& net) { net.register_parameter("extra", torch::ones({1})); }),
              HasSubstr("extra is new"));
  EXPECT_THAT(error_after([](Net& net) {
                net.last.set_data(torch::ones({2, 7}));
              }),
              HasSubstr("last is [2, 7], was [1, 7]"));
  EXPECT_THAT(error_after([](Net& net) { net.replace_last(); }), HasSubstr("last is another tensor"));
}

TEST(DistributedDataParallel, LetsAParameterBeFrozenLater_WhereMissingGradientsAreAllowed) {
  EXPECT_EQ(error_after([](Net& net) { net.last.set_requires_grad(false); }, allow_unused()), "");
}

TEST(DistributedDataParallel, TellsARankThatSkippedABackwardFromItsPeers) {
  DataParallelOptions options;
  options.buffers = ModuleBuffers::kLocal;
  std::vector<std::string> errors(2);
  run_inproc(2, [&](Communicator& comm) {
    const auto net = make_net(1);
    Ddp ddp(net, comm, options);
    try {
      for (int step = 0; step < 2; ++step) {
        const at::Tensor loss = ddp(torch::ones({2, 5})).sum();
        if (comm.rank() == 1 && step == 0) continue;  // as after a loss that is no number
        loss.backward();
      }
    } catch (const Error& error) {
      errors[static_cast<size_t>(comm.rank())] = error.what();
    }
  });
  for (const std::string& error : errors) {
    EXPECT_THAT(error, testing::HasSubstr("kBadConfig"));
    EXPECT_THAT(error, testing::HasSubstr("rank 0 calls all_reduce #"));
    EXPECT_THAT(error, testing::HasSubstr("\"grad.bucket0 of forward 1\""));
    EXPECT_THAT(error, testing::HasSubstr("\"grad.bucket0 of forward 2\""));
  }
}

TEST(DistributedDataParallel, GoesOnWhereAllRanksSkipABackward_AndWhereOneEvaluatesAlone) {
  DataParallelOptions options;
  options.buffers = ModuleBuffers::kLocal;
  run_inproc(2, [&](Communicator& comm) {
    const auto net = make_net(1);
    Ddp ddp(net, comm, options);
    ddp(torch::ones({2, 5}));
    if (comm.rank() == 0) {
      const at::NoGradGuard no_grad;
      ddp(torch::ones({2, 5}));
    }
    ddp(torch::ones({2, 5})).sum().backward();
    EXPECT_TRUE(net->first.grad().defined());
    if (comm.rank() == 0) {
      ddp.without_batch();
    } else {
      ddp(torch::ones({2, 5}));
      ddp(torch::ones({2, 5})).sum().backward();
    }
  });
}

TEST(DistributedDataParallel, WorksAfterItsCommunicatorWasMovedAndEnded) {
  const auto data = make_data();
  run_inproc(2, [&](Communicator& comm) {
    std::optional<Communicator> group(comm.split(0, comm.rank()));
    const auto net = make_net(1);
    Ddp ddp(net, *group);
    Communicator moved = std::move(*group);
    even_step(ddp, comm, data[0]);
    group.reset();
    { const Communicator ended = std::move(moved); }
    even_step(ddp, comm, data[0]);
    EXPECT_TRUE(net->first.grad().defined());
  });
}

}  // namespace
}  // namespace herd::ddp
