// UTF-8: what is text among bytes. Well-formed means no overlong forms, no surrogates, nothing above U+10FFFF.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace cantle::base {

// Length of the well-formed sequence that begins at `at`; 0 if there is none.
size_t utf8_sequence(std::string_view bytes, size_t at);
bool is_utf8(std::string_view bytes);
// The same text, with each stray byte written as %XX: for people and for formats that want UTF-8.
std::string make_utf8(std::string_view bytes);

}  // namespace cantle::base
