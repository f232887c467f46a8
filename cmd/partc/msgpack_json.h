// Any MessagePack value as JSON, for answers whose fields this program does not know: str as text, bin as text
// where it is printable ASCII, else as hex.
#pragma once

#include <string>
#include <string_view>

#include "lib/base/result.h"

namespace cantle::partc {

base::Result<std::string> msgpack_to_json(std::string_view bytes);

}  // namespace cantle::partc
