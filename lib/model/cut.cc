#include "lib/model/cut.h"

#include <algorithm>

#include "lib/base/bytes.h"

namespace cantle::model {

std::string cut_payload(const AttemptId& attempt) { return std::string(attempt.view()); }

base::Result<AttemptId> attempt_of_cut(std::string_view payload) {
  const auto attempt = AttemptId::from_bytes(payload);
  if (!attempt || attempt->none()) return base::fail(base::Code::malformed, "a cut whose payload is no attempt's id");
  return *attempt;
}

std::optional<CutMark> cut_mark(const BlockHeader& h, std::string_view payload) {
  if (!is_cut_mark(h.kind)) return std::nullopt;
  return CutMark{point_of(h), attempt_of_cut(payload).value_or(AttemptId{}), h.kind == BlockKind::cut};
}

LogPoint merged_point(const LogPoint& low, const LogPoint& high) {
  std::string both;
  for (const auto& cut : {low, high}) {
    base::put_u64_be(both, cut.epoch.value);
    base::put_u64_be(both, cut.lsn.value);
    base::put_u32_be(both, cut.crc);
  }
  return {std::max(low.epoch, high.epoch), std::max(low.lsn, high.lsn), base::crc32c(both)};
}

void CutTable::note(const CutMark& mark, Lsn commit) {
  while (marks_.size() > 1 && marks_[1].at.lsn <= commit) marks_.erase(marks_.begin());
  marks_.push_back(mark);
}

void CutTable::truncate(Lsn keep) {
  while (!marks_.empty() && marks_.back().at.lsn > keep) marks_.pop_back();
}

std::optional<CutMark> CutTable::open() const {
  if (marks_.empty() || !marks_.back().open) return std::nullopt;
  return marks_.back();
}

}  // namespace cantle::model
