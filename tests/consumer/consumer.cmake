# cmake -DBUILD= -DSOURCE= -DWITH_TORCH= -P consumer.cmake
# Installs a build, runs what was installed, builds examples/consumer against it and runs that, by CMake and by
# pkg-config; then again where the installed tree was moved to, with one program of each component.
cmake_minimum_required(VERSION 3.25)
set(work ${BUILD}/tests/consumer-work)
file(REMOVE_RECURSE ${work})
unset(ENV{LD_LIBRARY_PATH})  # what was installed finds its libraries alone
unset(ENV{Torch_DIR})

# run(PATTERN COMMAND...): fails unless the command succeeds and prints the pattern.
function(run pattern)
  execute_process(COMMAND ${ARGN} OUTPUT_VARIABLE out ERROR_VARIABLE err RESULT_VARIABLE status)
  if(NOT status EQUAL 0 OR NOT "${out}${err}" MATCHES "${pattern}")
    message(FATAL_ERROR "${ARGN}: status ${status}, expected \"${pattern}\"\n${out}\n${err}")
  endif()
endfunction()

# use_command(PREFIX): the installed command, with the trainer where there is one.
function(use_command prefix)
  set(herd ${prefix}/bin/herd)
  if(NOT WITH_TORCH)
    run("no trainer beside ${prefix}/bin/herd" ${herd} doctor --no-measure)
    return()
  endif()
  run("the trainer ${prefix}/bin/herd-trainer starts: herd [0-9.]+, libtorch [0-9]" ${herd} doctor --no-measure)
  get_filename_component(name ${prefix} NAME)
  run("step 2/2" ${herd} train ${work}/run.toml --ranks 2 log.name=${name})
  run("^5 6 [0-9]+\n$" ${herd} generate ${work}/runs/${name} --ids 5,6 --tokens 1)
endfunction()

# use_library(PREFIX PROGRAM...): these programs of a project of its own.
function(use_library prefix)
  get_filename_component(name ${prefix} NAME)
  set(build ${work}/build-${name})
  run("Build files" ${CMAKE_COMMAND} -S ${SOURCE}/examples/consumer -B ${build} -G Ninja
    -DCMAKE_PREFIX_PATH=${prefix} -DWITH_TORCH=${WITH_TORCH})
  run("" ${CMAKE_COMMAND} --build ${build} --target ${ARGN})
  run("rank 0 of 1: sum 1" ${build}/consumer_core)
  run("rank 1 of 2: sum 3" ${prefix}/bin/herd run -n 2 -- ${build}/consumer_core)
  if(consumer_torch IN_LIST ARGN)
    run("rank 0 of 1: gradient 1, sum 1" ${build}/consumer_torch)
    run("rank 1 of 2: gradient 1.5, sum 3" ${prefix}/bin/herd run -n 2 -- ${build}/consumer_torch)
  endif()
  if(consumer_own_model IN_LIST ARGN)
    run("^36864 weights" ${build}/consumer_herd_torch)
    set(own_model ${prefix}/bin/herd run -n 2 -- ${build}/consumer_own_model ${SOURCE}/examples/consumer/own_model.toml
      log.dir=${work}/own-${name})
    run("step 4/4" ${own_model})
    run("resumed from.*saved 1 checkpoint" ${own_model} train.steps=8)
  endif()
endfunction()

# use_pkgconfig(PREFIX): a program that is built without CMake.
function(use_pkgconfig prefix)
  file(GLOB_RECURSE description ${prefix}/*/herd_core.pc)
  get_filename_component(folder "${description}" DIRECTORY)
  set(program ${work}/by-pkgconfig)
  set(words "PKG_CONFIG_PATH=${folder} pkg-config")
  run("" sh -c "c++ ${SOURCE}/examples/consumer/core.cpp -o ${program} $(${words} --cflags --libs herd_core) \
    -Wl,-rpath,$(${words} --variable=libdir herd_core)")
  run("rank 1 of 2: sum 3" ${prefix}/bin/herd run -n 2 -- ${program})
endfunction()

# use_headers(PREFIX): every header of the component core, without the source tree. scripts/layers checks that what they
# include is installed, scripts/test that each compiles alone.
function(use_headers prefix)
  file(GLOB headers RELATIVE ${prefix}/include ${prefix}/include/herd/*/*.h)
  list(FILTER headers EXCLUDE REGEX "herd/(bridge|nn|optim|models|runtime|checkpoint|ddp|chain|train)/")
  list(LENGTH headers count)
  if(count LESS 200)
    message(FATAL_ERROR "only ${count} headers are in ${prefix}/include")
  endif()
  list(TRANSFORM headers REPLACE "(.+)" "#include \"\\1\"")
  list(JOIN headers "\n" text)
  file(WRITE ${work}/headers.cpp "${text}\n")
  run("" c++ -std=c++20 -fsyntax-only -I${prefix}/include ${work}/headers.cpp)
endfunction()

file(WRITE ${work}/run.toml "[model]\nlayers = 1\nwidth = 16\nheads = 2\ncontext = 8\nvocab = 50\n"
  "[data]\nkind = \"random\"\n[train]\nsteps = 2\nbatch = 2\nmicro_batch = 1\neval_every = 0\n"
  "[log]\ndir = \"${work}/runs\"\n")
run("" ${CMAKE_COMMAND} --install ${BUILD} --prefix ${work}/prefix)
use_headers(${work}/prefix)
use_command(${work}/prefix)
set(programs consumer_core)
set(programs_of_moved consumer_core)
if(WITH_TORCH)
  list(APPEND programs consumer_torch consumer_herd_torch consumer_own_model)
  list(APPEND programs_of_moved consumer_torch)
endif()
use_library(${work}/prefix ${programs})
use_pkgconfig(${work}/prefix)
file(RENAME ${work}/prefix ${work}/moved)
use_command(${work}/moved)
use_library(${work}/moved ${programs_of_moved})
use_pkgconfig(${work}/moved)

# A trainer that can't load its libraries is found by doctor, which says why.
if(WITH_TORCH)
  file(GLOB libraries ${work}/moved/*/libherd_torch*)
  file(REMOVE ${libraries})
  execute_process(COMMAND ${work}/moved/bin/herd doctor --no-measure OUTPUT_VARIABLE out RESULT_VARIABLE status)
  if(NOT status EQUAL 1 OR NOT out MATCHES "missing +torch +[^\n]*does not start[^\n]*libherd_torch[^\n]*\n +fix: ")
    message(FATAL_ERROR "doctor without libherd_torch: status ${status}\n${out}")
  endif()
endif()

# Another minor version is refused, and so is a component that does not exist.
foreach(request "0.2 REQUIRED" "0.1 REQUIRED COMPONENTS nothing")
  file(WRITE ${work}/refused/CMakeLists.txt
    "cmake_minimum_required(VERSION 3.25)\nproject(refused LANGUAGES CXX)\nfind_package(herd ${request})\n")
  execute_process(COMMAND ${CMAKE_COMMAND} -S ${work}/refused -B ${work}/refused/build -G Ninja
    -DCMAKE_PREFIX_PATH=${work}/moved RESULT_VARIABLE status OUTPUT_QUIET ERROR_QUIET)
  if(status EQUAL 0)
    message(FATAL_ERROR "find_package(herd ${request}) was accepted")
  endif()
endforeach()
