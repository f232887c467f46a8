#include "lib/coord/file_session.h"

#include <sys/inotify.h>
#include <unistd.h>
#include <uv.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "lib/base/log.h"
#include "lib/coord/path.h"
#include "lib/io/loop.h"

namespace cantle::coord::file {

using base::Code;
using base::Error;
using base::Instant;
using namespace base;

namespace {
constexpr Duration kHeartbeatMax = 2s;
constexpr Duration kBeginAgain = 300ms;  // after a session could not be recorded
}  // namespace

// --- Life --------------------------------------------------------------------------------------

Result<std::unique_ptr<FileSession>> FileSession::open(io::Loop& loop, const std::string& dir, Duration timeout,
                                                       Duration operation_timeout) {
  TRY_ASSIGN(auto env, Env::open(dir));
  std::unique_ptr<FileSession> session(new FileSession(loop, std::move(env), timeout, operation_timeout));
  TRY(session->start_listening());
  session->begin();
  session->beat_timer_.start(session->heartbeat(), session->heartbeat());
  return session;
}

FileSession::FileSession(io::Loop& loop, std::shared_ptr<Env> env, Duration timeout, Duration operation_timeout)
    : loop_(loop),
      env_(std::move(env)),
      timeout_(timeout),
      operation_timeout_(operation_timeout),
      port_(std::make_shared<Port>()),
      beat_timer_(loop, [this] { beat(); }),
      deadline_timer_(loop, [this] { check_deadlines(); }),
      retry_timer_(loop, [this] { begin(); }) {
  port_->loop = &loop;
  port_->session = this;
}

FileSession::~FileSession() {
  {
    const std::lock_guard lock(port_->mutex);
    port_->loop = nullptr;
    port_->session = nullptr;
  }
  for (auto& request : submitted_) request.job->withdraw();
  stop_listening();
  if (!file_) return;
  const auto id = file_->id();
  file_.reset();  // should the job not come to run, anybody sweeps
  env_->writer().submit(
      std::make_shared<Writer::Job>([id](Editor& e) { static_cast<void>(e.end_session(id)); }, [](auto) {}));
}

Duration FileSession::heartbeat() const { return std::min<Duration>(timeout_ / 4, kHeartbeatMax); }

void FileSession::begin() {
  const auto now = loop_.refresh_now();
  const auto id = (random_.u64() >> 1) | 1;
  auto file = SessionFile::create(env_->sessions_dir(), id, now);
  if (!file) {
    log(Level::warn, "coord.session", {{"dir", env_->dir()}, {"error", file.error().text}});
    retry_timer_.start(kBeginAgain);
    return;
  }
  file_ = std::move(*file);
  const SessionRecord record{id, static_cast<uint64_t>(timeout_.count())};
  auto recorded = std::make_shared<Status>(ok());
  auto run = [recorded, record, dir = env_->sessions_dir(), now](Editor& e) {
    *recorded = sweep(e, dir, now);
    if (*recorded) *recorded = e.add_session(record);
  };
  auto done = [port = port_, recorded, id](std::optional<Error> failed) {
    if (!failed && !*recorded) failed = recorded->error();
    const std::lock_guard lock(port->mutex);
    if (!port->loop) return;
    port->loop->post([port, id, failed] {
      if (port->session) port->session->began(id, failed);
    });
  };
  env_->writer().submit(std::make_shared<Writer::Job>(std::move(run), std::move(done)));
}

void FileSession::began(uint64_t id, std::optional<Error> failed) {
  if (!file_ || file_->id() != id) return;
  if (failed) {
    log(Level::warn, "coord.session", {{"dir", env_->dir()}, {"error", failed->text}});
    file_.reset();
    retry_timer_.start(kBeginAgain);
    return;
  }
  connected_ = true;
  last_id_ = id;
  last_confirmed_ = loop_.refresh_now();  // beat() looks for the record at once
  emit(Event::connected);
  beat();
  pump();
}

// The record is gone: somebody found us silent for the timeout. All ephemerals went with it.
void FileSession::expire() {
  if (!connected_) return;
  connected_ = false;
  const auto id = file_->id();
  file_.reset();
  env_->writer().submit(
      std::make_shared<Writer::Job>([id](Editor& e) { static_cast<void>(e.end_session(id)); }, [](auto) {}));
  emit(Event::expired);
  for (auto& entry : std::exchange(watches_, {})) deliver(std::move(entry.fire));
  std::deque<Request> keep;
  for (auto& request : std::exchange(waiting_, {})) {
    if (!request.change)
      keep.push_back(std::move(request));
    else
      request.answer(Error(Code::unavailable, "session expired"));
  }
  waiting_ = std::move(keep);
  begin();
}

void FileSession::beat() {
  look_for_dead();
  const auto now = loop_.refresh_now();
  if (!connected_) {
    if (file_) static_cast<void>(file_->beat(now));  // waiting for the writer lock is no silence
    return;
  }
  // Longer silent than anybody has to tolerate: as with ZooKeeper, whether or not somebody noticed.
  if (now - last_confirmed_ > timeout_) return expire();
  if (const auto beaten = file_->beat(now); !beaten) {
    log(Level::warn, "coord.heartbeat", {{"dir", env_->dir()}, {"error", beaten.error().text}});
    return;
  }
  auto txn = snapshot();
  if (!txn) return;
  if (!Reader(*env_, txn->raw()).has_session(file_->id())) return expire();
  last_confirmed_ = now;
  check_watches();
}

void FileSession::look_for_dead() {
  if (sweeping_) return;
  auto txn = snapshot();
  if (!txn || dead_sessions(Reader(*env_, txn->raw()), env_->sessions_dir(), loop_.refresh_now()).empty()) return;
  sweeping_ = true;
  auto run = [dir = env_->sessions_dir()](Editor& e) { static_cast<void>(sweep(e, dir, SystemClock().now())); };
  auto done = [port = port_](auto) {
    const std::lock_guard lock(port->mutex);
    if (!port->loop) return;
    port->loop->post([port] {
      if (port->session) port->session->sweeping_ = false;
    });
  };
  env_->writer().submit(std::make_shared<Writer::Job>(std::move(run), std::move(done)));
}

// --- Being woken -------------------------------------------------------------------------------

Status FileSession::start_listening() {
  inotify_ = ::inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
  if (inotify_ < 0) return fail(errno_error("inotify", errno));
  if (::inotify_add_watch(inotify_, env_->bell_path().c_str(), IN_MODIFY) < 0)
    return fail(errno_error("inotify " + env_->bell_path(), errno));
  // The kernel closes the lock files of a process that dies.
  sessions_watch_ = ::inotify_add_watch(inotify_, env_->sessions_dir().c_str(), IN_CLOSE_WRITE | IN_DELETE);
  if (sessions_watch_ < 0) return fail(errno_error("inotify " + env_->sessions_dir(), errno));
  poll_ = new uv_poll_t;
  if (const int rc = uv_poll_init(loop_.raw(), poll_, inotify_)) {
    delete std::exchange(poll_, nullptr);
    return fail(Code::io_error, std::string("inotify: ") + uv_strerror(rc));
  }
  poll_->data = this;
  uv_poll_start(poll_, UV_READABLE, [](uv_poll_t* handle, int, int) {
    if (handle->data) static_cast<FileSession*>(handle->data)->hear();
  });
  return ok();
}

void FileSession::stop_listening() {
  if (poll_) {
    poll_->data = nullptr;
    uv_close(reinterpret_cast<uv_handle_t*>(poll_), [](uv_handle_t* h) { delete reinterpret_cast<uv_poll_t*>(h); });
  }
  if (inotify_ >= 0) ::close(inotify_);
}

void FileSession::hear() {
  alignas(inotify_event) std::array<char, 4096> buffer;
  bool death = false;
  for (ssize_t n; (n = ::read(inotify_, buffer.data(), buffer.size())) > 0;) {
    for (ssize_t at = 0; at < n;) {
      const auto* event = reinterpret_cast<const inotify_event*>(buffer.data() + at);
      death |= event->wd == sessions_watch_ || (event->mask & IN_Q_OVERFLOW) != 0;
      at += static_cast<ssize_t>(sizeof(inotify_event) + event->len);
    }
  }
  check_watches();
  if (death) look_for_dead();
}

bool FileSession::has_fired(const Reader& reader, const WatchEntry& entry) const {
  const auto now = reader.exists(entry.path);
  if (!now) return now.error().code == Code::not_found && entry.stat.has_value();
  if (!entry.stat || now->czxid != entry.stat->czxid) return true;
  return entry.what == Seen::node ? now->mzxid != entry.stat->mzxid : now->cversion != entry.stat->cversion;
}

void FileSession::check_watches() {
  auto txn = snapshot();
  if (!txn) return;
  const Reader reader(*env_, txn->raw());
  const auto zxid = reader.zxid();
  if (zxid == seen_zxid_) return;
  seen_zxid_ = zxid;
  const auto fired =
      std::stable_partition(watches_.begin(), watches_.end(), [&](const auto& e) { return !has_fired(reader, e); });
  std::vector<WatchEntry> firing(std::make_move_iterator(fired), std::make_move_iterator(watches_.end()));
  watches_.erase(fired, watches_.end());
  for (auto& entry : firing) deliver(std::move(entry.fire));
}

// --- Requests ----------------------------------------------------------------------------------

Result<ReadTxn> FileSession::snapshot() {
  auto txn = ReadTxn::begin(env_);
  if (!txn) log(Level::error, "coord.read_failed", {{"dir", env_->dir()}, {"error", txn.error().text}});
  return txn;
}

// Callbacks come from the loop, and find nothing once the session is gone.
void FileSession::deliver(std::function<void()> fn) {
  loop_.defer([port = port_, fn = std::move(fn)] {
    if (port->session) fn();
  });
}

void FileSession::emit(Event event) {
  deliver([this, event] {
    if (handler_) handler_(event);
  });
}

template <class T>
void FileSession::answer(Done<T> done, Result<T> result) {
  deliver([done = std::move(done), result = std::move(result)]() mutable { done(std::move(result)); });
}

void FileSession::enqueue(Request request) {
  request.number = next_number_++;
  request.deadline = loop_.now() + operation_timeout_;
  waiting_.push_back(std::move(request));
  pump();
  arm_deadline();
}

void FileSession::pump() {
  while (connected_ && !waiting_.empty()) {
    if (!waiting_.front().change && !submitted_.empty()) return;  // a read sees the changes before it
    auto request = std::move(waiting_.front());
    waiting_.pop_front();
    if (request.change)
      submit(std::move(request));
    else
      request.look();
  }
}

size_t FileSession::watched_bytes() const {
  size_t bytes = 0;
  for (const auto& entry : watches_) bytes += entry.path.size();
  return bytes;
}

template <class T>
void FileSession::read(std::string path, Seen what, Watch watch, std::function<Result<T>(const Reader&)> look,
                       Done<T> done) {
  auto valid = validate_path(path);
  if (valid && watch && watched_bytes() + path.size() > kWatchBytesMax)
    valid = fail(Code::invalid, "too many watches in one session");
  if (!valid) return answer<T>(std::move(done), fail(valid.error()));
  Request request;
  request.answer = [this, done](std::optional<Error> error) { answer<T>(done, fail(*error)); };
  request.look = [this, path, what, watch = std::move(watch), look = std::move(look), done]() mutable {
    auto txn = snapshot();
    if (!txn) return answer<T>(done, fail(Code::unavailable, txn.error().text));
    const Reader reader(*env_, txn->raw());
    auto result = look(reader);
    const bool missing = !result && result.error().code == Code::not_found;
    // Only exists() waits for what is not there, as ZooKeeper has it.
    if (watch && (result || (missing && std::is_same_v<T, Stat>))) {
      const auto stat = reader.exists(path);
      watches_.push_back({what, path, stat ? std::optional(*stat) : std::nullopt, std::move(watch)});
      if (reader.zxid() != seen_zxid_) deliver([this] { check_watches(); });  // others may have to fire first
    }
    answer<T>(std::move(done), std::move(result));
  };
  enqueue(std::move(request));
}

void FileSession::get(std::string path, Watch watch, Done<Node> done) {
  auto look = [path](const Reader& r) { return r.get(path); };
  read<Node>(std::move(path), Seen::node, std::move(watch), std::move(look), std::move(done));
}

void FileSession::exists(std::string path, Watch watch, Done<Stat> done) {
  auto look = [path](const Reader& r) { return r.exists(path); };
  read<Stat>(std::move(path), Seen::node, std::move(watch), std::move(look), std::move(done));
}

void FileSession::children(std::string path, Watch watch, Done<Children> done) {
  auto look = [path](const Reader& r) { return r.children(path); };
  read<Children>(std::move(path), Seen::children, std::move(watch), std::move(look), std::move(done));
}

// A read transaction always shows the last commit; only the order with our own changes is needed.
void FileSession::sync(std::string path, Done<Nothing> done) {
  read<Nothing>(
      std::move(path), Seen::node, nullptr, [](const Reader&) -> Result<Nothing> { return Nothing{}; },
      std::move(done));
}

template <class T>
void FileSession::change(Status valid, std::function<Result<T>(Editor&, uint64_t)> run, Done<T> done) {
  if (!valid) return answer<T>(std::move(done), fail(valid.error()));
  auto result = std::make_shared<Result<T>>(fail(Code::unavailable, "not run"));
  Request request;
  request.change = true;
  request.run = [result, run = std::move(run)](Editor& editor, uint64_t session) {
    // Swept while the request was on its way: as if it had never been sent.
    if (!editor.has_session(session))
      *result = fail(Code::unavailable, "session expired");
    else
      *result = run(editor, session);
  };
  request.answer = [this, result, done = std::move(done)](std::optional<Error> error) {
    answer<T>(done, error ? Result<T>(fail(*error)) : std::move(*result));
  };
  enqueue(std::move(request));
}

void FileSession::create(std::string path, std::string value, CreateMode mode, Done<std::string> done) {
  auto valid = validate_change(path, value);
  if (valid && path == "/") valid = fail(Code::exists, "/ exists");
  change<std::string>(
      std::move(valid),
      [path, value = std::move(value), mode](Editor& e, uint64_t s) { return e.create(path, value, mode, s); },
      std::move(done));
}

void FileSession::set(std::string path, std::string value, int32_t version, Done<Stat> done) {
  auto valid = validate_change(path, value);
  change<Stat>(
      std::move(valid),
      [path, value = std::move(value), version](Editor& e, uint64_t) { return e.set(path, value, version); },
      std::move(done));
}

void FileSession::remove(std::string path, int32_t version, Done<Nothing> done) {
  auto valid = validate_path(path);
  change<Nothing>(
      std::move(valid), [path, version](Editor& e, uint64_t) { return e.remove(path, version); }, std::move(done));
}

void FileSession::multi(std::vector<Op> ops, Done<std::vector<OpResult>> done) {
  auto valid = validate_multi(ops);
  change<std::vector<OpResult>>(
      std::move(valid), [ops = std::move(ops)](Editor& e, uint64_t s) { return e.multi(ops, s); }, std::move(done));
}

void FileSession::submit(Request request) {
  auto run = [run = request.run, session = file_->id()](Editor& editor) { run(editor, session); };
  auto done = [port = port_, number = request.number](std::optional<Error> failed) {
    const std::lock_guard lock(port->mutex);
    if (!port->loop) return;
    port->loop->post([port, number, failed] {
      if (port->session) port->session->finished(number, failed);
    });
  };
  request.job = std::make_shared<Writer::Job>(std::move(run), std::move(done));
  env_->writer().submit(request.job);
  submitted_.push_back(std::move(request));
}

void FileSession::finished(uint64_t number, std::optional<Error> failed) {
  const auto it = std::find_if(submitted_.begin(), submitted_.end(), [&](const auto& r) { return r.number == number; });
  if (it == submitted_.end()) return;  // its deadline was first
  const auto request = std::move(*it);
  submitted_.erase(it);
  request.answer(std::move(failed));
  pump();
  arm_deadline();
}

// --- Deadlines ---------------------------------------------------------------------------------

void FileSession::arm_deadline() {
  if (waiting_.empty() && submitted_.empty()) return deadline_timer_.stop();
  if (deadline_timer_.active()) return;  // deadlines only grow: a timer that runs is early enough
  const auto first = std::min(waiting_.empty() ? submitted_.front().deadline : waiting_.front().deadline,
                              submitted_.empty() ? waiting_.front().deadline : submitted_.front().deadline);
  deadline_timer_.start(std::max<Duration>(first - loop_.now(), 1ms));
}

void FileSession::check_deadlines() {
  const auto now = loop_.refresh_now();
  while (!submitted_.empty() && submitted_.front().deadline <= now) {
    const auto request = std::move(submitted_.front());
    submitted_.pop_front();
    // Withdrawn, it never happens; otherwise it is in the commit now, and nobody can say (S27).
    if (request.job->withdraw())
      request.answer(Error(Code::unavailable, "the coordination directory's writer lock is taken"));
    else
      request.answer(Error(Code::outcome_unknown, "the coordination directory's disk did not answer in time"));
  }
  while (!waiting_.empty() && waiting_.front().deadline <= now) {
    const auto request = std::move(waiting_.front());
    waiting_.pop_front();
    request.answer(Error(Code::unavailable, "no session with the coordination directory"));
  }
  pump();
  arm_deadline();
}

}  // namespace cantle::coord::file
