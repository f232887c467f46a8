// Redis's protocol, RESP.
#include <charconv>
#include <deque>
#include <utility>

#include "test/peers/protocols.h"

namespace cantle::peers {
namespace {

constexpr std::string_view kWait = "*3\r\n$4\r\nWAIT\r\n$1\r\n1\r\n$4\r\n5000\r\n";

class Redis final : public Protocol {
 public:
  Redis(Wait wait, size_t value_size) : wait_(wait), value_(value_size, 'v') {
    size_line_ = "$" + std::to_string(value_size);
  }

  void request(Op op, uint64_t key, uint32_t tag, std::string* out) override {
    if (op == Op::get) {
      out->append("*2\r\n$3\r\nGET\r\n$16\r\n");
      append_key(*out, key);
      out->append("\r\n");
      expected_.push_back({Kind::value, tag});
      return;
    }
    out->append("*3\r\n$3\r\nSET\r\n$16\r\n");
    append_key(*out, key);
    out->append("\r\n");
    out->append(size_line_);
    out->append("\r\n");
    out->append(value_);
    out->append("\r\n");
    expected_.push_back({Kind::set, tag});
    if (wait_ == Wait::each)
      add_wait(out);
    else
      burst_ = true;
  }

  void sent(std::string* out) override {
    if (std::exchange(burst_, false)) add_wait(out);
  }

  base::Status take(std::string_view bytes, std::vector<uint32_t>* done, std::string*) override {
    in_.append(bytes);
    size_t at = 0;
    for (size_t end = 0; !expected_.empty() && (end = in_.find("\r\n", at)) != std::string::npos;) {
      const std::string_view line(in_.data() + at, end - at);
      const auto [kind, tag] = expected_.front();
      size_t next = end + 2;
      if (kind == Kind::value) {
        if (line != size_line_) return unexpected(line);
        next += value_.size() + 2;
        if (next > in_.size()) break;
        done->push_back(tag);
      } else if (kind == Kind::set) {
        if (line != "+OK") return unexpected(line);
        written_.push_back(tag);
      } else {
        int replicas = 0;
        if (!line.starts_with(':')) return unexpected(line);
        std::from_chars(line.data() + 1, line.data() + line.size(), replicas);
        if (replicas < 1) return base::fail(base::Code::no_quorum, "redis: no replica has it in 5 s");
        done->insert(done->end(), written_.begin(), written_.end());
        written_.clear();
      }
      expected_.pop_front();
      at = next;
    }
    in_.erase(0, at);
    return base::ok();
  }

 private:
  enum class Kind : uint8_t { set, wait, value };
  struct Expected {
    Kind kind;
    uint32_t tag;
  };
  void add_wait(std::string* out) {
    out->append(kWait);
    expected_.push_back({Kind::wait, 0});
  }
  static base::Status unexpected(std::string_view line) {
    return base::fail(base::Code::malformed, "redis: unexpected answer " + std::string(line.substr(0, 100)));
  }

  Wait wait_;
  bool burst_ = false;
  std::string value_, size_line_, in_;
  std::deque<Expected> expected_;
  std::vector<uint32_t> written_;  // and not known to be on a replica
};

}  // namespace

MakeProtocol redis_protocol(Wait wait, size_t value_size) {
  return [wait, value_size] { return std::make_unique<Redis>(wait, value_size); };
}

std::string redis_command(const std::vector<std::string>& words) {
  std::string out = "*" + std::to_string(words.size()) + "\r\n";
  for (const auto& w : words) out += "$" + std::to_string(w.size()) + "\r\n" + w + "\r\n";
  return out;
}

}  // namespace cantle::peers
