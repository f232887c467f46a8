#include "lib/rpc/session.h"

#include "lib/base/log.h"
#include "lib/rpc/hello.h"
#include "lib/rpc/server_core.h"

namespace cantle::rpc {
namespace {

// Beside the fixed time for a frame: what the slowest acceptable sender gets through in a second.
constexpr size_t kSlowestBytesPerSecond = size_t{64} << 10;
// What came at once and is larger is not a bundle of small requests, and is served where it lies.
constexpr size_t kGatheredMax = size_t{16} << 10;

}  // namespace

Responder::Pending::~Pending() {
  if (session) session->answer_error(msgid, {base::Code::faulted, "the request was dropped without an answer"});
}

void Responder::ok(std::string_view result) const {
  if (!pending_ || !pending_->session) return;
  std::exchange(pending_->session, nullptr)->answer(pending_->msgid, result);
}

void Responder::fail(const base::Error& error) const {
  if (!pending_ || !pending_->session) return;
  std::exchange(pending_->session, nullptr)->answer_error(pending_->msgid, error);
}

bool Responder::alive() const { return pending_ && pending_->session && pending_->session->connected(); }

Session::Session(Server::Core& server, uint64_t number, std::unique_ptr<io::Conn> connection)
    : core(&server), conn_(std::move(connection)) {
  caller.connection = number;
  caller.local = conn_->kind() == io::Address::Kind::local;
  caller.peer = conn_->peer();
}

void Session::on_bytes(io::Conn&, std::string_view bytes) {
  core->counters.bytes_in += bytes.size();
  if (ready_ || (pending_.empty() && bytes.size() <= kGatheredMax)) {
    keep(bytes);
    if (core && !std::exchange(ready_, true)) core->serve_later(shared_from_this());
    return;
  }
  if (pending_.empty()) {
    const auto taken = consume(bytes);
    if (conn_ && taken < bytes.size()) keep(bytes.substr(taken));
  } else {
    keep(bytes);
    if (conn_ && !held_) consume_pending();
  }
  if (core) account();
  // What could be answered at once is: this peer reads it while the next one's requests are served.
  if (conn_) conn_->send_now();
}

void Session::serve() {
  ready_ = false;
  if (core && conn_ && !held_) consume_pending();
  if (core) account();
}

// Half a frame, or frames that must wait.
void Session::keep(std::string_view rest) {
  if (core->input_bytes + rest.size() > core->limits.input_total) {
    ++core->counters.refused;
    return say_last({base::Code::overloaded, "too many unfinished requests at this server"});
  }
  pending_.append(rest);
}

void Session::account() {
  core->input_bytes += pending_.size() - accounted_;
  accounted_ = pending_.size();
}

void Session::consume_pending() {
  const auto taken = consume(pending_);
  pending_.erase(0, taken);
}

size_t Session::consume(std::string_view bytes) {
  const auto alive = shared_from_this();
  consuming_ = true;
  size_t taken = 0;
  wire::Frame frame;
  while (connected()) {
    if (must_wait()) {
      hold();
      break;
    }
    const auto outcome = scanner_.scan(bytes.substr(taken), &frame);
    if (outcome == wire::Scan::incomplete) break;
    if (outcome == wire::Scan::malformed) {
      reject(scanner_.problem());
      break;
    }
    taken += frame.size;
    scanner_.reset();
    partial_ = false;
    dispatch(frame);
  }
  consuming_ = false;
  if (!core || !connected()) return bytes.size();  // nothing more is wanted of it
  if (!partial_ && taken < bytes.size()) {
    partial_ = true;
    partial_since_ = core->loop.now();
  }
  if (eof_) shut_if_idle();
  return taken;
}

// Backpressure: the limits of one connection.
bool Session::must_wait() {
  if (inflight >= core->limits.inflight || conn_->unsent() >= io::kOutputHigh) return true;
  if (turn_ != core->loop.turns()) {
    turn_ = core->loop.turns();
    turn_calls_ = 0;
  }
  if (turn_calls_ < kCallsPerTurn) return false;
  resume_later();
  return true;
}

void Session::hold() {
  if (held_) return;
  held_ = true;
  conn_->pause();
}

void Session::resume() {
  if (!held_ || consuming_ || !core || !connected()) return;
  if (inflight > core->limits.inflight / 2 || conn_->unsent() >= io::kOutputHigh) return;
  held_ = false;
  const auto alive = shared_from_this();
  consume_pending();
  if (!core) return;
  account();
  if (!held_ && connected()) conn_->resume();
}

void Session::resume_later() {
  if (resume_queued_) return;
  resume_queued_ = true;
  core->loop.next_turn([weak = weak_from_this()] {
    const auto session = weak.lock();
    if (!session) return;
    session->resume_queued_ = false;
    session->resume();
  });
}

void Session::dispatch(const wire::Frame& frame) {
  ++turn_calls_;
  switch (frame.type) {
    case wire::Frame::Type::request: return request(frame);
    case wire::Frame::Type::response: return reject("a response to nothing");
    case wire::Frame::Type::notification: break;
  }
  ++core->counters.notifications;
  const auto found = core->notify_handlers.find(frame.method);
  const bool allowed = core->identity.token.empty() || caller.greeted;
  if (found != core->notify_handlers.end() && frame.params_ok && allowed)
    found->second({frame.method, frame.params, caller});
}

void Session::request(const wire::Frame& frame) {
  ++core->counters.requests;
  ++inflight;
  ++core->inflight;
  if (frame.method == "hello") return hello(frame);
  const Responder responder(std::make_shared<Responder::Pending>(shared_from_this(), frame.msgid));
  if (!core->identity.token.empty() && !caller.greeted) {
    ++core->counters.denied;
    return responder.fail({base::Code::denied, "say hello with the cluster's token first"});
  }
  if (core->draining) return responder.fail({base::Code::unavailable, "shutting down"});
  const auto found = core->handlers.find(frame.method);
  if (found == core->handlers.end()) {
    ++core->counters.unknown_methods;
    return responder.fail({base::Code::invalid, "no method '" + base::escape(frame.method) + "' here"});
  }
  if (!frame.params_ok) return responder.fail({base::Code::invalid, "params must be an array of one map"});
  found->second({frame.method, frame.params, caller}, responder);
}

void Session::hello(const wire::Frame& frame) {
  const auto said = wire::decode<Hello>(frame.params);
  const auto reply = said ? answer_hello(core->identity, *said) : base::Result<HelloReply>(base::fail(said.error()));
  if (reply) {
    caller.greeted = true;
    caller.from = said->from.value;
    return answer(frame.msgid, wire::encode(*reply));
  }
  ++core->counters.denied;
  base::log(base::Level::notice, "hello-refused", {{"peer", caller.peer}, {"error", reply.error().text}});
  answer_error(frame.msgid, reply.error());
  if (connected()) finish();
}

// What cannot be understood ends this connection, and nothing else.
void Session::reject(std::string_view problem) {
  ++core->counters.malformed;
  if (core->malformed_gate.open(core->loop.now()))
    base::log(base::Level::notice, "malformed",
              {{"peer", caller.peer}, {"problem", problem}, {"missed", core->malformed_gate.take_missed()}});
  say_last({base::Code::malformed, std::string(problem)});
}

// An error for what never became a request, and then the end.
void Session::say_last(const base::Error& error) {
  wire::append_error(conn_->output(), scanner_.msgid(), error);
  conn_->wrote();
  finish();
}

void Session::answer(uint32_t msgid, std::string_view result) {
  if (core) ++core->counters.answers;
  if (conn_ && !conn_->finishing()) {
    wire::append_result(conn_->output(), msgid, result);
    conn_->wrote();
  }
  answered();
}

void Session::answer_error(uint32_t msgid, const base::Error& error) {
  if (core) ++core->counters.errors;
  if (conn_ && !conn_->finishing()) {
    wire::append_error(conn_->output(), msgid, error);
    conn_->wrote();
  }
  answered();
}

void Session::answered() {
  if (!core) return;
  --inflight;
  if (connected() && conn_->unsent() > core->limits.output) {
    ++core->counters.slow_readers;
    base::log(base::Level::warn, "slow-reader", {{"peer", caller.peer}, {"unsent", conn_->unsent()}});
    core->loop.defer([weak = weak_from_this()] {
      if (const auto session = weak.lock()) session->drop();
    });
  } else if (held_ && !consuming_ && inflight <= core->limits.inflight / 2) {
    resume_later();
  }
  core->answered();
  if (eof_ && !consuming_) shut_if_idle();
}

void Session::notify(std::string_view method, std::string_view params) {
  if (!connected()) return;
  wire::append_notification(conn_->output(), method, params);
  conn_->wrote();
}

void Session::sweep(base::Instant now) {
  if (!connected()) return;
  const auto bytes = conn_->bytes_in() + conn_->bytes_out();
  if (std::exchange(bytes_swept_, bytes) == bytes) {
    conn_->trim();
    if (pending_.empty()) pending_.shrink_to_fit();
  }
  if (eof_ && now - eof_since_ >= core->limits.eof_grace) return finish();
  if (!partial_ || held_) return;
  const auto grace = std::chrono::seconds(pending_.size() / kSlowestBytesPerSecond);
  if (now - partial_since_ < core->limits.frame_timeout + grace) return;
  ++core->counters.timeouts;
  reject("the frame was not completed in time");
}

void Session::finish() {
  if (conn_) conn_->finish();
}

void Session::drop() {
  if (!conn_) return;
  const auto alive = shared_from_this();
  conn_.reset();
  auto* server = std::exchange(core, nullptr);
  if (!server) return;
  server->input_bytes -= accounted_;
  server->closed(*this);
}

void Session::shut_if_idle() {
  if (conn_ && inflight == 0 && !held_) finish();
}

// A peer that has only shut down its sending side gets what it asked for; one that is gone looks the same.
void Session::on_eof(io::Conn&) {
  if (ready_) serve();
  if (!core || !conn_) return;
  eof_ = true;
  eof_since_ = core->loop.now();
  if (core->limits.eof_grace == base::Duration::zero()) return finish();
  shut_if_idle();
}

void Session::on_drained(io::Conn&) { resume(); }

void Session::on_closed(io::Conn&, const base::Error&) { drop(); }

}  // namespace cantle::rpc
