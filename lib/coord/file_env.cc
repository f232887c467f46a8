#include "lib/coord/file_env.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <utility>

#include "lib/base/log.h"
#include "lib/coord/file_tree.h"
#include "lib/coord/file_writer.h"

namespace cantle::coord::file {

using base::Code;
using base::fail;

namespace {

constexpr mode_t kFileMode = 0640;

// Locks, mapped memory and inotify do not work between hosts, whatever the file system promises.
struct NetworkFileSystem {
  unsigned long magic;
  const char* name;
};
constexpr std::array kNetworkFileSystems = {
    NetworkFileSystem{0x6969, "NFS"},        NetworkFileSystem{0x517b, "SMB"},
    NetworkFileSystem{0xff534d42, "CIFS"},   NetworkFileSystem{0xfe534d42, "SMB2"},
    NetworkFileSystem{0x5346414f, "AFS"},    NetworkFileSystem{0x73757245, "Coda"},
    NetworkFileSystem{0x01021997, "9P"},     NetworkFileSystem{0x00c36400, "Ceph"},
    NetworkFileSystem{0x0bd00bd0, "Lustre"}, NetworkFileSystem{0x7461636f, "OCFS2"},
    NetworkFileSystem{0x01161970, "GFS2"},   NetworkFileSystem{0x65735546, "FUSE"},
    NetworkFileSystem{0x786f4256, "vboxsf"},
};

base::Status refuse_network(const std::string& dir) {
  struct statfs fs {};
  if (::statfs(dir.c_str(), &fs) != 0) return fail(base::errno_error(dir, errno));
  const auto name = network_file_system(static_cast<unsigned int>(fs.f_type));
  if (name.empty()) return base::ok();
  return fail(Code::invalid, dir + " is on " + std::string(name) +
                                 ": the embedded coordination service is for the processes of one host; use zk://");
}

base::Result<int> open_fd(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, kFileMode);
  if (fd < 0) return fail(base::errno_error(path, errno));
  return fd;
}

using Key = std::pair<dev_t, ino_t>;
struct Registry {
  std::mutex mutex;
  std::condition_variable closed;
  std::map<Key, std::weak_ptr<Env>> open;  // an expired one is being closed
};
Registry& registry() {
  static Registry r;  // one a process: LMDB must not see one environment twice in it
  return r;
}

}  // namespace

std::string_view network_file_system(unsigned long type) {
  for (const auto& known : kNetworkFileSystems)
    if (known.magic == type) return known.name;
  return "";
}

base::Error lmdb_error(std::string_view what, int rc) {
  if (rc > 0) return base::errno_error(what, rc);
  const auto code = rc == MDB_MAP_FULL                               ? Code::no_space
                    : rc == MDB_CORRUPTED || rc == MDB_PAGE_NOTFOUND ? Code::corrupt
                                                                     : Code::io_error;
  return {code, std::string(what) + ": " + mdb_strerror(rc)};
}

base::Result<std::shared_ptr<Env>> Env::open(const std::string& dir) {
  std::error_code ignored;  // stat says it better
  std::filesystem::create_directories(dir + "/sessions", ignored);
  struct stat st {};
  if (::stat((dir + "/sessions").c_str(), &st) != 0 || ::stat(dir.c_str(), &st) != 0)
    return fail(base::errno_error("coordination directory " + dir, errno));
  TRY(refuse_network(dir));

  auto& known = registry();
  const Key key{st.st_dev, st.st_ino};
  std::shared_ptr<Env> shared;
  std::unique_lock lock(known.mutex);  // held over the opening: two threads must not open it at once
  known.closed.wait(lock, [&] {        // its last owner may let it go at any moment: hence one look, which keeps it
    const auto it = known.open.find(key);
    if (it != known.open.end()) shared = it->second.lock();
    return it == known.open.end() || shared != nullptr;
  });
  if (shared) return shared;
  std::unique_ptr<Env> made(new Env);
  auto opened = made->open_files(dir);
  if (!opened) return fail(std::move(opened).error().wrap("coordination directory " + dir));
  std::shared_ptr<Env> env(made.release(), [key](Env* e) {
    delete e;  // waits for its writer thread
    const std::lock_guard closing(registry().mutex);
    registry().open.erase(key);
    registry().closed.notify_all();
  });
  known.open[key] = env;
  return env;
}

Env::Env() = default;

Env::~Env() {
  writer_.reset();
  for (auto* txn : idle_readers_) mdb_txn_abort(txn);
  if (env_) mdb_env_close(env_);
  for (const int fd : {writer_fd_, bell_fd_})
    if (fd >= 0) ::close(fd);
}

base::Status Env::open_files(const std::string& dir) {
  dir_ = dir;
  TRY_ASSIGN(writer_fd_, open_fd(dir + "/writer"));
  TRY_ASSIGN(bell_fd_, open_fd(bell_path()));
  if (const int rc = mdb_env_create(&env_)) return fail(lmdb_error("create", rc));
  mdb_env_set_maxdbs(env_, 8);
  mdb_env_set_mapsize(env_, kMapBytes);
  mdb_env_set_maxreaders(env_, kReadersMax);
  if (const int rc = mdb_env_open(env_, dir.c_str(), MDB_NOTLS, kFileMode)) return fail(lmdb_error("open", rc));
  int fd = -1;
  if (mdb_env_get_fd(env_, &fd) == 0) ::fcntl(fd, F_SETFD, FD_CLOEXEC);  // LMDB forgets this one
  int dead = 0;
  mdb_reader_check(env_, &dead);
  writer_ = std::make_unique<Writer>(*this);
  return open_tables();
}

base::Status Env::find_tables(MDB_txn* txn, unsigned flags) {
  const auto table = [&](const char* name, MDB_dbi* dbi) -> base::Status {
    const int rc = mdb_dbi_open(txn, name, flags, dbi);
    if (rc == MDB_NOTFOUND) return fail(Code::not_found, name);
    if (rc) return fail(lmdb_error(name, rc));
    return base::ok();
  };
  TRY(table("meta", &tables_.meta));
  TRY(table("nodes", &tables_.nodes));
  TRY(table("ephemerals", &tables_.ephemerals));
  return table("sessions", &tables_.sessions);
}

// Only the very first opening of a directory writes, so that no later one waits for a writer.
base::Status Env::open_tables() {
  MDB_txn* txn = nullptr;
  if (const int rc = mdb_txn_begin(env_, nullptr, MDB_RDONLY, &txn)) return fail(lmdb_error("begin", rc));
  auto found = find_tables(txn, 0);
  if (found) found = check_tree(*this, txn);
  if (found) return mdb_txn_commit(txn), base::ok();  // handles live on only past a commit
  mdb_txn_abort(txn);
  if (found.error().code != Code::not_found) return found;
  return writer_->run_now([this](MDB_txn* change) -> base::Status {
    TRY(find_tables(change, MDB_CREATE));
    return prepare_tree(*this, change);
  });
}

void Env::ring() {
  const uint64_t any = 1;
  if (::pwrite(bell_fd_, &any, sizeof any, 0) < 0)
    base::log(base::Level::warn, "coord.bell", {{"error", std::strerror(errno)}});  // the slow poll still finds it
}

base::Result<ReadTxn> ReadTxn::begin(std::shared_ptr<Env> env) {
  MDB_txn* txn = nullptr;
  {
    const std::lock_guard lock(env->mutex_);
    if (!env->idle_readers_.empty()) {
      txn = env->idle_readers_.back();
      env->idle_readers_.pop_back();
    }
  }
  if (txn) {
    if (mdb_txn_renew(txn) == 0) return ReadTxn(std::move(env), txn);
    mdb_txn_abort(txn);
    txn = nullptr;
  }
  int rc = mdb_txn_begin(env->env_, nullptr, MDB_RDONLY, &txn);
  if (rc == MDB_READERS_FULL) {  // slots of killed processes
    int dead = 0;
    mdb_reader_check(env->env_, &dead);
    rc = mdb_txn_begin(env->env_, nullptr, MDB_RDONLY, &txn);
  }
  if (rc) return fail(lmdb_error("read", rc));
  return ReadTxn(std::move(env), txn);
}

ReadTxn::~ReadTxn() {
  if (!txn_) return;
  mdb_txn_reset(txn_);
  const std::lock_guard lock(env_->mutex_);
  env_->idle_readers_.push_back(txn_);
}

namespace {

// "S (sleeping)" → true for T and t: nobody but an operator wakes such a process.
bool is_stopped(const std::string& pid) {
  std::ifstream status("/proc/" + pid + "/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("State:")) return line.find("\tT") != line.npos || line.find("\tt") != line.npos;
  return false;
}

}  // namespace

std::string describe_writer(int writer_fd) {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  if (::fcntl(writer_fd, F_GETLK, &lock) != 0 || lock.l_type == F_UNLCK) return "";
  const auto pid = std::to_string(lock.l_pid);
  if (lock.l_pid <= 0) return "a process of another namespace";
  std::string name;
  std::getline(std::ifstream("/proc/" + pid + "/comm") >> std::ws, name);
  return "pid " + pid + " (" + name + ")" + (is_stopped(pid) ? ", stopped" : "");
}

}  // namespace cantle::coord::file
