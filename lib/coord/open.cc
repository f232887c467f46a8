#include <unistd.h>

#include <cerrno>

#include "lib/coord/coord.h"
#include "lib/coord/file_session.h"
#include "lib/coord/zk_session.h"

namespace cantle::coord {

using base::Code;
using base::fail;

base::Result<std::unique_ptr<Session>> open(io::Loop& loop, const Options& options) {
  const std::string_view url = options.url;
  const auto patience =
      options.operation_timeout.count() != 0 ? options.operation_timeout : 2 * options.session_timeout;
  if (url.starts_with("file://")) {
    const std::string dir(url.substr(7));
    if (dir.empty() || dir.front() != '/')
      return fail(Code::invalid, "coordination URL: file:///absolute/directory, not " + options.url);
    // A mistyped URL must not leave a store of its own behind.
    if (options.must_exist && ::access((dir + "/data.mdb").c_str(), F_OK) != 0 && errno == ENOENT)
      return fail(Code::not_found, "there is no coordination service at " + options.url + " (zkctl init makes one)");
    TRY_ASSIGN(auto session, file::FileSession::open(loop, dir, options.session_timeout, patience));
    return std::unique_ptr<Session>(std::move(session));
  }
  if (url.starts_with("zk://")) {
    TRY_ASSIGN(auto session, zk::ZkSession::open(loop, url.substr(5), options.session_timeout, patience));
    return std::unique_ptr<Session>(std::move(session));
  }
  return fail(Code::invalid,
              "coordination URL: zk://host:port,…[/chroot] or file:///directory, not \"" + options.url + "\"");
}

}  // namespace cantle::coord
