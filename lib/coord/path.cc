#include "lib/coord/path.h"

#include <algorithm>

namespace cantle::coord {

using base::Code;
using base::fail;

namespace {

// What the protocol adds to a request: lengths, versions, one access-control entry.
constexpr size_t kRequestOverhead = 64;

base::Status validate_component(std::string_view name, std::string_view path) {
  if (name.empty() || name == "." || name == "..")
    return fail(Code::invalid, "path with an empty or dotted part: " + std::string(path));
  const auto control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; };
  if (std::any_of(name.begin(), name.end(), control)) return fail(Code::invalid, "path with a control character");
  return base::ok();
}

}  // namespace

base::Status validate_path(std::string_view path) {
  if (path.empty() || path.front() != '/')
    return fail(Code::invalid, "path does not begin with '/': " + std::string(path));
  if (path.size() > kPathMax) return fail(Code::invalid, "path over " + std::to_string(kPathMax) + " bytes");
  if (path == "/") return base::ok();
  for (size_t at = 1; at <= path.size();) {
    const auto end = std::min(path.find('/', at), path.size());
    TRY(validate_component(path.substr(at, end - at), path));
    at = end + 1;
    if (end + 1 == path.size()) return fail(Code::invalid, "path ends with '/': " + std::string(path));
  }
  return base::ok();
}

std::string_view parent_of(std::string_view path) {
  if (path.size() <= 1) return "";
  const auto slash = path.rfind('/');
  return slash == 0 ? path.substr(0, 1) : path.substr(0, slash);
}

std::string_view name_of(std::string_view path) { return path.substr(path.rfind('/') + 1); }

std::string join_path(std::string_view parent, std::string_view name) {
  std::string path(parent);
  if (path != "/") path += '/';
  return path.append(name);
}

base::Status validate_change(std::string_view path, std::string_view value) {
  TRY(validate_path(path));
  if (value.size() > kValueMax)
    return fail(Code::invalid, std::string(path) + ": value of " + std::to_string(value.size()) + " bytes, at most " +
                                   std::to_string(kValueMax));
  return base::ok();
}

size_t multi_bytes(const std::vector<Op>& ops) {
  size_t bytes = 0;
  for (const auto& op : ops) bytes += op.path.size() + op.value.size() + kRequestOverhead;
  return bytes;
}

base::Status validate_multi(const std::vector<Op>& ops) {
  if (ops.empty()) return fail(Code::invalid, "multi without operations");
  if (ops.size() > kMultiOpsMax)
    return fail(Code::invalid,
                "multi of " + std::to_string(ops.size()) + " operations, at most " + std::to_string(kMultiOpsMax));
  for (const auto& op : ops) TRY(validate_change(op.path, op.value));
  // One value of the greatest size alone is still allowed.
  if (ops.size() > 1 && multi_bytes(ops) > kMultiBytesMax)
    return fail(Code::invalid,
                "multi of " + std::to_string(multi_bytes(ops)) + " bytes, at most " + std::to_string(kMultiBytesMax));
  return base::ok();
}

}  // namespace cantle::coord
