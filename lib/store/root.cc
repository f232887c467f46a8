#include "lib/store/root.h"

#include <cstring>

#include "lib/base/bytes.h"
#include "lib/base/check.h"
#include "lib/base/testing.h"
#include "lib/wire/codec.h"

namespace cantle::store {
namespace {

using base::Code;
using base::fail;

// magic u32, crc u32, length u32, then the fields as a MessagePack map, then zeros. The checksum covers
// everything behind it.
constexpr uint32_t kRootMagic = 0x31525443;  // "CTR1"
constexpr size_t kRootHead = 12;

struct Fields {
  Root root;
  uint64_t head_segment = 0, head_offset = 0, head_sequence = 0;
  uint64_t applied_segment = 0, applied_offset = 0, applied_sequence = 0;
  template <class V>
  void visit(V&& v) {
    v("generation", root.generation);
    v("server", root.server);
    v("cluster", root.cluster);
    v("incarnation", root.incarnation);
    v("head_segment", head_segment);
    v("head_offset", head_offset);
    v("head_sequence", head_sequence);
    v("applied_segment", applied_segment);
    v("applied_offset", applied_offset);
    v("applied_sequence", applied_sequence);
    v("oldest_segment", root.oldest_segment);
    v("highest", root.highest);
    v("clean", root.clean);
  }
  template <class V>
  void each_field(V&& v) {
    visit(v);
  }
  template <class V>
  void each_field(V&& v) const {
    const_cast<Fields*>(this)->visit(v);
  }
};

}  // namespace

std::string encode_root(const Root& root) {
  const Fields fields{root,
                      root.head.segment,
                      root.head.offset,
                      root.head.sequence,
                      root.applied.segment,
                      root.applied.offset,
                      root.applied.sequence};
  const std::string body = wire::encode(fields);
  CHECK(body.size() + kRootHead <= kRootSlot);
  std::string slot(kRootSlot, '\0');
  const auto length = static_cast<uint32_t>(body.size());
  std::memcpy(slot.data(), &kRootMagic, 4);
  std::memcpy(slot.data() + 8, &length, 4);
  std::memcpy(slot.data() + kRootHead, body.data(), body.size());
  const uint32_t crc = base::crc32c(std::string_view(slot).substr(8));
  std::memcpy(slot.data() + 4, &crc, 4);
  return slot;
}

base::Result<Root> decode_root(std::string_view slot) {
  if (slot.size() != kRootSlot) return fail(Code::corrupt, "root block: not " + std::to_string(kRootSlot) + " bytes");
  uint32_t magic = 0, crc = 0, length = 0;
  std::memcpy(&magic, slot.data(), 4);
  std::memcpy(&crc, slot.data() + 4, 4);
  std::memcpy(&length, slot.data() + 8, 4);
  if (magic != kRootMagic) return fail(Code::corrupt, "root block: wrong magic");
  if (crc != base::crc32c(slot.substr(8))) return fail(Code::corrupt, "root block: wrong checksum");
  if (length > kRootSlot - kRootHead) return fail(Code::corrupt, "root block: wrong length");
  auto fields = wire::decode<Fields>(slot.substr(kRootHead, length));
  if (!fields) return fail(Code::corrupt, "root block: " + fields.error().text);
  Root root = std::move(fields->root);
  root.head = {fields->head_segment, fields->head_offset, fields->head_sequence};
  root.applied = {fields->applied_segment, fields->applied_offset, fields->applied_sequence};
  return root;
}

base::Result<Roots> Roots::read(Disk& disk) {
  Roots roots;
  auto file = disk.open(kRootPath, OpenMode::read);
  if (!file && file.error().code == Code::not_found) return roots;
  if (!file) return fail(std::move(file).error());
  for (size_t i = 0; i < 2; i++) {
    TRY_ASSIGN(const auto bytes, (*file)->read(i * kRootSlot, kRootSlot));
    if (auto root = decode_root(bytes); root && root->generation % 2 == i) roots.slot[i] = std::move(*root);
  }
  return roots;
}

const Root* Roots::newest() const {
  if (!slot[0]) return slot[1] ? &*slot[1] : nullptr;
  if (!slot[1]) return &*slot[0];
  return slot[0]->generation > slot[1]->generation ? &*slot[0] : &*slot[1];
}

const Root* Roots::older() const {
  if (!slot[0] || !slot[1]) return newest();
  return slot[0]->generation > slot[1]->generation ? &*slot[1] : &*slot[0];
}

base::Status write_root(Disk& disk, const Root& root) {
  TRY_ASSIGN(const bool there, disk.exists(kRootPath));
  TRY_ASSIGN(auto file, disk.open(kRootPath, OpenMode::create));
  // Both slots get their room with the first root: on a disk that is full by then the second could not be written
  // (S65).
  TRY_ASSIGN(const auto size, file->size());
  if (size < 2 * kRootSlot) TRY(file->write(size, std::string(2 * kRootSlot - size, '\0')));
  CRASH_POINT("root.before_write");
  TRY(file->write(root.generation % 2 * kRootSlot, encode_root(root)));
  CRASH_POINT("root.before_sync");
  TRY(file->sync());
  CRASH_POINT("root.after_sync");
  if (!there) TRY(disk.sync_dir(kJournalDir));
  return base::ok();
}

}  // namespace cantle::store
