// Path: what both backends demand of paths and sizes, before anything is sent.
//
// Pure strings.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lib/base/result.h"
#include "lib/coord/coord.h"

namespace cantle::coord {

constexpr size_t kPathMax = 480;  // bytes, without the chroot: an LMDB key of the embedded backend holds it

// After a reconnection all of a session's watches go to ZooKeeper in one packet; one over a mebibyte would
// end the connection again, for ever. More watched bytes than this are refused.
constexpr size_t kWatchBytesMax = size_t{512} << 10;

// "/" or "/a/b": absolute, no empty, "." or ".." component, no control character, at most kPathMax.
base::Status validate_path(std::string_view path);
// "/a/b" → "/a"; "/a" → "/"; "/" → "".
std::string_view parent_of(std::string_view path);
std::string_view name_of(std::string_view path);
std::string join_path(std::string_view parent, std::string_view name);

// invalid: a bad path, a value over kValueMax. An oversized request looks like a lost connection to a
// ZooKeeper client, so it must never be sent.
base::Status validate_change(std::string_view path, std::string_view value);
// Also: no operations, over kMultiOpsMax, over kMultiBytesMax.
base::Status validate_multi(const std::vector<Op>& ops);
size_t multi_bytes(const std::vector<Op>& ops);

}  // namespace cantle::coord
