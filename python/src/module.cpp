// The Python module of one minor of PyTorch: makes backends, and closes them at the interpreter's exit.
#include <pybind11/chrono.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/version.h>

#include "herd/base/version.h"
#include "herd_backend.h"

namespace herd::pytorch {
namespace {

using Options = HerdBackend::Options;

c10::intrusive_ptr<HerdBackend> create(const c10d::DistributedBackendOptions& group,
                                       const c10::intrusive_ptr<Options>& options) {
  using std::chrono::milliseconds;
  const auto timeout = std::chrono::duration_cast<milliseconds>(group.timeout);
  auto own = options ? c10::make_intrusive<Options>(*options) : c10::make_intrusive<Options>();
  if (timeout.count() > 0) own->timeout = timeout;
  return c10::make_intrusive<HerdBackend>(group.store, group.group_rank, group.group_size, group.group_id,
                                          group.global_ranks_in_group, std::move(own));
}

}  // namespace

PYBIND11_MODULE(HERD_MODULE, module) {
  py::module_::import("torch.distributed");  // registers the classes that ours derive from
  module.attr("torch_version") = TORCH_VERSION;
  module.attr("herd_version") = std::string(version());
  py::class_<Options, c10::intrusive_ptr<Options>, c10d::Backend::Options>(module, "Options")
      .def(py::init<std::chrono::milliseconds>(), py::arg("timeout") = kBackendDefaultTimeout)
      .def("__deepcopy__",
           [](const Options& options, const py::dict&) { return c10::make_intrusive<Options>(options); });
  py::class_<HerdBackend, c10::intrusive_ptr<HerdBackend>, c10d::Backend>(module, "HerdBackend")
      .def_property_readonly("options", &HerdBackend::getBackendOptions)
      .def_property_readonly("device_engine", &HerdBackend::device_engine);
  module.def("create", &create, py::arg("group"), py::arg("options") = c10::intrusive_ptr<Options>(),
             py::call_guard<py::gil_scoped_release>());
  module.def("close_all_groups", &close_all_groups, py::call_guard<py::gil_scoped_release>());
}

}  // namespace herd::pytorch
