#include "lib/model/version.h"

#include <cstring>

#include "lib/base/bytes.h"

namespace cantle::model {
namespace {

uint64_t get(const uint8_t* p, int n) {
  uint64_t v = 0;
  for (int i = 0; i < n; i++) v = v << 8 | p[i];
  return v;
}
void put(uint8_t* p, uint64_t v, int n) {
  for (int i = n - 1; i >= 0; i--, v >>= 8) p[i] = static_cast<uint8_t>(v);
}

}  // namespace

base::WallMs Version::ms() const { return get(bytes.data(), 6); }
uint16_t Version::counter() const { return static_cast<uint16_t>(get(bytes.data() + 6, 2)); }
ServerNumber Version::server() const { return {static_cast<uint32_t>(get(bytes.data() + 8, 4))}; }
Incarnation Version::incarnation() const { return {get(bytes.data() + 12, 8)}; }

Version Version::make(base::WallMs ms, uint16_t counter, ServerNumber server, Incarnation incarnation) {
  Version v;
  put(v.bytes.data(), ms, 6);
  put(v.bytes.data() + 6, counter, 2);
  put(v.bytes.data() + 8, server.value, 4);
  put(v.bytes.data() + 12, incarnation.value, 8);
  return v;
}

base::Result<Version> Version::from_bytes(std::string_view raw) {
  if (raw.size() != 20)
    return base::fail(base::Code::invalid, "a version has 20 bytes, not " + std::to_string(raw.size()));
  Version v;
  std::memcpy(v.bytes.data(), raw.data(), 20);
  return v;
}

Version quorum_version(Epoch epoch, Lsn lsn) {
  Version v;
  put(v.bytes.data(), lsn.value, 8);
  put(v.bytes.data() + 12, epoch.value, 8);
  return v;
}

Epoch quorum_epoch(const Version& version) { return {get(version.bytes.data() + 12, 8)}; }
Lsn quorum_lsn(const Version& version) { return {get(version.bytes.data(), 8)}; }

std::string to_string(const Version& version) { return base::to_hex(version.view()); }

}  // namespace cantle::model
