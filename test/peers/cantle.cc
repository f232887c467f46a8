// cantle's protocol (cantle-protocol(7)).
#include <algorithm>

#include "lib/base/random.h"
#include "lib/model/client_messages.h"
#include "lib/wire/codec.h"
#include "lib/wire/frame.h"
#include "test/peers/protocols.h"

namespace cantle::peers {
namespace {

class Cantle final : public Protocol {
 public:
  Cantle(std::string table, Read read, size_t value_size)
      : table_(std::move(table)), value_(value_size, 'v'), read_(read) {
    static base::SystemRandom random;
    client_ = random.u64() | 1;
  }

  void request(Op op, uint64_t key, uint32_t tag, std::string* out) override {
    params_.clear();
    wire::Writer w(params_);
    w.map(op == Op::put ? 6 : read_ == Read::session ? 4 : 3);
    w.str("table");
    w.str(table_);
    w.str("key");
    w.bin_head(kKeySize);
    append_key(params_, key);
    if (op == Op::put) {
      under_way_.resize(std::max<size_t>(under_way_.size(), tag + 1));
      under_way_[tag] = ++series_;
      w.str("value");
      w.bin(value_);
      w.str("client");
      w.uint(client_);
      w.str("series");
      w.uint(series_);
      w.str("series_low");
      w.uint(lowest());
    } else {
      w.str("level");
      w.uint(static_cast<uint64_t>(read_ == Read::session ? model::Level::session : model::Level::linearizable));
      if (read_ == Read::session) {
        w.str("session");
        w.uint(1);
      }
    }
    wire::append_request(*out, tag, op == Op::put ? "put" : "get", params_);
  }

  base::Status take(std::string_view bytes, std::vector<uint32_t>* done, std::string*) override {
    in_.append(bytes);
    std::string_view rest = in_;
    wire::Frame frame;
    while (true) {
      wire::FrameScanner scanner;
      const auto scan = scanner.scan(rest, &frame);
      if (scan == wire::Scan::malformed) return base::fail(base::Code::malformed, "cantle: a malformed frame");
      if (scan == wire::Scan::incomplete) break;
      rest.remove_prefix(frame.size);
      if (!frame.error.empty()) {
        auto error = wire::decode_error(frame.error);
        if (error.code != base::Code::overloaded) return base::fail(std::move(error));
        // It did not happen, and is asked with a new number: held meanwhile, the old one would be too far back.
        if (frame.msgid < under_way_.size()) under_way_[frame.msgid] = 0;
        refused.push_back({frame.msgid, std::max<uint32_t>(error.retry_after_ms, 1) / 1e3});
        continue;
      }
      if (frame.msgid < under_way_.size()) under_way_[frame.msgid] = 0;
      done->push_back(frame.msgid);
    }
    in_.erase(0, in_.size() - rest.size());
    return base::ok();
  }

 private:
  uint64_t lowest() const {
    uint64_t low = series_;
    for (const uint64_t n : under_way_)
      if (n != 0) low = std::min(low, n);
    return low;
  }

  std::string table_, value_, params_, in_;
  Read read_;
  uint64_t client_ = 0, series_ = 0;
  std::vector<uint64_t> under_way_;  // by tag; 0: none
};

}  // namespace

MakeProtocol cantle_protocol(std::string table, Read read, size_t value_size) {
  return [table = std::move(table), read, value_size] { return std::make_unique<Cantle>(table, read, value_size); };
}

std::string cantle_probe(const std::string& table) {
  model::GetRequest request;
  request.table = table;
  append_key(request.key, 0);
  request.level = model::Level::linearizable;
  request.hop = false;
  std::string frame;
  wire::append_request(frame, 1, "get", wire::encode(request));
  return frame;
}

std::string cantle_follower(uint16_t leader, const std::string& table, const std::string& server) {
  std::string frame;
  wire::append_request(frame, 1, "status", wire::encode(model::StatusRequest{table}));
  wire::Frame answer;
  const auto bytes = exchange(leader, frame, 1, [&](std::string_view in) {
    wire::FrameScanner scanner;
    return scanner.scan(in, &answer) != wire::Scan::incomplete;
  });
  wire::FrameScanner scanner;
  if (scanner.scan(bytes, &answer) == wire::Scan::incomplete || !answer.error.empty()) return "";
  const auto status = wire::decode<model::StatusReply>(answer.result);
  if (!status || status->tables.empty() || status->tables[0].partitions.empty()) return "";
  const auto& quorum = status->tables[0].partitions[0].quorum;
  for (const auto& r : quorum ? quorum->replicas : std::vector<model::StatusReplica>())
    if (r.server.name == server) return r.state;
  return "";
}

}  // namespace cantle::peers
