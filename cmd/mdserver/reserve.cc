#include "cmd/mdserver/reserve.h"

#include <algorithm>

#include "lib/base/log.h"

namespace cantle::mdserver {
namespace {
constexpr uint64_t kPiece = uint64_t{1} << 20;
}

void Reserve::want(uint64_t bytes) {
  bytes = std::clamp(bytes, kReserveMin, kReserveMax);
  if (held_ >= bytes) return;
  const auto space = disk_.space();
  if (!space || space->free < 2 * (bytes - held_)) return;
  auto file = disk_.open(path_, store::OpenMode::create);
  if (!file) return;
  if (const auto size = (*file)->size(); size && held_ == 0) held_ = std::min(*size, bytes);
  // Written, not just made long: a hole holds no space back.
  const std::string zeros(kPiece, '\0');
  while (held_ < bytes) {
    const auto piece = std::min(kPiece, bytes - held_);
    if (auto done = (*file)->write(held_, std::string_view(zeros).substr(0, piece)); !done) {
      base::log(base::Level::warn, "reserve", {{"path", path_}, {"error", to_string(done.error())}});
      return;
    }
    held_ += piece;
  }
}

bool Reserve::release() {
  auto file = disk_.open(path_, store::OpenMode::write);
  if (!file) return false;
  const auto size = (*file)->size();
  if (!size || *size == 0 || !(*file)->truncate(0)) return false;
  held_ = 0;
  base::log(base::Level::error, "disk-full", {{"text", "the space held back for metadata is in use: make room"}});
  return true;
}

}  // namespace cantle::mdserver
