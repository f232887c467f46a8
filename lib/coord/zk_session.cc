#include "lib/coord/zk_session.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <type_traits>
#include <utility>

#include "lib/base/check.h"
#include "lib/base/log.h"
#include "lib/coord/path.h"
#include "lib/io/loop.h"

namespace cantle::coord::zk {

using base::Code;
using base::Duration;
using base::Error;
using base::fail;
using base::Instant;
using base::Level;
using base::Nothing;
using base::Result;
using base::Status;
using namespace std::chrono_literals;

namespace {

constexpr Duration kResolveAgain = 1s;
constexpr size_t kSequenceDigits = 10;

// The reply was lost, or the request was: what happened is open.
bool is_open(int rc) {
  switch (rc) {
    case ZCONNECTIONLOSS:
    case ZOPERATIONTIMEOUT:
    case ZSESSIONEXPIRED:
    case ZCLOSING:
    case ZSYSTEMERROR:
    case ZRUNTIMEINCONSISTENCY:
    case ZDATAINCONSISTENCY:
    case ZMARSHALLINGERROR: return true;
    default: return false;
  }
}

// Refused before it was looked at.
bool is_refused(int rc) {
  return rc == ZSESSIONMOVED || rc == ZTHROTTLEDOP || rc == ZNOTREADONLY || rc == ZINVALIDSTATE;
}

Error error_of(int rc, const std::string& path, bool change) {
  const std::string text = path + ": " + zerror(rc);
  if (is_open(rc)) return {change ? Code::outcome_unknown : Code::unavailable, text};
  if (is_refused(rc)) return {Code::unavailable, text};
  switch (rc) {
    case ZNONODE: return {Code::not_found, "no znode " + path};
    case ZNODEEXISTS: return {Code::exists, path + " exists"};
    case ZNOTEMPTY: return {Code::not_empty, path + " has children"};
    case ZBADVERSION: return {Code::conflict, path + ": another version"};
    case ZNOAUTH: return {Code::denied, text};
    default: return {Code::invalid, text};
  }
}

coord::Stat stat_of(const ::Stat& s) {
  coord::Stat out;
  out.version = s.version;
  out.cversion = s.cversion;
  out.czxid = s.czxid;
  out.mzxid = s.mzxid;
  out.ephemeral_owner = static_cast<uint64_t>(s.ephemeralOwner);
  return out;
}

int mode_of(CreateMode mode) {
  switch (mode) {
    case CreateMode::persistent: return ZOO_PERSISTENT;
    case CreateMode::ephemeral: return ZOO_EPHEMERAL;
    case CreateMode::persistent_sequential: return ZOO_PERSISTENT_SEQUENTIAL;
    case CreateMode::ephemeral_sequential: return ZOO_EPHEMERAL_SEQUENTIAL;
  }
  return ZOO_PERSISTENT;
}

}  // namespace

// --- Life --------------------------------------------------------------------------------------

Result<std::unique_ptr<ZkSession>> ZkSession::open(io::Loop& loop, std::string_view target, Duration timeout,
                                                   Duration operation_timeout) {
  TRY_ASSIGN(auto parsed, parse_target(target));
  std::unique_ptr<ZkSession> session(new ZkSession(loop, std::move(parsed), timeout, operation_timeout));
  session->resolve_and_start(false);
  session->tick_timer_.start(timeout / 6, timeout / 6);
  return session;
}

ZkSession::ZkSession(io::Loop& loop, Target target, Duration timeout, Duration operation_timeout)
    : loop_(loop),
      target_(std::move(target)),
      timeout_(timeout),
      granted_(timeout),
      operation_timeout_(operation_timeout),
      offline_since_(loop.now()),
      tick_timer_(loop, [this] { tick(); }),
      deadline_timer_(loop, [this] { check_deadlines(); }),
      retry_timer_(loop, [this] { resolve_and_start(true); }),
      link_(loop, *this) {}

ZkSession::~ZkSession() {
  alive_.reset();
  for (auto& [number, request] : sent_) request.answered = true;  // dropped uncalled
  internal_.clear();
  link_.stop();
}

// `resume`: with the session we had, if any; whether it still lives, the servers say.
void ZkSession::resolve_and_start(bool resume) {
  offline_since_ = loop_.refresh_now();
  resolving_ = resolve(loop_, target_, [this, resume](Result<std::string> list) {
    const bool started = list && link_.start(*list, timeout_, resume && identity_ ? &*identity_ : nullptr);
    if (started) return;
    base::log(Level::warn, "coord.zookeeper",
              {{"error", list ? std::string("refused: ") + std::strerror(errno) : list.error().text}});
    retry_timer_.start(kResolveAgain);
  });
}

void ZkSession::link_connected() { greet(); }

// Our own calls: not retried, not counted.
void ZkSession::make_internal(std::function<int(zhandle_t*, Call*)> send,
                              std::function<void(const Reply&, Instant)> then) {
  if (!link_.connected()) return;
  const auto number = next_number_++;
  auto call = std::make_unique<Call>(Call{this, number, loop_.refresh_now()});
  internal_[number] = std::move(then);
  if (send(link_.handle(), call.get()) == ZOK)
    static_cast<void>(call.release());
  else
    internal_.erase(number);  // lost again; once it is connected again, so do we
  link_.kick();
}

// A first read before anybody is told: it shows that the server answers, from when the lease runs, and
// whether the chroot is there.
void ZkSession::greet() {
  auto send = [path = full("/")](zhandle_t* zh, Call* call) { return zoo_aexists(zh, path.c_str(), 0, on_stat, call); };
  make_internal(send, [this](const Reply& reply, Instant) {
    // Next time round: this is inside the library.
    if (reply.rc == ZOK)
      deliver([this] { go_online(); });
    else if (reply.rc == ZNONODE)
      deliver([this] { make_chroot(target_.chroot.find('/', 1)); });
  });
}

// Level by level. Somebody else may be doing the same.
void ZkSession::make_chroot(size_t upto) {
  auto send = [path = target_.chroot.substr(0, upto)](zhandle_t* zh, Call* call) {
    return zoo_acreate(zh, path.c_str(), "", 0, &ZOO_OPEN_ACL_UNSAFE, ZOO_PERSISTENT, on_string, call);
  };
  make_internal(send, [this, upto](const Reply& reply, Instant) {
    if (is_open(reply.rc)) return;  // the next connection begins again
    if (reply.rc != ZOK && reply.rc != ZNODEEXISTS)
      base::log(Level::error, "coord.chroot", {{"path", target_.chroot}, {"error", zerror(reply.rc)}});
    else if (upto == std::string::npos)
      deliver([this] { go_online(); });
    else
      deliver([this, next = target_.chroot.find('/', upto + 1)] { make_chroot(next); });
  });
}

void ZkSession::go_online() {
  if (online_ || !link_.connected()) return;
  online_ = true;
  identity_ = *zoo_client_id(link_.handle());
  last_id_ = static_cast<uint64_t>(identity_->client_id);
  granted_ = std::chrono::milliseconds(zoo_recv_timeout(link_.handle()));
  tick_timer_.start(granted_ / 6, granted_ / 6);
  emit(Event::connected);
  pump();
}

void ZkSession::go_offline() {
  if (!std::exchange(online_, false)) return;
  offline_since_ = loop_.refresh_now();
  emit(Event::disconnected);
}

void ZkSession::link_lost() { go_offline(); }

void ZkSession::link_expired() {
  online_ = false;
  identity_.reset();
  link_.stop();  // answers what was sent
  emit(Event::expired);
  fire_all_watches();
  std::deque<Request> keep;
  for (auto& request : std::exchange(waiting_, {})) {
    if (!request.change)
      keep.push_back(std::move(request));
    else
      request.refuse(Error(Code::unavailable, "session expired"));
  }
  waiting_ = std::move(keep);
  resolve_and_start(false);
}

void ZkSession::tick() {
  const auto now = loop_.refresh_now();
  if (online_) return pump(), ping();
  if (now - offline_since_ < 2 * timeout_) return;
  // The handle may be going round in circles, or the names have other addresses now. Its watches end
  // with it, so they fire: a watch is a hint.
  base::log(Level::warn, "coord.reconnect", {{"offline_ms", base::to_ms(now - offline_since_)}});
  link_.stop();
  fire_all_watches();
  resolve_and_start(true);
}

void ZkSession::ping() {
  if (loop_.now() - last_confirmed_ < granted_ / 6) return;
  auto send = [path = full("/")](zhandle_t* zh, Call* call) { return zoo_aexists(zh, path.c_str(), 0, on_stat, call); };
  make_internal(send, [](const Reply&, Instant) {});  // completed() confirms
}

void ZkSession::confirm(Instant sent) { last_confirmed_ = std::max(last_confirmed_, sent); }

// --- Completions: inside the library ---------------------------------------------------------------

void ZkSession::on_reply(const void* data, const Reply& reply) {
  auto* call = static_cast<Call*>(const_cast<void*>(data));
  call->session->completed(call, reply);
  delete call;
}

void ZkSession::on_void(int rc, const void* data) { on_reply(data, {.rc = rc}); }
void ZkSession::on_stat(int rc, const ::Stat* stat, const void* data) { on_reply(data, {.rc = rc, .stat = stat}); }
void ZkSession::on_data(int rc, const char* value, int length, const ::Stat* stat, const void* data) {
  on_reply(data, {.rc = rc, .data = value, .length = length, .stat = stat});
}
void ZkSession::on_strings(int rc, const String_vector* names, const ::Stat* stat, const void* data) {
  on_reply(data, {.rc = rc, .stat = stat, .names = names});
}
void ZkSession::on_string(int rc, const char* value, const void* data) { on_reply(data, {.rc = rc, .data = value}); }

void ZkSession::completed(Call* call, const Reply& reply) {
  if (!is_open(reply.rc) && !is_refused(reply.rc)) confirm(call->sent);
  if (auto own = internal_.extract(call->number)) return own.mapped()(reply, call->sent);
  auto node = sent_.extract(call->number);
  if (!node || node.mapped().answered) return;  // its deadline was first, or the session is going down
  settle(std::move(node.mapped()), reply);
}

void ZkSession::settle(Request request, const Reply& reply) {
  const bool again = is_open(reply.rc) || is_refused(reply.rc);
  if (again && !request.change && loop_.now() < request.deadline) return requeue(std::move(request));
  if (request.watch && (reply.rc == ZOK || (reply.rc == ZNONODE && request.waits_for_missing))) {
    watch_bytes_ += request.watch_bytes;
    watches_[request.watch_id] = {std::move(request.watch), request.watch_bytes};
  }
  request.answer(reply);
}

void ZkSession::requeue(Request request) {
  const auto later = [](uint64_t number, const Request& r) { return number < r.number; };
  waiting_.insert(std::upper_bound(waiting_.begin(), waiting_.end(), request.number, later), std::move(request));
}

void ZkSession::link_watch_fired(uint64_t watch) {
  auto node = watches_.extract(watch);
  if (!node) return;
  watch_bytes_ -= node.mapped().bytes;
  deliver(std::move(node.mapped().fire));
}

void ZkSession::fire_all_watches() {
  watch_bytes_ = 0;
  for (auto& [id, entry] : std::exchange(watches_, {})) deliver(std::move(entry.fire));
}

// --- Requests ----------------------------------------------------------------------------------

// Callbacks come from the loop, never from inside the library, and find nothing once the session is gone.
void ZkSession::deliver(std::function<void()> fn) {
  loop_.defer([alive = std::weak_ptr(alive_), fn = std::move(fn)] {
    if (!alive.expired()) fn();
  });
}

void ZkSession::emit(Event event) {
  deliver([this, event] {
    if (handler_) handler_(event);
  });
}

template <class T>
void ZkSession::answer(Done<T> done, Result<T> result) {
  deliver([done = std::move(done), result = std::move(result)]() mutable { done(std::move(result)); });
}

template <class T>
ZkSession::Request ZkSession::make(bool change, const std::string& path, Convert<T> convert, Done<T> done) {
  Request request;
  request.change = change;
  request.answer = [this, path, change, convert = std::move(convert), done](const Reply& reply) {
    if (reply.rc == ZOK)
      answer<T>(done, convert(reply));
    else
      answer<T>(done, fail(error_of(reply.rc, path, change)));
  };
  request.refuse = [this, done = std::move(done)](Error error) { answer<T>(done, fail(std::move(error))); };
  return request;
}

void ZkSession::enqueue(Request request) {
  request.number = next_number_++;
  request.deadline = loop_.now() + operation_timeout_;
  waiting_.push_back(std::move(request));
  pump();
  arm_deadline();
}

// True: the request has left waiting_.
bool ZkSession::hand_over(Request& request) {
  auto call = std::make_unique<Call>(Call{this, request.number, loop_.refresh_now()});
  const int rc = request.send(link_.handle(), call.get());
  if (rc == ZOK) {
    static_cast<void>(call.release());  // the completion frees it
    sent_.emplace(request.number, std::move(request));
    return true;
  }
  if (rc != ZBADARGUMENTS) return false;  // the connection just went: it stays with us
  request.refuse(Error(Code::invalid, zerror(rc)));
  return true;
}

void ZkSession::pump() {
  bool any = false;
  while (online_ && link_.connected() && !waiting_.empty() && hand_over(waiting_.front())) {
    waiting_.pop_front();
    any = true;
  }
  if (any) link_.kick();
}

template <class T>
void ZkSession::read(const std::string& path, Watch watch, std::function<Send(std::string, void*)> send,
                     Convert<T> convert, Done<T> done) {
  auto valid = validate_path(path);
  if (valid && watch && watch_bytes_ + path.size() > kWatchBytesMax)
    valid = fail(Code::invalid, "too many watches in one session");
  if (!valid) return answer<T>(std::move(done), fail(valid.error()));
  auto request = make<T>(false, path, std::move(convert), std::move(done));
  const auto id = watch ? next_watch_++ : 0;
  request.send = send(full(path), reinterpret_cast<void*>(static_cast<uintptr_t>(id)));
  request.watch = std::move(watch);
  request.watch_id = id;
  request.watch_bytes = path.size() + target_.chroot.size();
  request.waits_for_missing = std::is_same_v<T, coord::Stat>;
  enqueue(std::move(request));
}

void ZkSession::get(std::string path, Watch watch, Done<Node> done) {
  auto send = [](std::string p, void* w) -> Send {
    return [p = std::move(p), w](zhandle_t* zh, Call* call) {
      return w ? zoo_awget(zh, p.c_str(), Link::on_watch, w, on_data, call) : zoo_aget(zh, p.c_str(), 0, on_data, call);
    };
  };
  auto convert = [](const Reply& r) {
    return Node{r.length > 0 ? std::string(r.data, static_cast<size_t>(r.length)) : std::string(), stat_of(*r.stat)};
  };
  read<Node>(path, std::move(watch), send, convert, std::move(done));
}

void ZkSession::exists(std::string path, Watch watch, Done<coord::Stat> done) {
  auto send = [](std::string p, void* w) -> Send {
    return [p = std::move(p), w](zhandle_t* zh, Call* call) {
      return w ? zoo_awexists(zh, p.c_str(), Link::on_watch, w, on_stat, call)
               : zoo_aexists(zh, p.c_str(), 0, on_stat, call);
    };
  };
  read<coord::Stat>(
      path, std::move(watch), send, [](const Reply& r) { return stat_of(*r.stat); }, std::move(done));
}

void ZkSession::children(std::string path, Watch watch, Done<Children> done) {
  auto send = [](std::string p, void* w) -> Send {
    return [p = std::move(p), w](zhandle_t* zh, Call* call) {
      return w ? zoo_awget_children2(zh, p.c_str(), Link::on_watch, w, on_strings, call)
               : zoo_aget_children2(zh, p.c_str(), 0, on_strings, call);
    };
  };
  auto convert = [](const Reply& r) {
    Children list;
    list.stat = stat_of(*r.stat);
    list.names.assign(r.names->data, r.names->data + r.names->count);
    std::sort(list.names.begin(), list.names.end());
    return list;
  };
  read<Children>(path, std::move(watch), send, convert, std::move(done));
}

void ZkSession::sync(std::string path, Done<Nothing> done) {
  auto send = [](std::string p, void*) -> Send {
    return [p = std::move(p)](zhandle_t* zh, Call* call) { return zoo_async(zh, p.c_str(), on_string, call); };
  };
  read<Nothing>(
      path, nullptr, send, [](const Reply&) { return Nothing{}; }, std::move(done));
}

template <class T>
void ZkSession::change(const std::string& path, Status valid, Send send, Convert<T> convert, Done<T> done) {
  if (!valid) return answer<T>(std::move(done), fail(valid.error()));
  auto request = make<T>(true, path, std::move(convert), std::move(done));
  request.send = std::move(send);
  enqueue(std::move(request));
}

void ZkSession::create(std::string path, std::string value, CreateMode mode, Done<std::string> done) {
  auto valid = validate_change(path, value);
  if (valid && path == "/") valid = fail(Code::exists, "/ exists");
  auto send = [p = full(path), value = std::move(value), mode](zhandle_t* zh, Call* call) {
    return zoo_acreate(zh, p.c_str(), value.data(), static_cast<int>(value.size()), &ZOO_OPEN_ACL_UNSAFE, mode_of(mode),
                       on_string, call);
  };
  change<std::string>(
      path, std::move(valid), send, [this](const Reply& r) { return stripped(r.data); }, std::move(done));
}

void ZkSession::set(std::string path, std::string value, int32_t version, Done<coord::Stat> done) {
  auto valid = validate_change(path, value);
  auto send = [p = full(path), value = std::move(value), version](zhandle_t* zh, Call* call) {
    return zoo_aset(zh, p.c_str(), value.data(), static_cast<int>(value.size()), version, on_stat, call);
  };
  change<coord::Stat>(
      path, std::move(valid), send, [](const Reply& r) { return stat_of(*r.stat); }, std::move(done));
}

void ZkSession::remove(std::string path, int32_t version, Done<Nothing> done) {
  auto valid = validate_path(path);
  if (valid && path == "/") valid = fail(Code::invalid, "the root cannot be removed");
  auto send = [p = full(path), version](zhandle_t* zh, Call* call) {
    return zoo_adelete(zh, p.c_str(), version, on_void, call);
  };
  change<Nothing>(
      path, std::move(valid), send, [](const Reply&) { return Nothing{}; }, std::move(done));
}

// What the library keeps pointers to until it completes.
struct ZkSession::Multi {
  std::vector<Op> ops;
  std::vector<std::string> paths;  // with the chroot
  std::vector<std::string> made;   // room for the names of what is created
  std::vector<::Stat> stats;
  std::vector<zoo_op_t> raw;
  std::vector<zoo_op_result_t> results;

  Multi(std::vector<Op> list, const std::function<std::string(const std::string&)>& full) : ops(std::move(list)) {
    const auto n = ops.size();
    stats.resize(n), raw.resize(n), results.resize(n);
    for (const auto& op : ops) paths.push_back(full(op.path));
    for (const auto& path : paths) made.emplace_back(path.size() + kSequenceDigits + 2, '\0');
    for (size_t i = 0; i < n; i++) init(i);
  }
  void init(size_t i) {
    const auto& op = ops[i];
    const auto* path = paths[i].c_str();
    const int bytes = static_cast<int>(op.value.size());
    switch (op.kind) {
      case Op::Kind::create:
        zoo_create_op_init(&raw[i], path, op.value.data(), bytes, &ZOO_OPEN_ACL_UNSAFE, mode_of(op.mode),
                           made[i].data(), static_cast<int>(made[i].size()));
        break;
      case Op::Kind::set: zoo_set_op_init(&raw[i], path, op.value.data(), bytes, op.version, &stats[i]); break;
      case Op::Kind::remove: zoo_delete_op_init(&raw[i], path, op.version); break;
      case Op::Kind::check: zoo_check_op_init(&raw[i], path, op.version); break;
    }
  }
  // The one that was refused; those before it say "ok", those behind it "inconsistency".
  size_t culprit() const {
    const auto refused = [](const zoo_op_result_t& r) { return r.err != ZOK && r.err != ZRUNTIMEINCONSISTENCY; };
    const auto it = std::find_if(results.begin(), results.end(), refused);
    return it == results.end() ? 0 : static_cast<size_t>(it - results.begin());
  }
};

void ZkSession::multi(std::vector<Op> ops, Done<std::vector<OpResult>> done) {
  if (auto valid = validate_multi(ops); !valid)
    return answer<std::vector<OpResult>>(std::move(done), fail(valid.error()));
  auto state = std::make_shared<Multi>(std::move(ops), [this](const std::string& path) { return full(path); });
  auto request = make<std::vector<OpResult>>(true, "multi", nullptr, done);
  request.send = [state](zhandle_t* zh, Call* call) {
    return zoo_amulti(zh, static_cast<int>(state->raw.size()), state->raw.data(), state->results.data(), on_void, call);
  };
  request.answer = [this, state, done](const Reply& reply) {
    if (reply.rc == ZOK) {
      std::vector<OpResult> results(state->ops.size());
      for (size_t i = 0; i < results.size(); i++) {
        const auto& made = state->made[i];
        if (state->ops[i].kind == Op::Kind::create) results[i].path = stripped(made.substr(0, made.find('\0')));
        if (state->ops[i].kind == Op::Kind::set) results[i].stat = stat_of(state->stats[i]);
      }
      return answer<std::vector<OpResult>>(done, std::move(results));
    }
    const bool named = !is_open(reply.rc) && !is_refused(reply.rc);
    const auto at = named ? state->culprit() : 0;
    auto error = error_of(reply.rc, named ? state->ops[at].path : "multi", true);
    if (named) error.detail = std::to_string(at);
    answer<std::vector<OpResult>>(done, fail(std::move(error)));
  };
  enqueue(std::move(request));
}

// --- Deadlines ---------------------------------------------------------------------------------

void ZkSession::arm_deadline() {
  if (deadline_timer_.active()) return;  // deadlines only grow: a timer that runs is early enough
  std::optional<Instant> first;
  for (const auto& [number, request] : sent_) {
    if (request.answered) continue;
    first = request.deadline;
    break;
  }
  if (!waiting_.empty()) first = std::min(first.value_or(waiting_.front().deadline), waiting_.front().deadline);
  if (first) deadline_timer_.start(std::max<Duration>(*first - loop_.now(), 1ms));
}

void ZkSession::check_deadlines() {
  const auto now = loop_.refresh_now();
  for (auto& [number, request] : sent_) {
    if (request.deadline > now) break;
    if (std::exchange(request.answered, true)) continue;
    if (request.change)
      request.refuse(Error(Code::outcome_unknown, "the coordination service did not answer in time"));
    else
      request.refuse(Error(Code::unavailable, "the coordination service did not answer in time"));
  }
  while (!waiting_.empty() && waiting_.front().deadline <= now) {
    waiting_.front().refuse(Error(Code::unavailable, "no connection to the coordination service"));
    waiting_.pop_front();
  }
  arm_deadline();
}

}  // namespace cantle::coord::zk
