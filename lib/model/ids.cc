#include "lib/model/ids.h"

#include "lib/base/bytes.h"

namespace cantle::model {
namespace {

constexpr size_t kNameMax = 63;

bool lower(char c) { return c >= 'a' && c <= 'z'; }
bool digit(char c) { return c >= '0' && c <= '9'; }

base::Status validate_name(std::string_view what, std::string_view name, bool digit_first, std::string_view extra) {
  if (name.empty() || name.size() > kNameMax)
    return base::fail(base::Code::invalid, std::string(what) + " must have 1 to 63 characters");
  if (!lower(name[0]) && !(digit_first && digit(name[0])))
    return base::fail(base::Code::invalid, std::string(what) + " '" + base::escape(name) +
                                               "' must start with a lower-case letter" +
                                               (digit_first ? " or a digit" : ""));
  for (const char c : name)
    if (!lower(c) && !digit(c) && extra.find(c) == std::string_view::npos)
      return base::fail(base::Code::invalid, std::string(what) + " '" + base::escape(name) +
                                                 "' may have only a-z, 0-9 and " + std::string(extra));
  return base::ok();
}

}  // namespace

std::string hex_of_id(std::string_view bytes) { return base::to_hex(bytes); }
base::Result<std::string> bytes_of_id(std::string_view hex) { return base::from_hex(hex); }

base::Status validate_server_id(std::string_view name) { return validate_name("server id", name, true, "_.-"); }
base::Status validate_table_name(std::string_view name) { return validate_name("table name", name, false, "_-"); }

}  // namespace cantle::model
