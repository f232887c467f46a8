#include "lib/rpc/peer.h"

#include <absl/container/flat_hash_map.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "lib/base/log.h"
#include "lib/base/random.h"
#include "lib/io/conn.h"
#include "lib/io/loop.h"
#include "lib/io/timer.h"
#include "lib/rpc/hello.h"
#include "lib/wire/frame.h"

namespace cantle::rpc {
namespace {

constexpr size_t kTrimAbove = size_t{256} << 10;  // bytes of buffers worth giving back when it is quiet
constexpr base::Duration kTrimAfter = std::chrono::seconds(1);
constexpr size_t kNotificationsKept = 64;  // while it is not connected

struct Waiting {
  Peer::Done done;
  base::Instant deadline;
  uint64_t begins = 0;   // where it begins in the stream of this connection's bytes
  bool written = false;  // to the connection; until then it stands in the queue alone
};
struct Queued {
  uint32_t msgid = 0;  // 0: a notification
  std::string frame;
};

base::Error not_sent(std::string_view why) { return {base::Code::unavailable, std::string(why)}; }

}  // namespace

struct Peer::Core final : io::ConnHandler, std::enable_shared_from_this<Core> {
  enum class State : uint8_t { idle, connecting, greeting, ready, backoff };

  Core(io::Loop& l, io::Address a, PeerOptions o);

  void call(std::string_view method, std::string_view params, Tail tail, base::Duration timeout, Done done);
  void notify(std::string_view method, std::string_view params);
  void begin();                       // connects
  void rested();                      // the backoff is over
  void lost(const base::Error& why);  // the connection is over, or never came
  void close();                       // without a word

  void on_connected(io::Conn&) override;
  void on_bytes(io::Conn&, std::string_view bytes) override;
  void on_eof(io::Conn&) override { lost(not_sent("closed by " + to_string(address))); }
  void on_closed(io::Conn&, const base::Error& why) override { lost(why); }

  bool can_send() const { return state == State::ready; }
  uint32_t draw_msgid();
  void enqueue(uint32_t msgid, std::string frame);
  void send_queue();
  void drop_queue();
  size_t consume(std::string_view bytes);
  void dispatch(const wire::Frame& frame);
  void greeted(base::Result<std::string_view> reply);
  void set_ready();
  void fail_all(const base::Error& why, uint64_t handed_over);
  void arm(base::Instant deadline);
  void trim_later();
  void trim();
  void expire();
  void set_connected(bool now_connected);

  io::Loop& loop;
  io::Address address;
  PeerOptions options;
  base::SystemRandom random;
  State state = State::idle;
  std::unique_ptr<io::Conn> conn;
  wire::FrameScanner scanner;
  std::string pending;
  uint64_t connection = 0;    // counts them
  std::vector<Queued> queue;  // asked for before the connection was ready
  size_t queue_bytes = 0, queued_notifications = 0;
  uint64_t stream = 0;  // bytes written to this connection
  uint32_t next_msgid = 1;
  uint32_t hello_msgid = 0;
  absl::flat_hash_map<uint32_t, Waiting> waiting;
  Notify on_notify;
  std::function<void(bool)> on_state;
  bool told_connected = false;
  base::Duration backoff{};
  io::Timer connect_timer, backoff_timer, expiry, trimmer;
  uint64_t bytes_trimmed = 0;  // in and out when the trimmer was started
  base::Instant expiry_at{};
  bool closed = false;
};

Peer::Core::Core(io::Loop& l, io::Address a, PeerOptions o)
    : loop(l),
      address(std::move(a)),
      options(std::move(o)),
      backoff(options.backoff_min),
      connect_timer(l, [this] { lost(not_sent("no connection to " + to_string(address) + " in time")); }),
      backoff_timer(l, [this] { rested(); }),
      expiry(l, [this] { expire(); }),
      trimmer(l, [this] { trim(); }) {}

void Peer::Core::call(std::string_view method, std::string_view params, Tail tail, base::Duration timeout, Done done) {
  const auto refuse = [&](base::Error error) {
    loop.defer([weak = weak_from_this(), error = std::move(error), done = std::move(done)] {
      if (const auto core = weak.lock(); core && !core->closed) done(base::fail(error));
    });
  };
  const auto backlog = (conn ? conn->unsent() : 0) + queue_bytes;
  const auto size = params.size() + (tail ? tail->size() : 0);
  if (waiting.size() >= options.inflight_max || backlog + size > options.output_max)
    return refuse({base::Code::overloaded, "too many calls wait for " + to_string(address)});
  if (size + method.size() + 32 > wire::kFrameMax)
    return refuse({base::Code::too_large, "a request of " + std::to_string(size) + " bytes"});
  if (state == State::backoff) return refuse(not_sent("not connected to " + to_string(address)));
  if (state == State::idle) begin();

  const auto msgid = draw_msgid();
  const auto deadline = loop.now() + timeout;
  auto& entry = waiting[msgid];
  entry.done = std::move(done);
  entry.deadline = deadline;
  arm(deadline);
  if (can_send()) {
    entry.begins = stream;
    entry.written = true;
    auto& out = conn->output();
    const auto before = out.size();
    wire::append_request(out, msgid, method, params);
    stream += out.size() - before + (tail ? tail->size() : 0);
    if (tail)
      conn->write_shared(std::move(tail));
    else
      conn->wrote();
  } else {
    std::string frame;
    wire::append_request(frame, msgid, method, params);
    if (tail) frame += *tail;
    enqueue(msgid, std::move(frame));
  }
}

void Peer::Core::enqueue(uint32_t msgid, std::string frame) {
  queue_bytes += frame.size();
  queue.push_back({msgid, std::move(frame)});
}

void Peer::Core::drop_queue() {
  queue.clear();
  queue_bytes = queued_notifications = 0;
}

void Peer::Core::notify(std::string_view method, std::string_view params) {
  if (state == State::backoff) return;
  if (state == State::idle) begin();
  if (can_send()) {
    if (conn->unsent() + params.size() > options.output_max) return;
    auto& out = conn->output();
    const auto before = out.size();
    wire::append_notification(out, method, params);
    stream += out.size() - before;
    conn->wrote();
  } else if (queued_notifications < kNotificationsKept && queue_bytes + params.size() <= options.output_max) {
    ++queued_notifications;
    std::string frame;
    wire::append_notification(frame, method, params);
    enqueue(0, std::move(frame));
  }
}

uint32_t Peer::Core::draw_msgid() {
  while (next_msgid == 0 || waiting.contains(next_msgid)) ++next_msgid;
  return next_msgid++;
}

void Peer::Core::begin() {
  state = State::connecting;
  ++connection;
  backoff_timer.stop();
  scanner.reset();
  std::string().swap(pending);
  stream = 0;
  connect_timer.start(options.connect_timeout);
  conn = io::Conn::connect(loop, address, *this);
}

void Peer::Core::rested() {
  state = State::idle;
  if (options.stay_connected) begin();
}

void Peer::Core::on_connected(io::Conn&) {
  const bool must_greet = !options.identity.cluster.none() || !options.identity.token.empty();
  if (!must_greet) return set_ready();
  state = State::greeting;
  hello_msgid = draw_msgid();
  auto& out = conn->output();
  wire::append_request(out, hello_msgid, "hello", wire::encode(hello_of(options.identity)));
  stream += out.size();
  conn->wrote();
}

void Peer::Core::greeted(base::Result<std::string_view> reply) {
  if (!reply) return lost(reply.error());
  set_ready();
}

void Peer::Core::set_ready() {
  state = State::ready;
  connect_timer.stop();
  backoff = options.backoff_min;
  send_queue();
  set_connected(true);
}

// A call whose deadline passed in the queue was reported as not having happened: it is not sent any more.
void Peer::Core::send_queue() {
  for (const auto& item : queue) {
    if (item.msgid != 0) {
      const auto found = waiting.find(item.msgid);
      if (found == waiting.end()) continue;
      found->second.begins = stream;
      found->second.written = true;
    }
    stream += item.frame.size();
    conn->write(item.frame);
  }
  drop_queue();
}

void Peer::Core::trim_later() {
  if (!conn || trimmer.active() || conn->held() + pending.capacity() < kTrimAbove) return;
  bytes_trimmed = conn->bytes_in() + conn->bytes_out();
  trimmer.start(kTrimAfter);
}

void Peer::Core::trim() {
  if (!conn) return;
  if (bytes_trimmed != conn->bytes_in() + conn->bytes_out()) return trim_later();
  conn->trim();
  if (pending.empty()) pending.shrink_to_fit();
}

void Peer::Core::on_bytes(io::Conn&, std::string_view bytes) {
  const auto alive = shared_from_this();
  trim_later();
  if (pending.empty()) {
    const auto ours = connection;
    const auto taken = consume(bytes);
    if (conn && connection == ours && taken < bytes.size()) pending.assign(bytes.substr(taken));
    return;
  }
  // A callback may call back into this object: what is read from must not move.
  std::string whole = std::move(pending);
  pending.clear();
  whole.append(bytes);
  const auto ours = connection;
  const auto taken = consume(whole);
  if (!conn || connection != ours) return;
  whole.erase(0, taken);
  pending = std::move(whole);
}

size_t Peer::Core::consume(std::string_view bytes) {
  size_t taken = 0;
  const auto ours = connection;
  wire::Frame frame;
  while (taken < bytes.size() && !closed && conn && connection == ours) {
    const auto outcome = scanner.scan(bytes.substr(taken), &frame);
    if (outcome == wire::Scan::incomplete) break;
    if (outcome == wire::Scan::malformed) {
      base::log(base::Level::warn, "malformed-answer", {{"peer", to_string(address)}, {"problem", scanner.problem()}});
      lost(not_sent(to_string(address) + " sent what is not MessagePack-RPC"));
      break;
    }
    taken += frame.size;
    scanner.reset();
    dispatch(frame);
  }
  return taken;
}

void Peer::Core::dispatch(const wire::Frame& frame) {
  if (frame.type == wire::Frame::Type::notification) {
    if (on_notify && frame.params_ok) on_notify(frame.method, frame.params);
    return;
  }
  if (frame.type == wire::Frame::Type::request) {  // we serve nothing
    auto& out = conn->output();
    const auto before = out.size();
    wire::append_error(out, frame.msgid, {base::Code::invalid, "no methods here"});
    stream += out.size() - before;
    return conn->wrote();
  }
  const auto result = frame.error.empty() ? base::Result<std::string_view>(frame.result)
                                          : base::Result<std::string_view>(base::fail(wire::decode_error(frame.error)));
  if (state == State::greeting && frame.msgid == hello_msgid) return greeted(result);
  auto found = waiting.find(frame.msgid);
  if (found == waiting.end()) return;  // it came after its deadline
  const auto done = std::move(found->second.done);
  waiting.erase(found);
  done(result);
}

void Peer::Core::lost(const base::Error& why) {
  const auto alive = shared_from_this();
  connect_timer.stop();
  const auto handed_over = conn && state == State::ready ? conn->bytes_out() : 0;
  conn.reset();
  drop_queue();
  state = State::backoff;
  // Half of the wait is drawn, so that clients of one server do not come back all at once.
  const auto half = backoff / 2;
  backoff_timer.start(half +
                      base::Duration(static_cast<int64_t>(random.below(static_cast<uint64_t>(half.count()) + 1))));
  backoff = std::min(backoff * 2, options.backoff_max);
  set_connected(false);
  fail_all(why, handed_over);
}

void Peer::Core::fail_all(const base::Error& why, uint64_t handed_over) {
  std::vector<std::pair<uint32_t, Waiting>> all;
  all.reserve(waiting.size());
  for (auto& [msgid, entry] : waiting) all.emplace_back(msgid, std::move(entry));
  waiting.clear();
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (auto& [msgid, entry] : all) {
    if (closed) return;
    const bool sent = entry.written && entry.begins < handed_over;
    if (sent)
      entry.done(
          base::fail(base::Code::outcome_unknown, "the connection to " + to_string(address) + " broke: " + why.text));
    else
      entry.done(base::fail(why.code == base::Code::cancelled ? base::Code::unavailable : why.code, why.text));
  }
}

// One timer for all deadlines: set to the earliest known, looks at all of them when it fires. Calls mostly end
// long before, so that is rare.
void Peer::Core::arm(base::Instant deadline) {
  if (expiry.active() && expiry_at <= deadline) return;
  expiry_at = deadline;
  expiry.start(deadline - loop.now());
}

void Peer::Core::expire() {
  const auto alive = shared_from_this();
  const auto now = loop.refresh_now();
  std::vector<std::pair<uint32_t, Waiting>> late;
  std::optional<base::Instant> next;
  for (auto& [msgid, entry] : waiting) {
    if (entry.deadline <= now)
      late.emplace_back(msgid, std::move(entry));
    else if (!next || entry.deadline < *next)
      next = entry.deadline;
  }
  for (const auto& [msgid, entry] : late) waiting.erase(msgid);
  if (next) arm(*next);
  std::sort(late.begin(), late.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (auto& [msgid, entry] : late) {
    if (closed) return;
    // Once written it can no longer be called back.
    if (entry.written)
      entry.done(base::fail(base::Code::outcome_unknown, "no answer from " + to_string(address) + " in time"));
    else
      entry.done(base::fail(not_sent("no connection to " + to_string(address) + " in time")));
  }
}

void Peer::Core::set_connected(bool now_connected) {
  if (told_connected == now_connected) return;
  told_connected = now_connected;
  if (on_state) on_state(now_connected);
}

void Peer::Core::close() {
  closed = true;
  waiting.clear();
  drop_queue();
  conn.reset();
  connect_timer.stop();
  backoff_timer.stop();
  expiry.stop();
  trimmer.stop();
}

Peer::Peer(io::Loop& loop, io::Address address, PeerOptions options)
    : core_(std::make_shared<Core>(loop, std::move(address), std::move(options))) {
  if (core_->options.stay_connected) core_->begin();
}

Peer::~Peer() { core_->close(); }

void Peer::call(std::string_view method, std::string_view params, base::Duration timeout, Done done) {
  core_->call(method, params, nullptr, timeout, std::move(done));
}
void Peer::call(std::string_view method, std::string_view params, Tail tail, base::Duration timeout, Done done) {
  core_->call(method, params, std::move(tail), timeout, std::move(done));
}
void Peer::notify(std::string_view method, std::string_view params) { core_->notify(method, params); }
void Peer::on_notify(Notify fn) { core_->on_notify = std::move(fn); }
void Peer::on_state(std::function<void(bool)> fn) { core_->on_state = std::move(fn); }

void Peer::connect() {
  if (core_->state == Core::State::idle || core_->state == Core::State::backoff) core_->begin();
}

void Peer::move_to(io::Address address) {
  if (address == core_->address) return;
  const auto core = core_;
  if (core->conn) core->lost(not_sent("it moved to " + to_string(address)));
  core->address = std::move(address);
  core->backoff = core->options.backoff_min;
  if (core->closed || core->conn) return;
  core->backoff_timer.stop();
  core->rested();
}

bool Peer::connected() const { return core_->state == Core::State::ready; }
const io::Address& Peer::address() const { return core_->address; }
size_t Peer::inflight() const { return core_->waiting.size(); }
size_t Peer::unsent() const { return core_->queue_bytes + (core_->conn ? core_->conn->unsent() : 0); }

base::Result<std::string> call_sync(io::Loop& loop, Peer& peer, std::string_view method, std::string_view params,
                                    base::Duration timeout) {
  // Shared with the callback, which may come after we gave up.
  const auto answer = std::make_shared<std::optional<base::Result<std::string>>>();
  peer.call(method, params, timeout, [answer](base::Result<std::string_view> result) {
    if (result)
      *answer = std::string(*result);
    else
      *answer = base::Result<std::string>(base::fail(std::move(result).error()));
  });
  constexpr base::Duration kSlack = std::chrono::seconds(1);  // the call itself ends at its deadline
  if (!loop.run_for(timeout + kSlack, [&] { return answer->has_value(); }))
    return base::fail(base::Code::outcome_unknown, "no answer from " + to_string(peer.address()));
  return std::move(**answer);
}

base::Result<std::string> call_sync(const io::Address& address, std::string_view method, std::string_view params,
                                    base::Duration timeout, PeerOptions options) {
  io::Loop loop;
  Peer peer(loop, address, std::move(options));
  return call_sync(loop, peer, method, params, timeout);
}

}  // namespace cantle::rpc
