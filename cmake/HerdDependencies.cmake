# Everything herd takes from elsewhere, in one place. herd_third_party is private: no public header needs it.
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(ZMQ REQUIRED IMPORTED_TARGET libzmq)
# zmq.h lies in /usr/include. What its .pc adds for a static link changes its place between the first and the second
# configure of CMake 3.25, and with it every compile command.
set_target_properties(PkgConfig::ZMQ PROPERTIES INTERFACE_COMPILE_OPTIONS "" INTERFACE_INCLUDE_DIRECTORIES "")
pkg_check_modules(SODIUM REQUIRED IMPORTED_TARGET libsodium)
pkg_check_modules(OPENSSL REQUIRED IMPORTED_TARGET openssl>=3.0)
pkg_check_modules(HWY REQUIRED IMPORTED_TARGET libhwy)
pkg_check_modules(HWLOC REQUIRED IMPORTED_TARGET hwloc)
pkg_check_modules(SENTENCEPIECE REQUIRED IMPORTED_TARGET sentencepiece)
if(HERD_UCX STREQUAL "AUTO")
  pkg_check_modules(UCX IMPORTED_TARGET ucx)
elseif(HERD_UCX)
  pkg_check_modules(UCX REQUIRED IMPORTED_TARGET ucx)
endif()
set(HERD_HAVE_UCX ${UCX_FOUND})
if(NOT HERD_UCX)
  set(HERD_HAVE_UCX OFF)
endif()
find_package(CLI11 REQUIRED)
find_package(nlohmann_json REQUIRED)
if(HERD_TESTS)
  find_package(GTest REQUIRED)
endif()

add_library(herd_third_party INTERFACE)
target_link_libraries(herd_third_party INTERFACE
  PkgConfig::ZMQ PkgConfig::SODIUM PkgConfig::OPENSSL PkgConfig::HWY PkgConfig::HWLOC PkgConfig::SENTENCEPIECE
  CLI11::CLI11 nlohmann_json::nlohmann_json)

if(HERD_HAVE_UCX)
  target_link_libraries(herd_third_party INTERFACE PkgConfig::UCX)
endif()

if(HERD_TORCH)
  if(NOT Torch_DIR AND EXISTS ${PROJECT_SOURCE_DIR}/.venv/bin/python)
    execute_process(COMMAND ${PROJECT_SOURCE_DIR}/.venv/bin/python -c "import torch; print(torch.utils.cmake_prefix_path)"
                    OUTPUT_VARIABLE herd_torch_prefix OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    set(Torch_DIR ${herd_torch_prefix}/Torch CACHE PATH "")
  elseif(NOT Torch_DIR AND DEFINED ENV{Torch_DIR})
    set(Torch_DIR $ENV{Torch_DIR} CACHE PATH "")
  endif()
  find_package(Torch REQUIRED)
  # libtorch's own flags, as a target; TORCH_LIBRARIES carries include folders as SYSTEM.
  add_library(herd_libtorch INTERFACE)
  target_link_libraries(herd_libtorch INTERFACE ${TORCH_LIBRARIES})
  target_include_directories(herd_libtorch SYSTEM INTERFACE ${TORCH_INCLUDE_DIRS})
endif()
