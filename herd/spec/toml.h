// toml++, header-only where it is included. Its tables of characters state that what they do not list can't come, but
// it does, from any file that is no TOML: there the answer is no.
#pragma once

#define TOML_HEADER_ONLY 1
#include <toml++/impl/forward_declarations.h>
#pragma push_macro("TOML_UNREACHABLE")
#undef TOML_UNREACHABLE
#define TOML_UNREACHABLE return false
#include <toml++/impl/unicode.h>
#pragma pop_macro("TOML_UNREACHABLE")
#include <toml++/toml.h>
