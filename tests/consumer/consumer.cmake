# cmake -DBUILD= -DSOURCE= -DWITH_TORCH= -DTorch_DIR= -P consumer.cmake
set(work ${BUILD}/tests/consumer-work)
file(REMOVE_RECURSE ${work})

# run(PATTERN COMMAND...): fails unless the command succeeds and prints the pattern.
function(run pattern)
  execute_process(COMMAND ${ARGN} OUTPUT_VARIABLE out ERROR_VARIABLE err RESULT_VARIABLE status)
  if(NOT status EQUAL 0 OR NOT out MATCHES "${pattern}")
    message(FATAL_ERROR "${ARGN}: status ${status}, expected \"${pattern}\"\n${out}\n${err}")
  endif()
endfunction()

run("" ${CMAKE_COMMAND} --install ${BUILD} --prefix ${work}/prefix)
run("Build files" ${CMAKE_COMMAND} -S ${SOURCE}/examples/consumer -B ${work}/build -G Ninja
  -DCMAKE_PREFIX_PATH=${work}/prefix -DWITH_TORCH=${WITH_TORCH})
run("" ${CMAKE_COMMAND} --build ${work}/build)
run("rank 0 of 1: sum 1" ${work}/build/consumer_core)
run("rank 1 of 2: sum 3" ${work}/prefix/bin/herd run -n 2 -- ${work}/build/consumer_core)
if(WITH_TORCH)
  run("rank 0 of 1: gradient 1" ${work}/build/consumer_torch)
  run("rank 1 of 2: gradient 1.5" ${work}/prefix/bin/herd run -n 2 -- ${work}/build/consumer_torch)
endif()

# Another minor version is refused, and so is a component that does not exist.
foreach(request "0.2 REQUIRED" "0.1 REQUIRED COMPONENTS nothing")
  file(WRITE ${work}/refused/CMakeLists.txt
    "cmake_minimum_required(VERSION 3.25)\nproject(refused LANGUAGES CXX)\nfind_package(herd ${request})\n")
  execute_process(COMMAND ${CMAKE_COMMAND} -S ${work}/refused -B ${work}/refused/build -G Ninja
    -DCMAKE_PREFIX_PATH=${work}/prefix RESULT_VARIABLE status OUTPUT_QUIET ERROR_QUIET)
  if(status EQUAL 0)
    message(FATAL_ERROR "find_package(herd ${request}) was accepted")
  endif()
endforeach()
