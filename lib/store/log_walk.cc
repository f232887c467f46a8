#include "lib/store/log_walk.h"

#include <algorithm>

namespace cantle::store {

base::Status LogWalk::run(const LogIndex& index, const EpochTable& epochs, const Open& open, bool payload,
                          const Each& each) const {
  const auto wanted = [&](const Frame& f) {
    const auto& h = f.header;
    return model::is_log_block(h.kind) && h.partition == partition && h.last() >= from && f.at.sequence >= begins &&
           index.lives(h.last(), f.at.sequence) && epochs.fits(h.epoch, h.first);
  };
  for (auto place = at; place.segment <= end.segment; place = {place.segment + 1, 0, place.sequence}) {
    auto file = open(place.segment);
    if (!file && file.error().code == base::Code::not_found) continue;
    if (!file) return base::fail(std::move(file).error());
    TRY_ASSIGN(const auto size, (*file)->size());
    SegmentScanner scanner(**file, place.segment, place.offset,
                           place.segment == end.segment ? std::min(size, end.offset) : size);
    for (;;) {
      TRY_ASSIGN(auto frame, scanner.look(false));
      const bool want = frame && frame->at.sequence >= place.sequence && wanted(*frame);
      if (want && payload) {
        TRY_ASSIGN(frame, scanner.look(true));
      }
      if (!frame || frame->at.sequence < place.sequence) {
        TRY_ASSIGN(frame, scanner.search(place.sequence == 0 ? 0 : place.sequence - 1));
        if (!frame) break;
      }
      place.sequence = frame->at.sequence + 1;
      if (wanted(*frame)) {
        TRY_ASSIGN(const bool more, each(*frame, scanner.payload()));
        if (!more) return base::ok();
      }
      scanner.pass(*frame);
    }
  }
  return base::ok();
}

}  // namespace cantle::store
