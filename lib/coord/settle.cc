#include "lib/coord/settle.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "lib/base/check.h"
#include "lib/coord/path.h"

namespace cantle::coord {

using base::Code;
using base::Duration;
using base::Error;
using base::fail;
using base::Instant;
using base::Nothing;
using base::Result;
using namespace std::chrono_literals;

namespace {
constexpr Duration kPause = 10ms;  // while the session is away; doubled each time
constexpr Duration kPauseMax = 1s;
}  // namespace

Recognise recognise_value(std::string value) {
  return [value = std::move(value)](const Node& now, int32_t expected) {
    if (now.value == value) return Mine::yes;
    return now.stat.version == expected + 1 ? Mine::no : Mine::cannot_tell;  // one write since: it was another's
  };
}

struct Settler::Parts {
  Session& session;
  Timers& timers;
  Duration patience;
};

// What looking says: the answer, or (nullopt) that the change did not happen and is to be made again.
template <class T>
using Verdict = std::optional<Result<T>>;

template <class T>
struct Settler::Attempt : std::enable_shared_from_this<Attempt<T>> {
  std::weak_ptr<Parts> parts;
  Instant deadline;
  Duration pause = kPause;
  bool open = false;             // an earlier try may have been applied
  std::optional<Error> refusal;  // of the last try
  std::string where;             // the znode to sync
  std::function<void(Session&, Done<T>)> act;
  std::function<void(Session&, std::function<void(Result<Verdict<T>>)>)> look;
  Done<T> done;

  void finish(Result<T> result) { std::exchange(done, nullptr)(std::move(result)); }

  // Runs `next` later, unless the time is up.
  void later(const Error& why, void (Attempt::*next)()) {
    const auto p = parts.lock();
    if (!p) return;
    if (p->timers.now() >= deadline) return finish(fail(open ? Code::outcome_unknown : Code::unavailable, why.text));
    p->timers.after(pause, [self = this->shared_from_this(), next] {
      if (self->parts.lock()) ((*self).*next)();
    });
    pause = std::min(pause * 2, kPauseMax);
  }

  void attempt() {
    const auto p = parts.lock();
    if (!p) return;
    refusal.reset();
    act(p->session, [self = this->shared_from_this()](Result<T> result) {
      if (self->parts.lock()) self->acted(std::move(result));
    });
  }

  void acted(Result<T> result) {
    if (result) return finish(std::move(result));
    if (result.error().code == Code::unavailable)
      return open ? later(result.error(), &Attempt::investigate) : later(result.error(), &Attempt::attempt);
    if (result.error().code == Code::outcome_unknown) {
      open = true;
      return investigate();
    }
    // Refused. It may be our own earlier success that is in the way.
    if (!open) return finish(std::move(result));
    refusal = result.error();
    investigate();
  }

  void investigate() {
    const auto p = parts.lock();
    if (!p) return;
    if (!p->session.connected())
      return later(Error(Code::unavailable, "the coordination service is away"), &Attempt::investigate);
    // Another server of the ensemble may lag behind the one that took the change (S33).
    p->session.sync(where, [self = this->shared_from_this()](Result<Nothing> synced) {
      const auto alive = self->parts.lock();
      if (!alive) return;
      if (!synced) return self->later(synced.error(), &Attempt::investigate);
      self->look(alive->session, [self](Result<Verdict<T>> verdict) {
        if (self->parts.lock()) self->judged(std::move(verdict));
      });
    });
  }

  void judged(Result<Verdict<T>> verdict) {
    if (!verdict) return later(verdict.error(), &Attempt::investigate);
    if (*verdict) return finish(std::move(**verdict));
    if (refusal) return finish(fail(*refusal));  // not ours, and refused behind whatever was under way
    pause = kPause;
    attempt();
  }
};

Settler::Settler(Session& session, Timers& timers, Duration patience)
    : parts_(std::make_shared<Parts>(Parts{session, timers, patience})) {}
Settler::~Settler() = default;

template <class T>
void Settler::start(std::shared_ptr<Attempt<T>> attempt) {
  attempt->parts = parts_;
  attempt->deadline = parts_->timers.now() + parts_->patience;
  attempt->attempt();
}

namespace {

Error gone(const std::string& path) {
  return {Code::outcome_unknown, path + " is gone: nobody can say whether the change was made before"};
}

// The judgement on a set at `version`, after its znode was read again.
Verdict<Stat> judge_set(const std::string& path, const Result<Node>& node, int32_t version, const Recognise& mine) {
  if (!node) return Result<Stat>(fail(gone(path)));
  if (node->stat.version == version) return std::nullopt;
  switch (mine(*node, version)) {
    case Mine::yes: return Result<Stat>(node->stat);
    case Mine::no: return Result<Stat>(fail(Code::conflict, path + ": another version"));
    case Mine::cannot_tell: break;
  }
  return Result<Stat>(fail(Code::outcome_unknown, path + " was changed by others since"));
}

Verdict<std::string> judge_create(const std::string& path, const Result<Node>& node, const std::string& value,
                                  bool ephemeral, uint64_t session) {
  if (!node) return std::nullopt;
  const bool ours = node->value == value && (!ephemeral || node->stat.ephemeral_owner == session);
  if (ours) return Result<std::string>(path);
  return Result<std::string>(fail(Code::exists, path + " exists"));
}

bool was_read(const Result<Node>& node) { return node || node.error().code == Code::not_found; }

}  // namespace

void Settler::set(std::string path, std::string value, int32_t version, Recognise mine, Done<Stat> done) {
  auto attempt = std::make_shared<Attempt<Stat>>();
  attempt->where = path;
  attempt->done = std::move(done);
  attempt->act = [path, value, version](Session& s, Done<Stat> then) {
    if (version == kAnyVersion) return then(fail(Code::invalid, path + ": a set at any version cannot be settled"));
    s.set(path, value, version, std::move(then));
  };
  attempt->look = [path, version, mine = std::move(mine)](Session& s, auto judged) {
    s.get(path, nullptr, [path, version, mine, judged](Result<Node> node) {
      if (!was_read(node)) return judged(fail(node.error()));
      judged(judge_set(path, node, version, mine));
    });
  };
  start(std::move(attempt));
}

void Settler::create(std::string path, std::string value, CreateMode mode, Done<std::string> done) {
  CHECK(mode == CreateMode::persistent || mode == CreateMode::ephemeral);
  auto attempt = std::make_shared<Attempt<std::string>>();
  attempt->where = path;
  attempt->done = std::move(done);
  attempt->act = [path, value, mode](Session& s, Done<std::string> then) {
    s.create(path, value, mode, std::move(then));
  };
  attempt->look = [path, value, ephemeral = mode == CreateMode::ephemeral](Session& s, auto judged) {
    s.get(path, nullptr, [path, value, ephemeral, &s, judged](Result<Node> node) {
      if (!was_read(node)) return judged(fail(node.error()));
      judged(judge_create(path, node, value, ephemeral, s.session_id()));
    });
  };
  start(std::move(attempt));
}

void Settler::remove(std::string path, int32_t version, Done<Nothing> done) {
  auto attempt = std::make_shared<Attempt<Nothing>>();
  attempt->where = path;
  attempt->done = std::move(done);
  attempt->act = [path, version](Session& s, Done<Nothing> then) { s.remove(path, version, std::move(then)); };
  attempt->look = [path, version](Session& s, auto judged) {
    s.exists(path, nullptr, [path, version, judged](Result<Stat> stat) {
      if (!stat && stat.error().code != Code::not_found) return judged(fail(stat.error()));
      if (!stat) return judged(Verdict<Nothing>(Result<Nothing>(Nothing{})));
      if (version == kAnyVersion || stat->version == version) return judged(Verdict<Nothing>());
      judged(Verdict<Nothing>(Result<Nothing>(fail(Code::conflict, path + ": another version"))));
    });
  };
  start(std::move(attempt));
}

namespace {

std::vector<OpResult> results_of(const std::vector<Op>& ops, size_t witness, const Stat& stat) {
  std::vector<OpResult> results(ops.size());
  for (size_t i = 0; i < ops.size(); i++) {
    const bool plain = ops[i].mode == CreateMode::persistent || ops[i].mode == CreateMode::ephemeral;
    if (ops[i].kind == Op::Kind::create && plain) results[i].path = ops[i].path;
  }
  results[witness].stat = stat;
  return results;
}

using MultiVerdict = Verdict<std::vector<OpResult>>;

MultiVerdict judge_multi(const std::vector<Op>& ops, size_t witness, const Result<Node>& node, const Recognise& mine,
                         uint64_t session) {
  const auto& op = ops[witness];
  std::optional<Error> refused;
  if (op.kind == Op::Kind::set) {
    const auto verdict = judge_set(op.path, node, op.version, mine);
    if (!verdict) return std::nullopt;
    if (!*verdict) refused = verdict->error();
  } else {
    const auto verdict = judge_create(op.path, node, op.value, op.mode == CreateMode::ephemeral, session);
    if (!verdict) return std::nullopt;
    if (!*verdict) refused = verdict->error(), refused->detail = std::to_string(witness);
  }
  if (refused) return Result<std::vector<OpResult>>(fail(*refused));
  return Result<std::vector<OpResult>>(results_of(ops, witness, node->stat));
}

}  // namespace

void Settler::multi(std::vector<Op> ops, size_t witness, Recognise mine, Done<std::vector<OpResult>> done) {
  CHECK(witness < ops.size());
  CHECK(ops[witness].kind == Op::Kind::create ||
        (ops[witness].kind == Op::Kind::set && ops[witness].version != kAnyVersion));
  auto attempt = std::make_shared<Attempt<std::vector<OpResult>>>();
  attempt->where = ops[witness].path;
  attempt->done = std::move(done);
  attempt->act = [ops](Session& s, Done<std::vector<OpResult>> then) { s.multi(ops, std::move(then)); };
  attempt->look = [ops, witness, mine = std::move(mine)](Session& s, auto judged) {
    s.get(ops[witness].path, nullptr, [ops, witness, mine, &s, judged](Result<Node> node) {
      if (!was_read(node)) return judged(fail(node.error()));
      judged(judge_multi(ops, witness, node, mine, s.session_id()));
    });
  };
  start(std::move(attempt));
}

namespace {

// Looks at the children one after the other, youngest first.
struct Search : std::enable_shared_from_this<Search> {
  Session& session;
  std::string parent, value;
  std::vector<std::string> names;
  std::function<void(Result<Verdict<std::string>>)> judged;

  Search(Session& s, std::string p, std::string v) : session(s), parent(std::move(p)), value(std::move(v)) {}
  void next() {
    if (names.empty()) return judged(Verdict<std::string>());
    auto path = join_path(parent, names.back());
    names.pop_back();
    session.get(path, nullptr, [self = shared_from_this(), path](Result<Node> node) {
      if (!was_read(node)) return self->judged(fail(node.error()));
      if (node && node->value == self->value) return self->judged(Verdict<std::string>(Result<std::string>(path)));
      self->next();
    });
  }
};

}  // namespace

void Settler::append(std::string prefix, std::string value, Done<std::string> done) {
  auto attempt = std::make_shared<Attempt<std::string>>();
  attempt->where = std::string(parent_of(prefix));
  attempt->done = std::move(done);
  attempt->act = [prefix, value](Session& s, Done<std::string> then) {
    s.create(prefix, value, CreateMode::persistent_sequential, std::move(then));
  };
  attempt->look = [parent = attempt->where, value](Session& s, auto judged) {
    auto search = std::make_shared<Search>(s, parent, value);
    search->judged = judged;
    s.children(parent, nullptr, [search](Result<Children> list) {
      if (!list) return search->judged(fail(list.error()));
      search->names = std::move(list->names);
      search->next();
    });
  };
  start(std::move(attempt));
}

}  // namespace cantle::coord
