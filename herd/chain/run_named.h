// Runs a function of the user's program, and says in an error which one it was.   Threads: those of the function.
#pragma once

#include <c10/util/Exception.h>

#include <new>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "herd/base/error.h"
#include "herd/base/thrown_object.h"

namespace herd {

// Returns what `function` returns. Where it throws, failure_of() makes the exception that is thrown in its place, of
// its words: those of torch without a stack, and thrown_object() for what has none. An Error, a lack of memory and a
// failure of a device pass as they are.
template <class Function, class FailureOf>
std::invoke_result_t<Function> run_named(const Function& function, const FailureOf& failure_of) {
  std::string words;
  try {
    return function();
  } catch (const Error&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const c10::OutOfMemoryError&) {
    throw;
  } catch (const c10::AcceleratorError&) {
    throw;
  } catch (const c10::Error& error) {
    words = error.what_without_backtrace();
  } catch (const std::exception& error) {
    words = error.what();
  } catch (...) {
    words = thrown_object();
  }
  throw failure_of(words);
}

}  // namespace herd
