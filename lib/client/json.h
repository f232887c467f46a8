// JSON in, as much as loading needs: the members of one object. Strict (RFC 8259), bounded depth.
// lib/daemon/json.h writes it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lib/base/result.h"

namespace cantle::client {

// One member of an object: `text` is the decoded string, or the literal text of a number, true, false or null;
// empty for an object or an array.
struct JsonMember {
  enum class Kind : uint8_t { string, number, boolean, null, nested } kind = Kind::null;
  std::string name, text;
};
constexpr int kJsonDepthMax = 64;
// The members of the one object that `text` is, in order; invalid says what is wrong and at which byte.
base::Result<std::vector<JsonMember>> parse_json_object(std::string_view text);

base::Result<std::string> from_base64(std::string_view text);  // with its padding; invalid: not base64

}  // namespace cantle::client
