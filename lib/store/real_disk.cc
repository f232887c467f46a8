#include <dirent.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <sstream>

#include "lib/base/check.h"
#include "lib/store/disk.h"

namespace cantle::store {
namespace {

using base::Code;
using base::errno_error;
using base::fail;
using base::ok;

constexpr mode_t kFileMode = 0640, kDirMode = 0750;
constexpr size_t kDirectAlign = 4096, kDirectRead = size_t{2} << 20;
constexpr size_t kWriteOut = size_t{256} << 10;  // of a large write, handed to the device at a time

class Fd {
 public:
  explicit Fd(int fd) : fd_(fd) {}
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  ~Fd() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

class RealFile final : public File {
 public:
  RealFile(int fd, std::string path, bool direct) : fd_(fd), path_(std::move(path)), direct_(direct) {}

  base::Status write(uint64_t offset, const std::vector<std::string_view>& parts) override {
    std::vector<iovec> iov;
    iov.reserve(parts.size());
    for (const auto part : parts)
      if (!part.empty()) iov.push_back({const_cast<char*>(part.data()), part.size()});
    uint64_t out = offset;  // on its way to the device up to there
    for (size_t at = 0; at < iov.size();) {
      const ssize_t n = ::pwritev(fd_.get(), &iov[at], next_parts(iov, at), static_cast<off_t>(offset));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return fail(errno_error("writing " + path_, errno));
      if (n == 0) return fail(errno_error("writing " + path_, ENOSPC));
      offset += static_cast<uint64_t>(n);
      at = advance(iov, at, static_cast<size_t>(n));
      // The device writes this while the next is copied. Whether it could is what sync() says.
      if (offset - out < kWriteOut) continue;
      const uint64_t to = offset / kDirectAlign * kDirectAlign;
      (void)::sync_file_range(fd_.get(), static_cast<off_t>(out), static_cast<off_t>(to - out), SYNC_FILE_RANGE_WRITE);
      out = to;
    }
    return ok();
  }

  base::Result<size_t> read(uint64_t offset, char* to, size_t size) override {
    size_t done = 0;
    if (direct_) {
      TRY_ASSIGN(done, read_direct(offset, to, size));
      if (direct_) return done;
    }
    while (done < size) {
      const ssize_t n = ::pread(fd_.get(), to + done, size - done, static_cast<off_t>(offset + done));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return fail(errno_error("reading " + path_, errno));
      if (n == 0) break;
      done += static_cast<size_t>(n);
    }
    return done;
  }

  base::Status sync() override {
    if (::fdatasync(fd_.get()) != 0) return fail(errno_error("syncing " + path_, errno));
    return ok();
  }
  base::Result<uint64_t> size() override {
    struct stat st {};
    if (::fstat(fd_.get(), &st) != 0) return fail(errno_error(path_, errno));
    return static_cast<uint64_t>(st.st_size);
  }
  base::Status truncate(uint64_t size) override {
    if (::ftruncate(fd_.get(), static_cast<off_t>(size)) != 0) return fail(errno_error("truncating " + path_, errno));
    return ok();
  }
  base::Status reserve(uint64_t size) override {
    if (::fallocate(fd_.get(), 0, 0, static_cast<off_t>(size)) == 0) return ok();
    if (errno == EOPNOTSUPP || errno == ENOSYS) return File::reserve(size);
    return fail(errno_error("reserving " + path_, errno));
  }
  void drop_cache() override { ::posix_fadvise(fd_.get(), 0, 0, POSIX_FADV_DONTNEED); }

 private:
  // In whole blocks of the device, by way of memory that lies as it wants it. Sets direct_ to false, and gives what it
  // has so far, where the file system cannot.
  base::Result<size_t> read_direct(uint64_t offset, char* to, size_t size) {
    if (!block_) block_.reset(static_cast<char*>(std::aligned_alloc(kDirectAlign, kDirectRead)));
    CHECK(block_);
    const uint64_t end = (offset + size + kDirectAlign - 1) / kDirectAlign * kDirectAlign;
    size_t done = 0;
    while (done < size) {
      const uint64_t at = offset + done, from = at / kDirectAlign * kDirectAlign;
      const auto want = static_cast<size_t>(std::min<uint64_t>(end - from, kDirectRead));
      const ssize_t n = ::pread(fd_.get(), block_.get(), want, static_cast<off_t>(from));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && errno == EINVAL && ::fcntl(fd_.get(), F_SETFL, 0) == 0) {
        direct_ = false;
        break;
      }
      if (n < 0) return fail(errno_error("reading " + path_, errno));
      const auto skip = static_cast<size_t>(at - from);
      if (static_cast<size_t>(n) <= skip) break;
      const size_t got = std::min(static_cast<size_t>(n) - skip, size - done);
      std::memcpy(to + done, block_.get() + skip, got);
      done += got;
    }
    return done;
  }

  // So many make kWriteOut bytes, or all there is.
  static int next_parts(const std::vector<iovec>& iov, size_t at) {
    size_t n = 0;
    for (size_t bytes = 0; at + n < iov.size() && n < IOV_MAX && bytes < kWriteOut; n++) bytes += iov[at + n].iov_len;
    return static_cast<int>(n);
  }

  // Skips n written bytes; returns the first part that is not written wholly.
  static size_t advance(std::vector<iovec>& iov, size_t at, size_t n) {
    while (at < iov.size() && n >= iov[at].iov_len) n -= iov[at++].iov_len;
    if (n > 0) {
      iov[at].iov_base = static_cast<char*>(iov[at].iov_base) + n;
      iov[at].iov_len -= n;
    }
    return at;
  }
  struct Free {
    void operator()(char* p) const { std::free(p); }
  };
  Fd fd_;
  std::string path_;
  bool direct_;
  std::unique_ptr<char, Free> block_;
};

class RealMapping final : public Mapping {
 public:
  RealMapping(char* data, size_t size) : data_(data), size_(size) {}
  ~RealMapping() override { ::munmap(data_, size_); }
  char* data() override { return data_; }
  size_t size() const override { return size_; }
  void wait(const uint32_t* word, uint32_t seen, int timeout_ms) override {
    timespec ts{timeout_ms / 1000, static_cast<long>(timeout_ms % 1000) * 1000000};
    ::syscall(SYS_futex, word, FUTEX_WAIT, seen, &ts, nullptr, 0);
  }
  void wake(const uint32_t* word) override { ::syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0); }

 private:
  char* data_;
  size_t size_;
};

class RealLock final : public FileLock {
 public:
  explicit RealLock(int fd) : fd_(fd) {}

 private:
  Fd fd_;
};

}  // namespace

RealDisk::RealDisk(std::string root) : root_(std::move(root)) {}

std::string RealDisk::full(std::string_view path) const {
  std::string out = root_;
  if (!path.empty()) {
    out += '/';
    out += path;
  }
  return out;
}

base::Result<std::unique_ptr<File>> RealDisk::open(std::string_view path, OpenMode mode) {
  const auto name = full(path);
  bool direct = mode == OpenMode::medium;
  int flags = O_CLOEXEC | (mode == OpenMode::read || direct ? O_RDONLY : O_RDWR);
  if (mode == OpenMode::create) flags |= O_CREAT;
  int fd = ::open(name.c_str(), flags | (direct ? O_DIRECT : 0), kFileMode);
  if (fd < 0 && errno == EINVAL && direct) {
    direct = false;
    fd = ::open(name.c_str(), flags, kFileMode);
  }
  if (fd < 0 && errno == ENOENT) return fail(Code::not_found, name + ": no such file");
  if (fd < 0) return fail(errno_error("opening " + name, errno));
  return std::make_unique<RealFile>(fd, name, direct);
}

base::Status RealDisk::rename(std::string_view from, std::string_view to) {
  if (::rename(full(from).c_str(), full(to).c_str()) != 0) return fail(errno_error("renaming " + full(from), errno));
  return ok();
}

base::Status RealDisk::remove(std::string_view path) {
  if (::unlink(full(path).c_str()) == 0) return ok();
  if (errno == ENOENT) return fail(Code::not_found, full(path) + ": no such file");
  return fail(errno_error("removing " + full(path), errno));
}

base::Status RealDisk::make_dir(std::string_view path) {
  for (size_t slash = path.find('/'); slash != std::string_view::npos; slash = path.find('/', slash + 1))
    TRY(make_dir(path.substr(0, slash)));
  if (::mkdir(full(path).c_str(), kDirMode) != 0 && errno != EEXIST)
    return fail(errno_error("making " + full(path), errno));
  return ok();
}

base::Status RealDisk::sync_dir(std::string_view path) {
  const Fd fd(::open(full(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd.get() < 0) return fail(errno_error("opening " + full(path), errno));
  if (::fsync(fd.get()) != 0) return fail(errno_error("syncing " + full(path), errno));
  return ok();
}

base::Result<std::vector<std::string>> RealDisk::list(std::string_view path) {
  std::vector<std::string> names;
  DIR* dir = ::opendir(full(path).c_str());
  if (dir == nullptr && errno == ENOENT) return names;
  if (dir == nullptr) return fail(errno_error("listing " + full(path), errno));
  while (const dirent* entry = ::readdir(dir)) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  ::closedir(dir);
  std::sort(names.begin(), names.end());
  return names;
}

base::Result<bool> RealDisk::exists(std::string_view path) {
  struct stat st {};
  if (::stat(full(path).c_str(), &st) == 0) return true;
  if (errno == ENOENT || errno == ENOTDIR) return false;
  return fail(errno_error(full(path), errno));
}

base::Result<Space> RealDisk::space() {
  struct statvfs fs {};
  if (::statvfs(root_.c_str(), &fs) != 0) return fail(errno_error(root_, errno));
  return Space{fs.f_blocks * fs.f_frsize, fs.f_bavail * fs.f_frsize};
}

base::Result<std::unique_ptr<Mapping>> RealDisk::map(std::string_view path, size_t size, bool create) {
  const auto name = full(path);
  const Fd fd(::open(name.c_str(), O_RDWR | O_CLOEXEC | (create ? O_CREAT : 0), kFileMode));
  if (fd.get() < 0 && errno == ENOENT) return fail(Code::not_found, name + ": no such file");
  if (fd.get() < 0) return fail(errno_error("opening " + name, errno));
  struct stat st {};
  if (::fstat(fd.get(), &st) != 0) return fail(errno_error(name, errno));
  if (static_cast<size_t>(st.st_size) < size) {
    if (!create) return fail(Code::not_found, name + ": shorter than " + std::to_string(size) + " bytes");
    // Real blocks, so that a full disk is an error here and no SIGBUS later.
    if (const int err = ::posix_fallocate(fd.get(), 0, static_cast<off_t>(size)); err != 0)
      return fail(errno_error(name, err));
  }
  void* data = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (data == MAP_FAILED) return fail(errno_error("mapping " + name, errno));
  return std::make_unique<RealMapping>(static_cast<char*>(data), size);
}

namespace {

// "process 4711", as /proc/locks has it, or "another process" where it does not.
std::string holder_of(int fd) {
  struct stat st {};
  if (::fstat(fd, &st) != 0) return "another process";
  char file[64];
  std::snprintf(file, sizeof file, "%02x:%02x:%llu", major(st.st_dev), minor(st.st_dev),
                static_cast<unsigned long long>(st.st_ino));
  std::ifstream locks("/proc/locks");
  for (std::string line; std::getline(locks, line);) {  // 1: FLOCK  ADVISORY  WRITE 4711 fe:01:77 0 EOF
    std::istringstream words(line);
    std::string number, kind, strength, mode, pid, where;
    words >> number >> kind >> strength >> mode >> pid >> where;
    if (kind == "FLOCK" && where == file && pid != "-1" && pid != "0") return "process " + pid;
  }
  return "another process";
}

}  // namespace

base::Result<std::unique_ptr<FileLock>> RealDisk::lock(std::string_view path) {
  const auto name = full(path);
  Fd fd(::open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, kFileMode));
  if (fd.get() < 0) return fail(errno_error("opening " + name, errno));
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) return fail(Code::conflict, name + ": " + holder_of(fd.get()) + " uses this directory");
    return fail(errno_error("locking " + name, errno));
  }
  return std::make_unique<RealLock>(fd.release());
}

}  // namespace cantle::store
