// Finds bytes in a text that are no UTF-8: a tokenizer would take each for U+FFFD, and the text could not come back.
// Overlong forms and lone surrogates are no UTF-8 either.   Threads: pure.
#pragma once

#include <cstdint>
#include <string_view>

namespace herd {

// Returns the offset of the first byte that belongs to no character; -1 where the text is UTF-8.
int64_t first_bad_byte(std::string_view text);
int64_t count_bad_bytes(std::string_view text);

// Throws kBadConfig if the text is not UTF-8, with `name`, the offset, the byte, and what the text looks like: UTF-16,
// a compressed file, a lone surrogate. `fix` says how to take it anyhow.
void require_utf8(std::string_view text, std::string_view name, std::string_view fix);

// Returns the largest number of bytes up to `bytes` that does not cut a character in two.
size_t whole_characters(std::string_view text, size_t bytes);

}  // namespace herd
