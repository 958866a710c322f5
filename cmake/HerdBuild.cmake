# Helpers that every folder's CMakeLists.txt uses.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR})
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
include(GNUInstallDirs)
# An installed tree finds its own libraries wherever it is moved to.
file(RELATIVE_PATH herd_libraries_from_programs ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
set(CMAKE_INSTALL_RPATH "$ORIGIN;$ORIGIN/${herd_libraries_from_programs}")

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

find_program(HERD_CCACHE ccache)
if(HERD_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Paths relative to the checkout, so that two checkouts share one cache; the precompiled header needs the sloppiness.
  set(herd_ccache_command ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ${HERD_CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${herd_ccache_command})
  set(CMAKE_C_COMPILER_LAUNCHER ${herd_ccache_command})
endif()

add_library(herd_warnings INTERFACE)
target_compile_options(herd_warnings INTERFACE -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -Werror
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)  # g++ 12 reports every inlined "x" + std::string
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  # It knows none of what is turned off for g++, takes "do both, did either move?" for a slip, and reports what the
  # standard library's own algorithms call.
  target_compile_options(herd_warnings INTERFACE -Wno-unknown-warning-option -Wno-bitwise-instead-of-logical
    -Wno-deprecated-declarations)
endif()
if(HERD_SANITIZE)
  # What libraries without the sanitizer synchronise inside can't be seen.
  set(herd_sanitizer_options "TSAN_OPTIONS=ignore_noninstrumented_modules=1:halt_on_error=1"
      "UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1")
  add_compile_options(-fsanitize=${HERD_SANITIZE} -fno-omit-frame-pointer -g1)
  add_link_options(-fsanitize=${HERD_SANITIZE})
  # The sanitizers' added code hides from g++ 12 that a value was set: false warnings, in the standard library too.
  target_compile_options(herd_warnings INTERFACE -Wno-maybe-uninitialized)
endif()

# Only the folders that move or reduce data are hot; all else is compiled at -O1, in two thirds of the time of -O3. The
# checks of sanitizers triple the compile time of -O1: with TSan those folders alone have it, with UBSan the kernels.
# Both warnings are false in a library's inlined strings.
add_library(herd_optimization INTERFACE)
add_library(herd_hot_optimization INTERFACE)
foreach(level herd_optimization herd_hot_optimization)
  target_compile_options(${level} INTERFACE -Wno-array-bounds -Wno-stringop-overflow)
endforeach()
if(HERD_SANITIZE MATCHES "fuzzer")  # it runs for longer than it compiles
  target_compile_options(herd_optimization INTERFACE -O1)
  target_compile_options(herd_hot_optimization INTERFACE -O1)
  set(herd_hot_folders kernels)
elseif(HERD_SANITIZE)
  target_compile_options(herd_optimization INTERFACE -O0)
  target_compile_options(herd_hot_optimization INTERFACE -O1)
  set(herd_hot_folders kernels)
  if(NOT HERD_SANITIZE MATCHES "undefined")
    list(APPEND herd_hot_folders memory transport comm)
  endif()
else()
  target_compile_options(herd_optimization INTERFACE $<$<NOT:$<CONFIG:Debug>>:-O1>)
  # Calls inside the library are calls, not looks into a table that another library might have filled: a small operation
  # makes some hundred.
  target_compile_options(herd_hot_optimization INTERFACE $<$<NOT:$<CONFIG:Debug>>:-O3> -fno-semantic-interposition)
  set(herd_hot_folders kernels memory transport comm)
endif()

# Tests wait for the library, rarely for their own code: without optimisation it compiles in three quarters of the time,
# and UBSan's checks, which add half of that time again, are for the library.
add_library(herd_test_options INTERFACE)
target_compile_options(herd_test_options INTERFACE -O0)
if(HERD_SANITIZE MATCHES "undefined")
  target_compile_options(herd_test_options INTERFACE -fno-sanitize=undefined)
endif()

# Torch's headers cost a source 2 to 4 s even precompiled, for the templates that they instantiate, CLI11's and JSON's
# as much, the standard library's half a second; four sources compiled as one cost hardly more than each alone. Sources
# with options of their own stay alone. A library's go together by folder, the same ones in every preset, whatever is
# hot there. The debug preset compiles each alone.
set(herd_unity UNITY_BUILD ${HERD_UNITY} UNITY_BUILD_BATCH_SIZE 4)
set(herd_unity_by_folder UNITY_BUILD ${HERD_UNITY} UNITY_BUILD_MODE GROUP)

# herd_library(NAME): a library whose sources the folders add with herd_sources().
function(herd_library name)
  add_library(${name})
  add_library(herd::${name} ALIAS ${name})
  set_target_properties(${name} PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}
    ${herd_unity_by_folder})
  target_include_directories(${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_compile_features(${name} PUBLIC cxx_std_20)
  target_link_options(${name} PRIVATE LINKER:-Bsymbolic-functions)
  if(BUILD_SHARED_LIBS)
    set(exported ${PROJECT_SOURCE_DIR}/cmake/exported_symbols.map)
    target_link_options(${name} PRIVATE LINKER:--version-script=${exported})
    set_target_properties(${name} PROPERTIES LINK_DEPENDS ${exported})
  endif()
  target_link_libraries(${name} PRIVATE $<BUILD_INTERFACE:herd_warnings> $<BUILD_INTERFACE:herd_optimization>)
endfunction()

# herd_finds_libtorch(TARGET): once installed, the target loads libtorch from where it was built with, without help from
# the environment. libtorch's own link flags name folders that do not exist, so only its folder is taken.
function(herd_finds_libtorch target)
  set_target_properties(${target} PROPERTIES INSTALL_RPATH "${CMAKE_INSTALL_RPATH};$<TARGET_FILE_DIR:c10>")
endfunction()

# herd_sources(TARGET [HEADERS a.h ...] [SOURCES a.cpp a_internal.h ...]): files of the current folder.
# HEADERS are public: installed, and compiled alone when CMAKE_VERIFY_INTERFACE_HEADER_SETS is on.
function(herd_sources target)
  cmake_parse_arguments(arg "" "" "HEADERS;SOURCES" ${ARGN})
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "herd_sources of ${target}: what no keyword takes: ${arg_UNPARSED_ARGUMENTS}\n  fix: move it behind its keyword")
  endif()
  list(TRANSFORM arg_HEADERS PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
  list(TRANSFORM arg_SOURCES PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
  if(arg_HEADERS)
    target_sources(${target} PUBLIC FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR} FILES ${arg_HEADERS})
  endif()
  if(arg_SOURCES)
    get_filename_component(folder ${CMAKE_CURRENT_SOURCE_DIR} NAME)
    if(folder IN_LIST herd_hot_folders)
      target_sources(${target}_hot PRIVATE ${arg_SOURCES})
    else()
      target_sources(${target} PRIVATE ${arg_SOURCES})
    endif()
    set(count 0)
    list(FILTER arg_SOURCES INCLUDE REGEX "\\.cpp$")
    foreach(source IN LISTS arg_SOURCES)
      math(EXPR group "${count} / 4")
      set_source_files_properties(${source} TARGET_DIRECTORY ${target} PROPERTIES UNITY_GROUP ${folder}_${group})
      math(EXPR count "${count} + 1")
    endforeach()
  endif()
endfunction()

# herd_test(NAME SOURCES a_test.cpp ... [HOT b.cpp ...] [LIBS herd_torch ...] [LABEL slow] [TIMEOUT s] [FULL s]): one
# GoogleTest program, one ctest. HOT: sources in which the test spends its time, compiled with optimisation. FULL: the
# limit of its long form, a ctest NAME_full of label full with HERD_FULL_TESTS=1. Tests of the longest limits begin
# first: a long one that began last would leave cores idle.
function(herd_test name)
  cmake_parse_arguments(arg "" "LABEL;TIMEOUT;FULL" "SOURCES;HOT;LIBS" ${ARGN})
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "herd_test of ${name}: what no keyword takes: ${arg_UNPARSED_ARGUMENTS}\n  fix: move it behind its keyword")
  endif()
  if(NOT arg_LABEL)
    set(arg_LABEL fast)
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  add_executable(${name} ${arg_SOURCES} ${arg_HOT})
  set_source_files_properties(${arg_HOT} PROPERTIES COMPILE_OPTIONS -O1 SKIP_PRECOMPILE_HEADERS ON)
  target_link_libraries(${name} PRIVATE herd_core ${arg_LIBS} herd_third_party herd_warnings herd_test_options GTest::gmock_main)
  if("herd_torch" IN_LIST arg_LIBS)
    target_precompile_headers(${name} REUSE_FROM herd_torch_test_pch)
  else()
    target_precompile_headers(${name} REUSE_FROM herd_test_pch)
  endif()
  set_target_properties(${name} PROPERTIES ${herd_unity} RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  add_test(NAME ${name} COMMAND ${name} --gtest_brief=1)
  set(environment "OMP_NUM_THREADS=1;HERD_SOURCE_DIR=${PROJECT_SOURCE_DIR};HERD_BINARY_DIR=${PROJECT_BINARY_DIR};${herd_sanitizer_options}")
  set_tests_properties(${name} PROPERTIES LABELS ${arg_LABEL} TIMEOUT ${arg_TIMEOUT} COST ${arg_TIMEOUT} ENVIRONMENT "${environment}")
  if(arg_FULL)
    add_test(NAME ${name}_full COMMAND ${name} --gtest_brief=1)
    set_tests_properties(${name}_full PROPERTIES LABELS full TIMEOUT ${arg_FULL} ENVIRONMENT "HERD_FULL_TESTS=1;${environment}")
  endif()
endfunction()
