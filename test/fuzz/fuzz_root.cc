// Root blocks and the rows of the index: what the store believes about itself after a restart.
//
// What holds whatever comes
//   * What decodes encodes to something that decodes to the same.
//   * A divide gives each key of the parent to one child, or leaves it with the parent; a child's log goes on at the
//   cut.
//   * A stored record gives a record within its limits, or is refused.
#include <cstdint>
#include <cstring>

#include "lib/base/bytes.h"
#include "lib/base/check.h"
#include "lib/store/content.h"
#include "lib/store/divide.h"
#include "lib/store/merge.h"
#include "lib/store/root.h"
#include "lib/store/rows.h"

namespace {

using namespace cantle;

void root(std::string_view body) {
  std::string slot(body.substr(0, store::kRootSlot));
  slot.resize(store::kRootSlot, '\0');
  (void)store::decode_root(slot);
  // With head and checksum put right the fields are reached.
  constexpr uint32_t kMagic = 0x31525443;
  const auto length = static_cast<uint32_t>(std::min<size_t>(body.size(), store::kRootSlot - 12));
  std::string good(store::kRootSlot, '\0');
  std::memcpy(good.data(), &kMagic, 4);
  std::memcpy(good.data() + 8, &length, 4);
  std::memcpy(good.data() + 12, body.data(), length);
  const uint32_t crc = base::crc32c(std::string_view(good).substr(8));
  std::memcpy(good.data() + 4, &crc, 4);
  const auto decoded = store::decode_root(good);
  if (!decoded || decoded->server.size() > 200) return;
  const auto again = store::decode_root(store::encode_root(*decoded));
  CHECK(again && again->head == decoded->head && again->generation == decoded->generation &&
        again->highest == decoded->highest);
}

std::string sealed(std::string_view body) {
  std::string row;
  base::put_u32_be(row, base::crc32c(body));
  return row += body;
}

void rows(std::string_view body) {
  const auto row = sealed(body);
  if (const auto t = store::decode_tenure_row(row))
    CHECK(store::decode_tenure_row(store::encode_row(*t)).value() == *t);
  if (const auto m = store::decode_meta_row(row))
    CHECK(store::decode_meta_row(store::encode_row(*m)).value().applied == m->applied);
  if (auto e = store::decode_extent_row(row)) {
    CHECK(store::decode_extent_row(store::encode_row(*e)).value().pieces == e->pieces);
    (void)e->find("k");
    store::cut_piece(*e, "k");
    if (!e->pieces.empty()) store::join_pieces(*e, {e->pieces[0].partition, e->pieces[0].assignment});
  }
  if (const auto s = store::decode_series_row(row))
    CHECK(store::decode_series_row(store::encode_row(*s)).value() == *s);
  if (const auto k = store::decode_series_key(body)) CHECK(store::encode_key(*k) == body);
  (void)store::decode_tenure_row(body);
  if (const auto note = store::decode_note(body)) CHECK(store::decode_note(store::encode_note(*note)));
  if (const auto note = store::decode_merge_note(body)) CHECK(store::decode_merge_note(store::encode_note(*note)));
  if (const auto image = store::decode_image(body)) CHECK(store::decode_image(store::encode_image(*image)));
}

// A tenure's row, its length in two bytes before it, and the note of its divide.
void divided(std::string_view bytes) {
  if (bytes.size() < 2) return;
  const auto length = static_cast<size_t>(static_cast<uint8_t>(bytes[0]) << 8 | static_cast<uint8_t>(bytes[1]));
  bytes.remove_prefix(2);
  const auto parent = store::decode_tenure_row(sealed(bytes.substr(0, length)));
  const auto note = store::decode_note(bytes.substr(std::min(length, bytes.size())));
  if (!parent || !note || !parent->interval.contains(note->point) || note->point == parent->interval.begin) return;
  const auto rows = store::divide_rows(*parent, *note, {7});
  CHECK(rows.low.has_value() == !note->low.assignment.none() && rows.high.has_value() == !note->high.assignment.none());
  for (const auto* child : {&rows.low, &rows.high}) {
    if (!*child) continue;
    const auto& c = **child;
    CHECK(parent->interval.contains(c.interval) && c.log_start == note->at && c.applied == note->at);
    CHECK(c.interval == (child == &rows.low ? model::Interval{parent->interval.begin, note->point}
                                            : model::Interval{note->point, parent->interval.end}));
    for (const auto& part : c.parts) CHECK(c.interval.contains(part.interval));
    CHECK(c.quorum.has_value() == (parent->quorum && note->log));
    if (c.quorum) CHECK(c.quorum->commit == note->at.lsn && c.quorum->cuts.empty() && c.quorum->promised.value == 0);
    CHECK(store::decode_tenure_row(store::encode_row(c)).value() == c);
  }
  CHECK((rows.parent.state == store::RowState::ended) == (rows.low && rows.high));
  CHECK(rows.parent.attempt == note->attempt && !rows.parent.refill);
}

void stored(std::string_view bytes) {
  const auto row = store::decode_stored(bytes);
  if (!row) return;
  CHECK(row->length <= model::kValueMax && row->tail.size() <= bytes.size());
  CHECK(row->in_pieces || row->tail.size() == row->length);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  root(bytes);
  rows(bytes);
  divided(bytes);
  stored(bytes);
  return 0;
}
