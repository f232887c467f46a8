#include "lib/coord/file_liveness.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

namespace cantle::coord::file {

namespace {

std::string session_path(const std::string& dir, uint64_t id) {
  char name[20];
  std::snprintf(name, sizeof name, "/%016llx", static_cast<unsigned long long>(id));
  return dir + name;
}

struct flock whole_file(short type) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  return lock;
}

}  // namespace

base::Result<std::unique_ptr<SessionFile>> SessionFile::create(const std::string& sessions_dir, uint64_t id,
                                                               base::Instant now) {
  const auto path = session_path(sessions_dir, id);
  const auto fresh = path + ".new";  // renamed when it is whole: nobody sees it without its lock
  const int fd = ::open(fresh.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0640);
  if (fd < 0) return base::fail(base::errno_error(fresh, errno));
  std::unique_ptr<SessionFile> file(new SessionFile(path, id, fd));
  auto lock = whole_file(F_WRLCK);
  if (::fcntl(fd, F_OFD_SETLK, &lock) != 0) return base::fail(base::errno_error("lock " + fresh, errno));
  TRY(file->beat(now));
  if (::rename(fresh.c_str(), path.c_str()) != 0) return base::fail(base::errno_error("rename " + fresh, errno));
  return file;
}

SessionFile::~SessionFile() {
  ::unlink(path_.c_str());
  ::close(fd_);
}

base::Status SessionFile::beat(base::Instant now) {
  const int64_t at = now.since_boot.count();
  if (::pwrite(fd_, &at, sizeof at, 0) != sizeof at) return base::fail(base::errno_error("heartbeat", errno));
  return base::ok();
}

bool is_dead(const std::string& sessions_dir, const SessionRecord& session, base::Instant now) {
  // Read-only: closing a descriptor that could write would wake everybody who waits for a death.
  const int fd = ::open(session_path(sessions_dir, session.id).c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return errno == ENOENT;
  auto lock = whole_file(F_RDLCK);
  int64_t at = 0;
  const bool asked = ::fcntl(fd, F_OFD_GETLK, &lock) == 0;
  const bool beaten = ::pread(fd, &at, sizeof at, 0) == sizeof at;
  ::close(fd);
  if (!asked) return false;
  if (lock.l_type == F_UNLCK) return true;
  return beaten && now.since_boot.count() - at > static_cast<int64_t>(session.timeout_ns);
}

std::vector<uint64_t> dead_sessions(const Reader& reader, const std::string& sessions_dir, base::Instant now) {
  std::vector<uint64_t> dead;
  for (const auto& session : reader.sessions())
    if (is_dead(sessions_dir, session, now)) dead.push_back(session.id);
  return dead;
}

base::Status sweep(Editor& editor, const std::string& sessions_dir, base::Instant now) {
  for (const auto id : dead_sessions(editor, sessions_dir, now)) {
    TRY(editor.end_session(id));
    ::unlink(session_path(sessions_dir, id).c_str());
  }
  return base::ok();
}

}  // namespace cantle::coord::file
