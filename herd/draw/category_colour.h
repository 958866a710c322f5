// Gives each kind of op and step one colour, the same in every picture. Threads: pure.
#pragma once

#include <string_view>

namespace herd::draw {

// Returns the index of a colour class (svg.h): a fixed one for the ops of programs and the steps of schedules, one that
// follows from the name for any other.
int category_colour(std::string_view category);

}  // namespace herd::draw
