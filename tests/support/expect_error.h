// EXPECT_ERROR(statement, Code::kX, "words", ...): the statement throws herd::Error with this code, and its message
// holds each of the words.
#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <string>

#include "herd/base/error.h"

namespace herd {

template <typename Statement>
void expect_error(const Statement& statement, Code code, std::initializer_list<std::string> words) {
  try {
    statement();
    ADD_FAILURE() << "nothing was thrown, expected " << code_name(code);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    for (const auto& word : words)
      EXPECT_NE(error.message().find(word), std::string::npos) << error.what() << "\nlacks " << word;
  }
}

}  // namespace herd

#define EXPECT_ERROR(statement, code, ...)                       \
  do {                                                           \
    SCOPED_TRACE(#statement);                                    \
    herd::expect_error([&] { statement; }, code, {__VA_ARGS__}); \
  } while (false)
