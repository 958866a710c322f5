// Runs a function of the user's program, and says in an error which one it was.   Threads: those of the function.
#pragma once

#include <c10/util/Exception.h>

#include <new>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "herd/base/error.h"

namespace herd {

// Returns what `function` returns. What it throws gets the message that message_of() makes of its words, those of torch
// without a stack, as a std::runtime_error; not an Error, nor a lack of memory.
template <class Function, class MessageOf>
std::invoke_result_t<Function> run_named(const Function& function, const MessageOf& message_of) {
  std::string words;
  try {
    return function();
  } catch (const Error&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const c10::OutOfMemoryError&) {
    throw;
  } catch (const c10::Error& error) {
    words = error.what_without_backtrace();
  } catch (const std::exception& error) {
    words = error.what();
  }
  throw std::runtime_error(message_of(words));
}

}  // namespace herd
