// Metadata servers that join and leave a table: performs what proto::MetadataMember decides.
#include <algorithm>

#include "lib/meta/table_agent.h"

namespace cantle::meta {

using namespace proto::member;

namespace {
constexpr base::Duration kMemberTime = std::chrono::seconds(10);
constexpr base::Duration kLoadWithin = std::chrono::seconds(3);
constexpr size_t kMembersAtOnce = 8;
}  // namespace

void TableAgent::join(Done<model::MdMembersReply> done) { start_member(Kind::join, host_.self(), std::move(done)); }
void TableAgent::leave(const model::ServerId& server, Done<model::MdMembersReply> done) {
  start_member(Kind::leave, server, std::move(done));
}

void TableAgent::start_member(Kind kind, const model::ServerId& server, Done<model::MdMembersReply> done) {
  if (members_.size() >= kMembersAtOnce)
    return done(base::fail(base::Code::overloaded, "others join or leave just now"));
  auto member = std::make_shared<Member>();
  member->request = {kind, server, now() + kMemberTime};
  member->done = std::move(done);
  member->machine = std::make_unique<proto::MetadataMember>(member->request);
  members_.push_back(member);
  feed_member(member, Asked{now()});
}

void TableAgent::feed_member(const std::shared_ptr<Member>& member, Input input) {
  act([this, member, input = std::move(input)] {
    for (const auto& e : member->machine->step(input)) std::visit([&](const auto& x) { perform(member, x); }, e);
  });
}

void TableAgent::perform(const std::shared_ptr<Member>& member, const Read&) {
  reader_.read([this, member](const proto::ConfigAnswer& answer) {
    if (answer && *answer && live_->machine().regressed())
      return feed_member(member, ConfigRead{now(), base::fail(base::Code::regressed, live_->machine().alarm())});
    feed_member(member, ConfigRead{now(), answer});
  });
}

void TableAgent::perform(const std::shared_ptr<Member>& member, const Load& e) {
  if (live_ == nullptr)
    return feed_member(member, Loaded{now(), base::fail(base::Code::unavailable, "TableConfig is gone")});
  live_->load(e.txnid, kLoadWithin, [this, alive = weak(), member](base::Result<wire::MetadataFile> file) {
    if (!alive.lock()) return;
    if (!file) return feed_member(member, Loaded{now(), base::fail(std::move(file).error())});
    feed_member(member, Loaded{now(), file->map});
  });
}

// The current file, to a server that shall have it: without operations it fetches what it lacks from here.
void TableAgent::perform(const std::shared_ptr<Member>& member, const Store& e) {
  const auto* file = current();
  if (file == nullptr || file->map->txnid != e.txnid)
    return feed_member(
        member, Stored{now(), e.at, e.txnid, base::fail(base::Code::conflict, "another file is current by now")});
  model::MdStore request;
  request.table = name_;
  request.table_uuid = file->map->table;
  request.base_txnseq = {file->map->txnseq.value - 1};
  request.txnid = e.txnid;
  request.hash = file->hash();
  request.proposer = host_.self();
  request.incarnation = host_.incarnation();
  store_at(e.at, request, [this, alive = weak(), member, at = e.at, txnid = e.txnid](base::Status status) {
    if (alive.lock()) feed_member(member, Stored{now(), at, txnid, std::move(status)});
  });
}

void TableAgent::perform(const std::shared_ptr<Member>& member, const Swap& e) {
  auto to = e.to;
  to.writer = writer_token();
  host_.session().set(host_.layout().config(distribution_), to_text(to), e.version,
                      [this, alive = weak(), asked = now(), member, to](base::Result<coord::Stat> done) {
                        if (!alive.lock()) return;
                        auto result = proto::SwapResult::conflict;
                        if (done) {
                          result = proto::SwapResult::done;
                          swapped(to, done->version, asked);
                        } else if (done.error().code == base::Code::outcome_unknown) {
                          result = proto::SwapResult::unknown;
                        } else if (done.error().code == base::Code::unavailable) {
                          result = proto::SwapResult::unsent;
                        }
                        feed_member(member, Swapped{now(), result});
                      });
}

void TableAgent::perform(const std::shared_ptr<Member>& member, const Reply& e) {
  std::erase(members_, member);
  if (!e.outcome) return member->done(base::fail(e.outcome.error()));
  member->done(model::MdMembersReply{e.outcome->servers, e.outcome->txnseq});
}

}  // namespace cantle::meta
