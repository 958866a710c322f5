# Everything herd takes from elsewhere, in one place. herd_third_party is private: no public header needs it.
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(SODIUM REQUIRED IMPORTED_TARGET libsodium)
pkg_check_modules(OPENSSL REQUIRED IMPORTED_TARGET openssl>=3.0)
pkg_check_modules(HWY REQUIRED IMPORTED_TARGET libhwy)
pkg_check_modules(HWLOC REQUIRED IMPORTED_TARGET hwloc)
pkg_check_modules(URING REQUIRED IMPORTED_TARGET liburing)
if(HERD_UCX STREQUAL "AUTO")
  pkg_check_modules(UCX IMPORTED_TARGET ucx)
elseif(HERD_UCX)
  pkg_check_modules(UCX REQUIRED IMPORTED_TARGET ucx)
endif()
set(HERD_HAVE_UCX ${UCX_FOUND})
if(NOT HERD_UCX)
  set(HERD_HAVE_UCX OFF)
endif()
find_package(nlohmann_json REQUIRED)
pkg_check_modules(SENTENCEPIECE REQUIRED IMPORTED_TARGET sentencepiece)
find_package(CLI11 REQUIRED)
if(HERD_TESTS)
  find_package(GTest REQUIRED)
endif()

add_library(herd_third_party INTERFACE)
target_link_libraries(herd_third_party INTERFACE
  PkgConfig::SODIUM PkgConfig::OPENSSL PkgConfig::HWY PkgConfig::HWLOC PkgConfig::URING
  nlohmann_json::nlohmann_json PkgConfig::SENTENCEPIECE CLI11::CLI11)

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
  set(herd_torch_home ${Torch_DIR}/../../..)
  add_library(herd_libtorch INTERFACE)
  if(EXISTS ${herd_torch_home}/lib/libtorch_cuda.so)
    # Of a CUDA build herd links the CPU's half, which starts without a driver; the other half is loaded where a run asks
    # for a GPU. Its own CMake files would ask for the CUDA toolkit that it was built with.
    get_filename_component(herd_torch_home ${herd_torch_home} ABSOLUTE)
    foreach(library torch_cpu c10)
      add_library(${library} SHARED IMPORTED)
      set_target_properties(${library} PROPERTIES IMPORTED_LOCATION ${herd_torch_home}/lib/lib${library}.so)
    endforeach()
    target_compile_definitions(herd_libtorch INTERFACE USE_DISTRIBUTED USE_C10D_GLOO USE_RPC USE_TENSORPIPE)
    target_link_options(herd_libtorch INTERFACE LINKER:--allow-shlib-undefined)  # CUDA's libraries, found when it is loaded
    target_link_libraries(herd_libtorch INTERFACE torch_cpu c10)
    target_include_directories(herd_libtorch SYSTEM INTERFACE
      ${herd_torch_home}/include ${herd_torch_home}/include/torch/csrc/api/include)
  else()
    find_package(Torch REQUIRED)
    # libtorch's own flags, as a target; TORCH_LIBRARIES carries include folders as SYSTEM.
    target_link_libraries(herd_libtorch INTERFACE ${TORCH_LIBRARIES})
    target_include_directories(herd_libtorch SYSTEM INTERFACE ${TORCH_INCLUDE_DIRS})
  endif()
endif()
