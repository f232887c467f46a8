// Reserve: disk space held back for METADATA files, so that a full disk stops data before it stops metadata
// (design/metadata.md: space for 16 files).
//
// Use
//   Reserve reserve(disk, "meta/reserve");
//   reserve.want(16 * bytes_of_a_file);     // grows the file when there is room
//   if (reserve.release()) …                // the disk is full: there is room now
//
// Threads: one. Ownership: the disk outlives it.
#pragma once

#include <cstdint>
#include <string>

#include "lib/store/disk.h"

namespace cantle::mdserver {

constexpr uint64_t kReserveMin = uint64_t{1} << 20;
constexpr uint64_t kReserveMax = uint64_t{256} << 20;
constexpr uint64_t kReserveFiles = 16;

class Reserve {
 public:
  Reserve(store::Disk& disk, std::string path) : disk_(disk), path_(std::move(path)) {}

  // Makes it at least `bytes` long, as far as the disk has that much and as much again. Cheap when it is.
  void want(uint64_t bytes);
  // Gives it all up; false: there was nothing.
  bool release();
  bool held() const { return held_ >= kReserveMin; }

 private:
  store::Disk& disk_;
  std::string path_;
  uint64_t held_ = 0;
};

}  // namespace cantle::mdserver
