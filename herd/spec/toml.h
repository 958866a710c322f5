// Includes toml++, header-only. Its tables of characters mark what they do not list as unreachable, but any file that
// is no TOML reaches it. Here they answer no instead.
#pragma once

#define TOML_HEADER_ONLY 1
#include <toml++/impl/forward_declarations.h>
#pragma push_macro("TOML_UNREACHABLE")
#undef TOML_UNREACHABLE
#define TOML_UNREACHABLE return false
#include <toml++/impl/unicode.h>
#pragma pop_macro("TOML_UNREACHABLE")
#include <toml++/toml.h>
