// JSON, as much as the tools need: strings out, flat fields of one object in. Strict (RFC 8259), bounded depth.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/result.h"

namespace cantle::client {

bool valid_utf8(std::string_view bytes);
// "text" with its quotes; `bytes` must be UTF-8.
void json_string(std::string_view bytes, std::string* out);
// "name":"bytes", or "name_hex":"…" when the bytes are not UTF-8.
void json_field(std::string_view name, std::string_view bytes, std::string* out);

// One member of an object: `text` is the decoded string, or the literal text of a number, true, false or null;
// empty for an object or an array.
struct JsonMember {
  enum class Kind : uint8_t { string, number, boolean, null, nested } kind = Kind::null;
  std::string name, text;
};
constexpr int kJsonDepthMax = 64;
// The members of the one object that `text` is, in order; invalid says what is wrong and at which byte.
base::Result<std::vector<JsonMember>> parse_json_object(std::string_view text);

}  // namespace cantle::client
