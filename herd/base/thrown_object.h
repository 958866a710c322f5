// Describes an exception that is no std::exception, such as that of `throw 3`, which has a type and no words.
// Threads: call from any.
#pragma once

#include <cxxabi.h>

#include <cstdlib>
#include <string>
#include <typeinfo>

namespace herd {

// Returns "an object of type int, which is no std::exception" for the exception that a catch (...) handles.
inline std::string thrown_object() {
  const std::type_info* type = abi::__cxa_current_exception_type();
  if (type == nullptr) return "an object that is no C++ exception";
  char* name = abi::__cxa_demangle(type->name(), nullptr, nullptr, nullptr);
  const std::string text = name != nullptr ? name : type->name();
  std::free(name);
  return "an object of type " + text + ", which is no std::exception";
}

}  // namespace herd
