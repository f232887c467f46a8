#include "cmd/replpush/service.h"

#include <utility>

#include "lib/base/log.h"
#include "lib/wire/codec.h"
#include "lib/wire/metadata_codec.h"

namespace cantle::replpush {

using base::Code;
using base::Level;
using base::Status;

namespace {

constexpr base::Duration kTickEvery = std::chrono::milliseconds(50);
constexpr base::Duration kTickHurried = std::chrono::milliseconds(10);
constexpr base::Duration kViewEvery = std::chrono::seconds(1);
constexpr base::Duration kAttachEvery = std::chrono::milliseconds(200);
constexpr base::Duration kLookEvery = std::chrono::milliseconds(5);  // at most so often, however busy the journal
constexpr base::Duration kLiveEvery = std::chrono::milliseconds(20);
constexpr base::Duration kViewTimeout = std::chrono::seconds(5);
constexpr int kViewFailuresMax = 3;  // timeouts in a row, then the partd counts as gone

rpc::Identity identity_of(const Config& config) {
  rpc::Identity identity;
  identity.token = config.token;
  identity.role = "replpush";
  identity.id = config.id.name;
  return identity;
}

}  // namespace

Service::Service(io::Loop& loop, Config config)
    : loop_(loop),
      config_(std::move(config)),
      mover_(random_),
      source_(loop, config_.data_dir, config_.index_dir),
      partd_(loop, {config_.partd, config_.coord, config_.cluster, config_.id, identity_of(config_)},
             [this] { refresh_view(); }),
      targets_(loop, identity_of(config_)),
      tick_(loop, [this] { tick(); }),
      view_timer_(loop, [this] { refresh_view(); }),
      attach_timer_(loop, [this] { attach_soon(); }),
      look_timer_(loop, [this] { look_at_logs(); }),
      started_(loop.now()) {}

Service::~Service() { *here_ = false; }

void Service::start(std::function<void()> ready, std::function<void(base::Error)> failed) {
  ready_ = std::move(ready);
  failed_ = std::move(failed);
  source_.on_fatal([this](base::Error e) { failed_(std::move(e)); });
  attach_soon();
}

void Service::stop(std::function<void()> done) {
  tick_.stop();
  view_timer_.stop();
  attach_timer_.stop();
  look_timer_.stop();
  if (!opened_) return loop_.defer(std::move(done));
  feed(mv::ViewLost{loop_.now(), "replpush stops"});
  source_.flush(std::move(done));
}

// --- The directory -----------------------------------------------------------------------------------

void Service::attach_soon() {
  auto status = attach();
  if (!status) return failed_(std::move(status).error());
  if (!opened_) attach_timer_.start(kAttachEvery);
}

// Never before the partd's first start has made `id` and given out an incarnation.
Status Service::attach() {
  auto identity = source_.identity();
  if (!identity && identity.error().code == Code::not_found) return base::ok();
  if (!identity) return base::fail(std::move(identity).error());
  if (identity->incarnation.value == 0) return base::ok();
  if (!config_.id.name.empty() && config_.id != identity->server)
    return base::fail(Code::identity,
                      config_.data_dir + " belongs to " + identity->server.name + ", not to " + config_.id.name);
  identity_ = std::move(*identity);
  TRY(source_.open_positions());
  TRY_ASSIGN(const auto holds, source_.read_holds());
  std::set<std::string> held;
  for (size_t at = 0; at < holds.size();) {
    const size_t end = holds.find('\n', at);
    held.insert(holds.substr(at, end - at));
    at = end == std::string::npos ? holds.size() : end + 1;
  }
  mover_.set_holds(std::move(held));
  opened_ = true;
  waits_for_ = "the partition server to answer";
  source_.list_marks([this](std::vector<mv::MarkKey> keys) { feed(mv::MarksListed{loop_.now(), std::move(keys)}); });
  tick_.start(kTickEvery);
  view_timer_.start(base::Duration(1), kViewEvery);
  return base::ok();
}

// --- The view ----------------------------------------------------------------------------------------

void Service::refresh_view() {
  if (!opened_) return;
  if (asking_view_ || attaching_) {
    ask_view_again_ = true;
    return;
  }
  asking_view_ = true;
  model::MoverViewRequest request;
  for (const auto& [name, map] : maps_) request.have[name] = map->txnseq.value;
  partd_.call("mover.view", wire::encode(request), kViewTimeout,
              [this](base::Result<std::string_view> r) { view_answered(r); });
}

void Service::view_answered(base::Result<std::string_view> answer) {
  asking_view_ = false;
  if (answer) {
    view_failures_ = 0;
    auto taken = take_view(*answer);
    if (!taken && taken.error().code == Code::identity) return failed_(taken.error());
    if (!taken) lost(taken.error());
  } else if (answer.error().code != Code::outcome_unknown || ++view_failures_ >= kViewFailuresMax) {
    lost(answer.error());
  }
  if (std::exchange(ask_view_again_, false)) refresh_view();
}

void Service::lost(const base::Error& error) {
  waits_for_ = "the partition server: " + error.text;
  if (!attached_) return;
  base::log(Level::warn, "partd", {{"error", base::to_string(error)}});
  attached_ = false;
  source_.detach();
  feed(mv::ViewLost{loop_.now(), waits_for_});
}

Status Service::take_view(std::string_view bytes) {
  TRY_ASSIGN(auto reply, wire::decode<model::MoverView>(bytes));
  if (!config_.id.name.empty() && reply.self != config_.id)
    return base::fail(Code::identity, "it is " + reply.self.name + ", not " + config_.id.name);
  mv::View view;
  view.self = reply.self;
  view.number = reply.number;
  view.incarnation = reply.incarnation;
  view.held = std::move(reply.held);
  view.peers = std::move(reply.peers);
  for (auto& t : reply.tables) {
    auto known = maps_.find(t.name);
    if (t.map.empty()) {
      if (known == maps_.end() || known->second->table != t.uuid || known->second->txnseq != t.txnseq)
        return maps_.erase(t.name), base::fail(Code::unavailable, "it did not send the map of " + t.name);
      view.maps[t.name] = known->second;
      continue;
    }
    auto map = wire::decode_whole_map(t.map);
    if (!map) return base::fail(std::move(map).error().wrap("the map of " + t.name));
    view.maps[t.name] = map->map;
  }
  cluster_ = reply.cluster;
  maps_ = view.maps;
  targets_.set(view.peers, cluster_);
  if (attached_ && attached_to_ == view.incarnation) return show(std::move(view)), base::ok();
  // A life of the partd that we have not read yet.
  attached_ = false;
  attaching_ = true;
  feed(mv::ViewLost{loop_.now(), "the partition server has started again"});
  auto shared = std::make_shared<mv::View>(std::move(view));
  source_.attach(
      shared->incarnation, [this] { moved(); },
      [this, shared](Status status) {
        attaching_ = false;
        if (!status) {
          auto why = "the partition server's journal: " + status.error().text;
          if (why != waits_for_) base::log(Level::warn, "not-attached", {{"waits_for", why}});
          waits_for_ = std::move(why);
          view_timer_.start(kAttachEvery, kViewEvery);
          return;
        }
        attached_ = true;
        attached_to_ = shared->incarnation;
        base::log(Level::notice, "attached",
                  {{"partd", shared->self.name}, {"incarnation", to_string(shared->incarnation)}});
        show(std::move(*shared));
        if (std::exchange(ask_view_again_, false)) refresh_view();
      });
  return base::ok();
}

void Service::show(mv::View view) {
  waits_for_.clear();
  view_ = view;
  feed(mv::ViewSeen{loop_.now(), std::move(view)});
  show_live();
  moved();
  if (ready_) std::exchange(ready_, nullptr)();
}

// --- The journal -------------------------------------------------------------------------------------

void Service::moved() {
  if (!attached_) return;
  if (looking_) {
    look_again_ = true;
    return;
  }
  const auto due = looked_at_ + kLookEvery;
  const auto now = loop_.now();
  if (now >= due) return look_at_logs();
  if (!look_timer_.active()) look_timer_.start(due - now);
}

void Service::look_at_logs() {
  if (!attached_ || looking_) return;
  looking_ = true;
  looked_at_ = loop_.now();
  // What was asked to be measured until now is: the lane reads the durable end after this moment.
  const uint64_t measure = measure_;
  source_.logs(view_.held, [this, measure](Source::Logs logs) {
    looking_ = false;
    if (!attached_) return;
    if (!logs.status) {
      base::log(Level::warn, "journal", {{"error", base::to_string(logs.status.error())}});
      if (logs.status.error().code != Code::unavailable) attached_to_ = {};  // opened anew with the next view
      return refresh_view();
    }
    show_live();
    feed(mv::LogsSeen{loop_.now(), measure, std::move(logs.logs)});
    if (std::exchange(look_again_, false) || measure != measure_) moved();
  });
}

void Service::show_live() {
  const auto now = loop_.now();
  if (now - live_at_ < kLiveEvery) return;
  live_at_ = now;
  for (const auto& [id, point] : source_.live(mover_.stream_ids())) feed(mv::LiveSeen{now, id, point});
}

void Service::tick() {
  show_live();
  feed(mv::Tick{loop_.now()});
  tick_.start(mover_.hurried(loop_.now()) ? kTickHurried : kTickEvery);
}

// --- What people see ---------------------------------------------------------------------------------

std::string Service::trouble() const {
  if (!waits_for_.empty()) return "waits for " + waits_for_;
  return mover_.paused() ? mover_.paused_why() : std::string();
}

std::string Service::status_line() const {
  if (const auto why = trouble(); !why.empty()) return why;
  const auto& c = mover_.counters();
  return (mover_.all_done() ? "all targets have everything" : "pushing") + std::string("; ") +
         std::to_string(c.records) + " records, " + std::to_string(c.bytes >> 20) + " MiB sent";
}

}  // namespace cantle::replpush
