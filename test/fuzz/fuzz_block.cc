// A block as bytes: header and records.
//
// What holds whatever comes
//   * A cut or an uncut that names its attempt is written the same again; of any payload it is one at its place.
//   * A header that decodes encodes to the same bytes; with its checksum put right, it is refused or within its limits.
//   * Records lie inside the payload and within their limits; encoded again they decode to the same; a result that one
//     tells is one that it has.
//   * Filtering by two intervals that share a border gives all records, each once.
#include <cstdint>
#include <cstring>

#include "lib/base/bytes.h"
#include "lib/base/check.h"
#include "lib/model/cut.h"
#include "lib/model/series.h"
#include "lib/wire/block.h"

namespace {

using namespace cantle;
using model::BlockKind;

void header(std::string_view bytes) {
  const auto h = wire::decode_header(bytes);
  if (!h) return;
  CHECK(h->length <= model::kBlockMax);
  CHECK(!model::is_log_block(h->kind) || (h->first.value > 0 && h->records > 0 && h->last() >= h->first));
  std::string again(wire::kBlockHeaderSize, '\0');
  wire::encode_header(*h, again.data());
  CHECK(again == bytes.substr(0, wire::kBlockHeaderSize));
}

// The same with a checksum that is right, so that what lies behind it is reached.
void repaired_header(std::string_view bytes) {
  if (bytes.size() < wire::kBlockHeaderSize) return;
  std::string copy(bytes.substr(0, wire::kBlockHeaderSize));
  std::memcpy(copy.data(), &wire::kBlockMagic, 4);
  std::memcpy(copy.data() + 4, &wire::kBlockFormat, 2);
  const uint32_t crc = base::crc32c(std::string_view(copy).substr(0, wire::kBlockHeaderSize - 4));
  std::memcpy(copy.data() + wire::kBlockHeaderSize - 4, &crc, 4);
  header(copy);
}

// What a record says of its write's result, it bears out.
void outcome(const model::RecordView& r) {
  const auto got = model::outcome_of(r);
  if (!got) return;
  CHECK((r.client == 0) == (r.series == 0) && r.flags <= model::kResultBits);
  CHECK(r.flags == model::result_flags(got->kind));
  if (got->kind == model::ResultKind::length) CHECK(got->value == static_cast<int64_t>(r.value.size()));
  if (got->kind == model::ResultKind::number) CHECK(model::parse_number(std::to_string(got->value)) == got->value);
}

void records(std::string_view payload) {
  wire::RecordReader in(payload);
  std::string again, middle;
  uint32_t n = 0;
  for (model::RecordView r; in.next(r); n++) {
    CHECK(!r.key.empty() && r.key.size() <= model::kKeyMax && r.value.size() <= model::kValueMax);
    CHECK(r.key.data() > payload.data() && r.key.data() + r.key.size() <= payload.data() + payload.size());
    const auto before = again.size();
    wire::append_record(again, r);
    CHECK(again.size() - before == wire::encoded_size(r));
    outcome(r);
    if (n == 1) middle = r.key;
  }
  const auto info = wire::check_records(payload);
  CHECK(info.has_value() == in.status().has_value());
  const auto twice = wire::check_records(again);
  CHECK(twice && twice->records == n);
  if (middle.empty()) return;
  uint32_t low = 0, high = 0;
  (void)wire::filter_records(again, {"", middle}, &low);
  (void)wire::filter_records(again, {middle, ""}, &high);
  CHECK(low + high == n);
}

// A block's place in a log, and what its payload says where it is a cut.
void cut(std::string_view bytes) {
  const auto h = wire::decode_header(bytes);
  if (!h) return;
  const auto payload = bytes.substr(wire::kBlockHeaderSize);
  const auto mark = model::cut_mark(*h, payload);
  CHECK(mark.has_value() == model::is_cut_mark(h->kind));
  const auto attempt = model::attempt_of_cut(payload);
  if (attempt) CHECK(model::cut_payload(*attempt) == payload);
  if (!mark) return;
  CHECK(mark->at.lsn == h->last() && mark->attempt == attempt.value_or(model::AttemptId{}));
  model::CutTable table;
  table.note(*mark, h->commit);
  CHECK(table.open().has_value() == (h->kind == BlockKind::cut));
  table.truncate({h->first.value - 1});
  CHECK(table.marks().empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  header(bytes);
  repaired_header(bytes);
  cut(bytes);
  records(bytes);
  if (bytes.size() > wire::kBlockHeaderSize) records(bytes.substr(wire::kBlockHeaderSize));
  return 0;
}
