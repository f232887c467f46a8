#include "lib/store/disk.h"

namespace cantle::store {

base::Result<std::string> File::read(uint64_t offset, size_t size) {
  std::string bytes(size, '\0');
  TRY_ASSIGN(const size_t got, read(offset, bytes.data(), size));
  bytes.resize(got);
  return bytes;
}

base::Result<std::string> Disk::read_whole(std::string_view path, size_t size_max) {
  TRY_ASSIGN(auto file, open(path, OpenMode::read));
  TRY_ASSIGN(auto bytes, file->read(0, size_max + 1));
  if (bytes.size() > size_max) return base::fail(base::Code::corrupt, std::string(path) + ": longer than " + std::to_string(size_max) + " bytes");
  return bytes;
}

base::Status Disk::write_whole(std::string_view path, std::string_view bytes) {
  const std::string aside = std::string(path) + ".new";
  {
    TRY_ASSIGN(auto file, open(aside, OpenMode::create));
    TRY(file->truncate(0));
    TRY(file->write(0, bytes));
    TRY(file->sync());
  }
  TRY(rename(aside, path));
  const auto slash = path.rfind('/');
  return sync_dir(slash == std::string_view::npos ? std::string_view() : path.substr(0, slash));
}

}  // namespace cantle::store
