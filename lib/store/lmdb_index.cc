#include "lib/store/lmdb_index.h"

#include <fcntl.h>
#include <lmdb.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>

#include "lib/base/check.h"
#include "lib/base/log.h"
#include "lib/base/testing.h"

namespace cantle::store {
namespace {

using base::Code;
using base::errno_error;
using base::fail;
using base::ok;
using MaybeView = std::optional<std::string_view>;
using MaybeKeyValue = std::optional<KeyValue>;

constexpr std::array<const char*, kDbs> kNames = {"records", "pieces",  "samples", "partitions",
                                                  "series",  "extents", "meta",    "positions"};
constexpr uint64_t kLowSpace = uint64_t{8} << 20;  // LMDB says EIO for a full disk: below this it is believed to be one
constexpr uint64_t kSizeSlack = uint64_t{64} << 20;  // hole kept behind the last page in use (see Env::keep_size)
constexpr MDB_dbi kNoDbi = ~MDB_dbi{0};

MDB_val val(std::string_view v) { return {v.size(), const_cast<char*>(v.data())}; }
std::string_view view(const MDB_val& v) { return {static_cast<const char*>(v.mv_data), v.mv_size}; }

struct Env {
  MDB_env* env = nullptr;
  std::string dir;
  bool write = false;
  std::array<MDB_dbi, kDbs> dbi;
  uint64_t size = 0, page = 4096;

  Env() { dbi.fill(kNoDbi); }
  Env(const Env&) = delete;
  Env& operator=(const Env&) = delete;
  ~Env() {
    if (env != nullptr) mdb_env_close(env);
  }

  base::Error error(std::string_view what, int rc) const;
  // The file is always longer than its last page in use, so that a file that is shorter has lost something. LMDB
  // itself does not promise that: pages that were allocated and let go in one transaction are never written.
  base::Status keep_size();
};

base::Error Env::error(std::string_view what, int rc) const {
  const auto text = "index " + dir + ": " + std::string(what) + ": " + mdb_strerror(rc);
  switch (rc) {
    case MDB_MAP_FULL: return {Code::no_space, text};
    case MDB_READERS_FULL: return {Code::overloaded, text};
    case MDB_CORRUPTED:
    case MDB_PAGE_NOTFOUND:
    case MDB_INVALID:
    case MDB_VERSION_MISMATCH:
    case MDB_INCOMPATIBLE: return {Code::corrupt, text};
    case ENOENT: return {Code::not_found, text};
    case EIO: {
      struct statvfs fs {};
      if (::statvfs(dir.c_str(), &fs) == 0 && fs.f_bavail * fs.f_frsize < kLowSpace) return {Code::no_space, text};
      return {Code::io_error, text};
    }
    default:
      return rc > 0 ? errno_error("index " + dir + ": " + std::string(what), rc) : base::Error(Code::io_error, text);
  }
}

base::Status Env::keep_size() {
  MDB_envinfo info{};
  mdb_env_info(env, &info);
  const uint64_t used = (info.me_last_pgno + 1) * page;
  if (size >= used + kSizeSlack / 2) return ok();
  int fd = -1;
  mdb_env_get_fd(env, &fd);
  size = used + kSizeSlack;
  if (::ftruncate(fd, static_cast<off_t>(size)) != 0) return fail(errno_error("growing " + dir + "/data.mdb", errno));
  return ok();
}

class LmdbCursor final : public Cursor {
 public:
  LmdbCursor(std::shared_ptr<Env> env, MDB_cursor* cursor) : env_(std::move(env)), cursor_(cursor) {}
  ~LmdbCursor() override { mdb_cursor_close(cursor_); }

  base::Result<MaybeKeyValue> seek(std::string_view key) override {
    if (key.empty()) return take(MDB_FIRST);
    key_ = val(key);
    return take(MDB_SET_RANGE);
  }
  base::Result<MaybeKeyValue> seek_before(std::string_view key) override {
    if (key.empty()) return take(MDB_LAST);
    key_ = val(key);
    TRY_ASSIGN(const auto at, take(MDB_SET_RANGE));
    return take(at ? MDB_PREV : MDB_LAST);
  }
  base::Result<MaybeKeyValue> next() override { return take(MDB_NEXT); }
  base::Result<MaybeKeyValue> prev() override { return take(MDB_PREV); }

 private:
  base::Result<MaybeKeyValue> take(MDB_cursor_op op) {
    MDB_val value{};
    const int rc = mdb_cursor_get(cursor_, &key_, &value, op);
    if (rc == MDB_NOTFOUND) return std::nullopt;
    if (rc != 0) return fail(env_->error("cursor", rc));
    return KeyValue{view(key_), view(value)};
  }
  std::shared_ptr<Env> env_;
  MDB_cursor* cursor_;
  MDB_val key_{};
};

base::Result<MaybeView> get_from(const Env& env, MDB_txn* txn, Db db, std::string_view key) {
  MDB_val k = val(key), v{};
  const int rc = mdb_get(txn, env.dbi[static_cast<size_t>(db)], &k, &v);
  if (rc == 0) [[likely]]
    return view(v);
  if (rc == MDB_NOTFOUND) return std::nullopt;
  return fail(env.error("get", rc));
}

base::Result<std::unique_ptr<Cursor>> cursor_of(const std::shared_ptr<Env>& env, MDB_txn* txn, Db db) {
  MDB_cursor* cursor = nullptr;
  const int rc = mdb_cursor_open(txn, env->dbi[static_cast<size_t>(db)], &cursor);
  if (rc != 0) return fail(env->error("cursor", rc));
  return std::make_unique<LmdbCursor>(env, cursor);
}

class LmdbReader final : public Reader {
 public:
  explicit LmdbReader(std::shared_ptr<Env> env) : env_(std::move(env)) {}
  ~LmdbReader() override {
    if (txn_ != nullptr) mdb_txn_abort(txn_);
  }
  base::Status renew() override {
    reset();
    int rc = start();
    if (rc == MDB_READERS_FULL) {  // R10: slots of the dead come first
      int dead = 0;
      mdb_reader_check(env_->env, &dead);
      rc = start();
    }
    if (rc != 0) return fail(env_->error("begin reading", rc));
    active_ = true;
    return ok();
  }
  void reset() override {
    if (active_) mdb_txn_reset(txn_);
    active_ = false;
  }
  bool active() const override { return active_; }
  base::Result<MaybeView> get(Db db, std::string_view key) override {
    CHECK(active_);
    return get_from(*env_, txn_, db, key);
  }
  base::Result<std::unique_ptr<Cursor>> cursor(Db db) override {
    CHECK(active_);
    return cursor_of(env_, txn_, db);
  }

 private:
  int start() { return txn_ == nullptr ? mdb_txn_begin(env_->env, nullptr, MDB_RDONLY, &txn_) : mdb_txn_renew(txn_); }
  std::shared_ptr<Env> env_;
  MDB_txn* txn_ = nullptr;
  bool active_ = false;
};

class LmdbTxn final : public WriteTxn {
 public:
  LmdbTxn(std::shared_ptr<Env> env, MDB_txn* txn) : env_(std::move(env)), txn_(txn) {}
  ~LmdbTxn() override {
    if (txn_ != nullptr) mdb_txn_abort(txn_);
  }
  base::Result<MaybeView> get(Db db, std::string_view key) override { return get_from(*env_, txn_, db, key); }
  base::Status put(Db db, std::string_view key, std::string_view value) override {
    MDB_val k = val(key), v = val(value);
    const int rc = mdb_put(txn_, env_->dbi[static_cast<size_t>(db)], &k, &v, 0);
    return rc == 0 ? ok() : fail(env_->error("put", rc));
  }
  base::Status del(Db db, std::string_view key) override {
    MDB_val k = val(key);
    const int rc = mdb_del(txn_, env_->dbi[static_cast<size_t>(db)], &k, nullptr);
    return rc == 0 || rc == MDB_NOTFOUND ? ok() : fail(env_->error("delete", rc));
  }
  base::Result<std::unique_ptr<Cursor>> cursor(Db db) override { return cursor_of(env_, txn_, db); }
  base::Status commit() override {
    CRASH_POINT("index.before_commit");
    MDB_txn* txn = std::exchange(txn_, nullptr);
    const int rc = mdb_txn_commit(txn);
    if (rc != 0) return fail(env_->error("commit", rc));
    CRASH_POINT("index.after_commit");
    return ok();
  }

 private:
  std::shared_ptr<Env> env_;
  MDB_txn* txn_;
};

class LmdbIndex final : public Index {
 public:
  explicit LmdbIndex(std::shared_ptr<Env> env) : env_(std::move(env)) {}
  base::Result<std::unique_ptr<WriteTxn>> begin() override {
    CHECK(env_->write);
    TRY(env_->keep_size());
    MDB_txn* txn = nullptr;
    const int rc = mdb_txn_begin(env_->env, nullptr, 0, &txn);
    if (rc != 0) return fail(env_->error("begin writing", rc));
    return std::make_unique<LmdbTxn>(env_, txn);
  }
  std::unique_ptr<Reader> reader() override { return std::make_unique<LmdbReader>(env_); }
  base::Result<IndexSpace> space(bool count_free) override {
    MDB_envinfo info{};
    mdb_env_info(env_->env, &info);
    IndexSpace space{info.me_mapsize, (info.me_last_pgno + 1) * env_->page, 0};
    if (count_free) {
      TRY_ASSIGN(space.free_bytes, free_pages());
      space.free_bytes *= env_->page;
    }
    return space;
  }
  int check_readers() override {
    int dead = 0;
    mdb_reader_check(env_->env, &dead);
    return dead;
  }
  std::vector<ReaderInfo> readers() override {
    MDB_envinfo info{};
    mdb_env_info(env_->env, &info);
    std::pair<uint64_t, std::vector<ReaderInfo>> found{info.me_last_txnid, {}};
    // The list is text, "pid thread txnid" a line after a heading; a slot without a snapshot has '-'.
    mdb_reader_list(
        env_->env,
        [](const char* line, void* at) {
          auto& [last, list] = *static_cast<std::pair<uint64_t, std::vector<ReaderInfo>>*>(at);
          int pid = 0;
          unsigned long long txn = 0;
          if (sscanf(line, "%d %*s %llu", &pid, &txn) == 2) list.push_back({pid, txn, last > txn ? last - txn : 0});
          return 0;
        },
        &found);
    return std::move(found.second);
  }
  bool evict(int pid) override {
    struct stat st {};
    if (pid <= 1 || pid == ::getpid() || ::stat(("/proc/" + std::to_string(pid)).c_str(), &st) != 0 ||
        st.st_gid != ::getegid())
      return false;
    return ::kill(pid, SIGKILL) == 0;
  }

 private:
  // LMDB keeps its free pages in database 0: transaction → number of pages, then their numbers.
  base::Result<uint64_t> free_pages() {
    MDB_txn* txn = nullptr;
    int rc = mdb_txn_begin(env_->env, nullptr, MDB_RDONLY, &txn);
    if (rc != 0) return fail(env_->error("begin reading", rc));
    MDB_cursor* cursor = nullptr;
    uint64_t pages = 0;
    rc = mdb_cursor_open(txn, 0, &cursor);
    MDB_val key{}, value{};
    while (rc == 0 && (rc = mdb_cursor_get(cursor, &key, &value, MDB_NEXT)) == 0) {
      size_t n = 0;
      std::memcpy(&n, value.mv_data, sizeof n);
      pages += n;
    }
    if (cursor != nullptr) mdb_cursor_close(cursor);
    mdb_txn_abort(txn);
    if (rc != MDB_NOTFOUND) return fail(env_->error("counting free pages", rc));
    return pages;
  }
  std::shared_ptr<Env> env_;
};

// One environment a file and process. That holds for one that is being closed, too: with its files it closes the locks
// of the process, those of an environment that was opened meanwhile among them.
struct Registry {
  std::mutex mutex;
  std::condition_variable closed;
  std::map<std::string, std::weak_ptr<Env>> envs;  // an expired one is being closed
};
Registry& registry() {
  static Registry r;
  return r;
}

std::string file_identity(const std::string& path) {
  struct stat st {};
  if (::stat(path.c_str(), &st) != 0) return "";
  return std::to_string(st.st_dev) + ":" + std::to_string(st.st_ino);
}

// Drops cached pages of the file, so that what is believed was read from the disk.
void drop_cache(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return;
  ::fdatasync(fd);
  ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
  ::close(fd);
}

base::Status open_dbs(Env& env, const std::vector<Db>& dbs) {
  MDB_txn* txn = nullptr;
  int rc = mdb_txn_begin(env.env, nullptr, env.write ? 0 : MDB_RDONLY, &txn);
  if (rc != 0) return fail(env.error("begin", rc));
  for (const Db db : dbs) {
    const auto i = static_cast<size_t>(db);
    if (env.dbi[i] != kNoDbi) continue;
    rc = mdb_dbi_open(txn, kNames[i], env.write ? MDB_CREATE : 0, &env.dbi[i]);
    if (rc != 0) {
      env.dbi[i] = kNoDbi;
      mdb_txn_abort(txn);
      if (rc == MDB_NOTFOUND) return fail(Code::not_found, "index " + env.dir + ": not made yet");
      return fail(env.error(kNames[i], rc));
    }
  }
  rc = mdb_txn_commit(txn);
  return rc == 0 ? ok() : fail(env.error("commit", rc));
}

base::Status check_size(Env& env) {
  MDB_stat stat{};
  MDB_envinfo info{};
  mdb_env_stat(env.env, &stat);
  mdb_env_info(env.env, &info);
  env.page = stat.ms_psize;
  struct stat st {};
  if (::stat((env.dir + "/data.mdb").c_str(), &st) != 0) return fail(errno_error(env.dir, errno));
  env.size = static_cast<uint64_t>(st.st_size);
  const uint64_t needed = (info.me_last_pgno + 1) * env.page;
  // A fresh environment has two pages, and nothing behind them to lose.
  if (env.size < needed)
    return fail(Code::corrupt, "index " + env.dir + ": data.mdb has " + std::to_string(env.size) +
                                   " bytes, should have " + std::to_string(needed));
  return ok();
}

base::Result<std::unique_ptr<Env>> open_env(const std::string& dir, const LmdbOptions& options) {
  const auto data = dir + "/data.mdb";
  const bool fresh = ::access(data.c_str(), F_OK) != 0;
  if (fresh && !options.write) return fail(Code::not_found, "index " + dir + ": not made yet");
  if (options.write && ::mkdir(dir.c_str(), 0750) != 0 && errno != EEXIST)
    return fail(errno_error("making " + dir, errno));
  if (options.write && !fresh) drop_cache(data);
  auto env = std::make_unique<Env>();
  env->dir = dir;
  env->write = options.write;
  int rc = mdb_env_create(&env->env);
  if (rc != 0) return fail(env->error("create", rc));
  mdb_env_set_maxdbs(env->env, kDbs);
  mdb_env_set_mapsize(env->env, options.map_bytes);
  mdb_env_set_maxreaders(env->env, options.readers);
  rc = mdb_env_open(env->env, dir.c_str(), MDB_NOTLS | MDB_NORDAHEAD | (options.write ? 0U : MDB_RDONLY), 0640);
  if (rc != 0) return fail(env->error("open", rc));
  int fd = -1;
  mdb_env_get_fd(env->env, &fd);
  ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  TRY(check_size(*env));
  if (fresh) {
    const int d = ::open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (d < 0 || ::fsync(d) != 0) return fail(errno_error("syncing " + dir, errno));
    ::close(d);
  }
  return env;
}

}  // namespace

base::Result<std::unique_ptr<Index>> open_lmdb(const std::string& dir, const LmdbOptions& options,
                                               const std::vector<Db>& dbs) {
  static const std::vector<Db> kAll = {Db::records, Db::pieces,  Db::samples, Db::partitions,
                                       Db::series,  Db::extents, Db::meta};
  auto& r = registry();
  std::shared_ptr<Env> env;  // before the lock, which it wants when it is let go
  std::unique_lock lock(r.mutex);
  r.closed.wait(lock, [&] {
    const auto it = r.envs.find(file_identity(dir + "/data.mdb"));
    if (it != r.envs.end()) env = it->second.lock();
    return it == r.envs.end() || env != nullptr;
  });
  if (env == nullptr) {
    TRY_ASSIGN(auto opened, open_env(dir, options));
    const auto identity = file_identity(dir + "/data.mdb");
    env = std::shared_ptr<Env>(opened.release(), [identity](Env* e) {
      delete e;
      const std::lock_guard closing(registry().mutex);
      registry().envs.erase(identity);
      registry().closed.notify_all();
    });
    r.envs[identity] = env;
  } else if (options.write && !env->write) {
    return fail(Code::conflict, "index " + dir + ": open for reading in this process already");
  }
  TRY(open_dbs(*env, dbs.empty() ? kAll : dbs));
  return std::make_unique<LmdbIndex>(std::move(env));
}

std::string lmdb_identity(const std::string& dir) { return file_identity(dir + "/data.mdb"); }

LmdbIndexFactory::LmdbIndexFactory(std::string dir, LmdbOptions options) : dir_(std::move(dir)), options_(options) {}

base::Result<std::unique_ptr<Index>> LmdbIndexFactory::open() {
  if (::access((dir_ + "/suspect").c_str(), F_OK) == 0)
    return fail(Code::corrupt, "index " + dir_ + ": marked suspect by a read error");
  auto index = open_lmdb(dir_, options_);
  if (index) (*index)->check_readers();
  return index;
}

base::Status LmdbIndexFactory::set_aside(std::string_view why) {
  base::log(base::Level::error, "index-set-aside", {{"dir", dir_}, {"why", why}});
  const auto bad = dir_ + ".bad";
  for (const char* name : {"/data.mdb", "/lock.mdb", "/suspect"})
    if (::unlink((bad + name).c_str()) != 0 && errno != ENOENT)
      return fail(errno_error("removing " + bad + name, errno));
  if (::rmdir(bad.c_str()) != 0 && errno != ENOENT) return fail(errno_error("removing " + bad, errno));
  if (::rename(dir_.c_str(), bad.c_str()) != 0 && errno != ENOENT) return fail(errno_error("renaming " + dir_, errno));
  return ok();
}

namespace {
char g_suspect_path[4096];

void on_sigbus(int) {
  const int fd = ::open(g_suspect_path, O_CREAT | O_WRONLY | O_CLOEXEC, 0640);
  if (fd >= 0) {
    ::fsync(fd);
    ::close(fd);
  }
  ::signal(SIGBUS, SIG_DFL);
  ::raise(SIGBUS);
}
}  // namespace

void mark_suspect_on_sigbus(const std::string& dir) {
  const auto path = dir + "/suspect";
  CHECK(path.size() < sizeof g_suspect_path);
  std::memcpy(g_suspect_path, path.c_str(), path.size() + 1);
  struct sigaction action {};
  action.sa_handler = on_sigbus;
  ::sigaction(SIGBUS, &action, nullptr);
}

}  // namespace cantle::store
