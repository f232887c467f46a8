#include "lib/store/disk.h"

#include <algorithm>

namespace cantle::store {

base::Result<std::string> File::read(uint64_t offset, size_t size) {
  std::string bytes(size, '\0');
  TRY_ASSIGN(const size_t got, read(offset, bytes.data(), size));
  bytes.resize(got);
  return bytes;
}

base::Status File::reserve(uint64_t bytes) {
  TRY_ASSIGN(const uint64_t there, size());
  const std::string zeros(size_t{1} << 20, '\0');
  for (uint64_t at = there; at < bytes; at += zeros.size())
    TRY(write(at,
              std::string_view(zeros).substr(0, static_cast<size_t>(std::min<uint64_t>(zeros.size(), bytes - at)))));
  return base::ok();
}

base::Result<std::string> Disk::read_whole(std::string_view path, size_t size_max) {
  TRY_ASSIGN(auto file, open(path, OpenMode::read));
  TRY_ASSIGN(const auto size, file->size());
  if (size > size_max)
    return base::fail(base::Code::corrupt, std::string(path) + ": longer than " + std::to_string(size_max) + " bytes");
  return file->read(0, static_cast<size_t>(size));
}

base::Status Disk::write_whole(std::string_view path, std::string_view bytes) {
  const std::string aside = std::string(path) + ".new";
  {
    TRY_ASSIGN(auto file, open(aside, OpenMode::create));
    // Over what may lie there, not behind a truncate: blocks that the file has already are room on a full disk.
    TRY(file->write(0, bytes));
    TRY(file->truncate(bytes.size()));
    TRY(file->sync());
  }
  TRY(rename(aside, path));
  const auto slash = path.rfind('/');
  return sync_dir(slash == std::string_view::npos ? std::string_view() : path.substr(0, slash));
}

}  // namespace cantle::store
