// MdClient::change: has a change made once, whatever happens on the way.
#include <algorithm>

#include "lib/client/md_client_core.h"
#include "lib/coord/layout.h"

namespace cantle::client {
namespace {

using base::Code;

// The same change id goes to one metadata server after the other. What an earlier one may still be at makes a refusal
// of a later one uncertain, until that server says that it is not.
struct Attempt : std::enable_shared_from_this<Attempt> {
  std::weak_ptr<MdClient::Core> core;
  model::MdChange request;
  std::string params;
  bool creates = false;
  bool known = true;  // in the first round
  base::Instant deadline;
  MdClient::Done<model::MdChangeReply> done;
  std::vector<model::ServerId> list;
  size_t at = 0;
  MdBackoff backoff;
  std::set<model::ServerId> unsure;  // asked, and no answer came
  base::Error last{Code::unavailable, "nobody answered"};

  void begin() {
    const auto c = core.lock();
    if (!c) return;
    auto got = [self = shared_from_this()](base::Result<std::vector<model::ServerId>> members) {
      if (!self->core.lock()) return;
      if (!members) {
        if (!worth_asking_another(members.error().code)) return self->refused(std::move(members).error());
        self->last = std::move(members).error();
        return self->wait();
      }
      self->list = std::move(*members);
      self->at = 0;
      self->next();
    };
    if (creates) return any_mdserver(*c, std::move(got));
    c->members(request.table, std::exchange(known, false), deadline, std::move(got));
  }

  // A table that is to be made has no list yet.
  void any_mdserver(MdClient::Core& c, MdClient::Done<std::vector<model::ServerId>> got) {
    c.servers.refresh([self = shared_from_this(), got = std::move(got)] {
      const auto again = self->core.lock();
      if (!again) return;
      std::vector<model::ServerId> found = self->request.metadata_servers;
      if (found.empty())
        for (const auto& entry : again->servers.all())
          if (entry.live && entry.active.role == coord::Role::mdserver) found.push_back(entry.id);
      if (found.empty()) return got(base::fail(Code::unavailable, "no metadata server is registered"));
      got(std::move(found));
    });
  }

  void next() {
    const auto c = core.lock();
    if (!c) return;
    if (at >= list.size()) return wait();
    const auto left = deadline - c->now();
    if (left <= base::Duration::zero()) return out_of_time();
    // One that hangs leaves the others their share of the time; it may be at it yet.
    const auto share = at + 1 < list.size()
                           ? std::min<base::Duration>(left / static_cast<int64_t>(list.size() - at), kMdAttempt)
                           : left + std::chrono::seconds(1);
    const auto to = list[at++];
    // The server must not outlive the client's patience by much: what it answers later nobody hears.
    request.deadline_ms = static_cast<uint32_t>(std::max<int64_t>(1, base::to_ms(left)));
    c->call(to, "md.change", wire::encode(request), share,
            [self = shared_from_this(), to](base::Result<std::string_view> bytes) {
              const auto again = self->core.lock();
              if (!again) return;
              self->answered(*again, to, std::move(bytes));
            });
  }

  void answered(MdClient::Core& c, const model::ServerId& to, base::Result<std::string_view> bytes) {
    if (bytes) {
      auto reply = wire::decode<model::MdChangeReply>(*bytes);
      if (!reply) return refused(std::move(reply).error());
      c.answered[request.table] = to;
      return done(std::move(*reply));
    }
    last = std::move(bytes).error().wrap(to.name);
    if (last.code == Code::outcome_unknown)
      unsure.insert(to);
    else
      unsure.erase(to);
    // Sent again with the same id, to whomever: it is applied once (S28).
    if (worth_asking_another(last.code)) return next();
    refused(last);
  }

  // A definite no is definite only when nobody is at it any more.
  void refused(base::Error error) {
    const auto c = core.lock();
    if (!c) return;
    if (unsure.empty()) return done(base::fail(std::move(error)));
    if (c->now() >= deadline) return out_of_time();
    const auto who = *unsure.begin();
    const model::MdOutcome question{request.table, request.change, request.since, true};
    c->call_for<model::MdOutcomeReply>(
        who, "md.outcome", wire::encode(question), kMdAttempt,
        [self = shared_from_this(), who, error](base::Result<model::MdOutcomeReply> reply) {
          const auto again = self->core.lock();
          if (!again) return;
          self->settled(*again, who, error, std::move(reply));
        });
  }

  void settled(MdClient::Core& c, const model::ServerId& who, const base::Error& error,
               base::Result<model::MdOutcomeReply> reply) {
    if (reply && reply->outcome == model::ChangeOutcome::committed)
      return done(model::MdChangeReply{{}, {}, reply->txnseq, true});
    if (reply && reply->outcome == model::ChangeOutcome::absent) {
      unsure.erase(who);
      return refused(error);
    }
    const auto pause = backoff.next(c.random);
    if (c.now() + pause >= deadline) return out_of_time();
    c.after(pause, [self = shared_from_this(), error] { self->refused(error); });
  }

  void out_of_time() {
    if (unsure.empty()) return done(base::fail(last));
    base::Error error(Code::outcome_unknown,
                      "change " + to_string(request.change) + " may have been made: " + last.text);
    error.detail = to_string(request.change);
    done(base::fail(std::move(error)));
  }

  void wait() {
    const auto c = core.lock();
    if (!c) return;
    const auto pause = backoff.next(c->random);
    if (c->now() + pause >= deadline) return out_of_time();
    c->after(pause, [self = shared_from_this()] { self->begin(); });
  }
};

}  // namespace

void MdClient::change(ChangeSpec spec, base::Duration timeout, Done<model::MdChangeReply> done) {
  auto attempt = std::make_shared<Attempt>();
  attempt->core = core_;
  auto& r = attempt->request;
  r.table = spec.table;
  r.base = spec.base;
  r.change = spec.change.none() ? model::ChangeId::draw(core_->random) : spec.change;
  if (const auto map = map_in_hand(spec.table)) r.since = map->txnseq;
  r.ops = wire::encode_operations(spec.operations);
  r.metadata_servers = std::move(spec.metadata_servers);
  r.gather = spec.gather;
  attempt->creates =
      !spec.operations.empty() && std::holds_alternative<model::ops::CreateTable>(spec.operations.front());
  attempt->deadline = core_->now() + timeout;
  attempt->done = std::move(done);
  attempt->begin();
}

}  // namespace cantle::client
