#include "cmd/partd/service.h"

#include <sys/utsname.h>

#include "lib/base/check.h"
#include "lib/base/log.h"
#include "lib/base/testing.h"
#include "lib/daemon/sockets.h"
#include "lib/store/live_page.h"

namespace cantle::partd {

using base::Code;
using base::Level;

namespace {

constexpr std::string_view kRole = "partd";
constexpr base::Duration kSplitChangeTimeout = std::chrono::seconds(2);

std::string host_name() {
  utsname name{};
  return ::uname(&name) == 0 ? name.nodename : "unknown";
}

rpc::Identity identity_of(const Config& config) {
  rpc::Identity identity;
  identity.role = kRole;
  identity.id = config.own.id;
  identity.token = config.token;
  return identity;
}

}  // namespace

Service::Service(io::Loop& loop, Config config)
    : loop_(loop),
      config_(std::move(config)),
      self_{config_.own.id},
      began_(loop.now()),
      disk_(config_.own.data_dir),
      executor_([&loop](store::Executor::Fn fn) { loop.post(std::move(fn)); },
                [&loop](store::Executor::Fn fn) { loop.defer(std::move(fn)); }, static_cast<int>(config_.read_threads)),
      layout_(config_.cluster),
      timers_(loop),
      server_(loop, identity_of(config_)),
      tick_timer_(loop, [this] { tick(); }),
      room_timer_(loop, [this] { append_waiting(); }) {}

Service::~Service() { *alive_ = false; }

// --- opening: everything that blocks ----------------------------------------------------------------------

base::Status Service::open() {
  auto known = store::DataDir::read(disk_);
  if (!known && known.error().code != Code::not_found) return base::fail(std::move(known).error());
  // At the first start the cluster's uuid is not known yet: the coordination service tells it.
  if (known) TRY(open_dir(known->cluster));
  coord::Options options;
  options.url = config_.coord;
  options.session_timeout = std::chrono::milliseconds(config_.session_ms);
  options.must_exist = true;
  auto session = coord::open(loop_, options);
  if (!session && session.error().code == Code::not_found) session.error().code = Code::identity;
  TRY_ASSIGN(session_, std::move(session));
  return base::ok();
}

store::EngineConfig Service::engine_config() const {
  store::EngineConfig engine;
  engine.overlay_bytes = uint64_t{config_.overlay_mib} << 20;
  engine.retention_time = std::chrono::hours(config_.retention_hours);
  engine.retention_bytes = uint64_t{config_.retention_mib} << 20;
  return engine;
}

// A directory that has been enrolled is opened as a whole at once; at the first start the incarnation is known, and
// the store opened, only then.
base::Status Service::open_dir(const model::ClusterUuid& cluster) {
  cluster_ = cluster;
  TRY_ASSIGN(dir_, store::DataDir::open(disk_, {self_, cluster}));
  TRY_ASSIGN(state_, StateFile::load(disk_, random_));
  if (dir_->identity().number.value != 0) TRY(open_store());
  return base::ok();
}

base::Status Service::open_store() {
  const auto began = loop_.refresh_now();
  TRY_ASSIGN(page_, store::LivePage::create(disk_, dir_->identity().incarnation));
  const auto index_dir =
      config_.index_dir.empty() ? config_.own.data_dir + "/" + std::string(store::kIndexDir) : config_.index_dir;
  store::mark_suspect_on_sigbus(index_dir);
  indexes_ = std::make_unique<store::LmdbIndexFactory>(index_dir);
  TRY_ASSIGN(engine_,
             store::Engine::open({disk_, *indexes_, executor_, loop_, page_.get()}, engine_config(), dir_->identity()));
  const auto& report = engine_->report();
  base::log(Level::notice, "store-open",
            {{"incarnation", dir_->identity().incarnation.value},
             {"clean", report.clean ? "yes" : "no"},
             {"records", report.records},
             {"torn_bytes", report.torn_bytes},
             {"damaged", report.damaged.size()},
             {"left_bytes", report.left_bytes},
             {"ms", base::to_ms(loop_.refresh_now() - began)}});
  engine_->on_fatal([this](const base::Error& error) { fail(base::Error(error).wrap("the store failed")); });
  engine_->on_read_only([this](bool read_only, const std::string& reason) {
    base::log(read_only ? Level::error : Level::notice, read_only ? "store-read-only" : "store-writable",
              {{"reason", reason}});
    store_read_only_ = read_only;
    if (machine_) input(push::StoreState{read_only ? reason : "", false});
    update_active();
  });
  return base::ok();
}

// --- starting -----------------------------------------------------------------------------------------------

void Service::start(std::function<void()> on_ready, std::function<void(base::Error)> on_fail) {
  on_ready_ = std::move(on_ready);
  on_fail_ = std::move(on_fail);
  add_handlers();
  session_->on_event([this](coord::Event event) { on_coord(event); });
  if (session_->connected()) on_coord(coord::Event::connected);
  tick_timer_.start(push::kTickIdle);
}

void Service::fail(base::Error error) {
  if (std::exchange(failed_, true)) return;
  base::log(Level::fatal, "partd", {{"error", to_string(error)}});
  if (on_fail_) on_fail_(std::move(error));
}

void Service::on_coord(coord::Event event) {
  if (failed_) return;
  if (registration_) registration_->on_event(event);
  if (quorum_) quorum_->coord_event(event);
  if (event != coord::Event::connected) return;
  if (!machine_) return check_cluster();
  read_live();
  read_tables();
}

void Service::check_cluster() {
  if (checking_cluster_ || enrollment_) return;
  checking_cluster_ = true;
  session_->get(layout_.format(), nullptr, [this](base::Result<coord::Node> node) {
    checking_cluster_ = false;
    if (!node && node.error().code == Code::not_found)
      return fail({Code::identity,
                   "there is no cluster '" + config_.cluster + "' at " + config_.coord + ": zkctl init makes one"});
    if (!node)
      return timers_.after(kRetryEvery, [this, alive = alive_] {
        if (*alive && session_->connected()) check_cluster();
      });
    auto format = coord::parse_format(node->value);
    if (!format) return fail({Code::identity, format.error().text});
    cluster_known(format->cluster);
  });
}

void Service::cluster_known(const model::ClusterUuid& cluster) {
  if (!dir_) {
    if (auto opened = open_dir(cluster); !opened) return fail(opened.error());
  } else if (cluster != cluster_) {
    return fail({Code::identity, "the data directory belongs to cluster " + to_string(cluster_) + ", and '" +
                                     config_.cluster + "' at " + config_.coord + " is " + to_string(cluster)});
  }
  auto identity = identity_of(config_);
  identity.cluster = cluster;
  server_.set_identity(identity);
  rpc::PeerOptions options;
  options.identity = identity;
  servers_ = std::make_unique<client::CoordServers>(loop_, *session_, layout_);
  md_ = std::make_unique<client::MdClient>(loop_, *session_, layout_, *servers_, identity);
  links_ = std::make_unique<Links>(loop_, *servers_, options, [this](const model::ServerId& server, bool up) {
    input(push::LinkChanged{server, up});
    if (quorum_) quorum_->link_changed(server, up);
  });
  if (!config_.pusher.empty())
    if (auto address = io::parse_address(config_.pusher))
      pusher_ = std::make_unique<rpc::Peer>(loop_, *address, options);
  // Before the arrival: a server that cannot be reached must not become a member. Until it is open, it answers
  // "starting".
  if (auto listening = listen(); !listening) return fail(listening.error());
  enroll();
}

void Service::enroll() {
  EnrollSpec spec;
  spec.server = self_;
  spec.instance = state_.instance;
  spec.rack = config_.rack;
  spec.host = host_name();
  spec.weight = config_.weight;
  spec.first_start = dir_->identity().number.value == 0;
  spec.may_take_name = [this](std::function<void(base::Status)> answer) { check_name(std::move(answer)); };
  enrollment_ =
      std::make_unique<Enrollment>(loop_, *session_, layout_, spec, [this](base::Result<Enrollment::Answer> answer) {
        if (!answer) return fail(answer.error());
        enrolled(*answer);
      });
  enrollment_->begin();
}

void Service::enrolled(const Enrollment::Answer& answer) {
  const auto& id = dir_->identity();
  if (id.number != answer.number) {
    if (id.number.value != 0)
      return fail({Code::identity, "this data directory was server number " + to_string(id.number) + ", nodes/info/" +
                                       self_.name + " says " + to_string(answer.number)});
    if (auto set = dir_->set_number(answer.number); !set) return fail(set.error());
    if (auto opened = open_store(); !opened) return fail(opened.error());
  }
  push::Self self;
  self.server = self_;
  self.number = answer.number;
  self.incarnation = id.incarnation;
  self.newest = engine_->highest_version();
  self.fresh_under_known_name = known_name_ = answer.known_name && dir_->first_start();
  self.seen = state_.seen;
  self.children = state_.children;
  const auto tenures = engine_->tenures();
  for (const auto& t : tenures) {
    if (t.mode != store::LogMode::push) continue;
    const bool aside = t.state == store::TenureState::aside;
    const auto end = aside ? std::nullopt : engine_->durable(t.id.partition);
    self.held.push_back({t.id.partition, t.id.assignment, t.region, t.table, t.interval, aside,
                         end ? end->lsn : model::Lsn{}, t.whole});
  }
  machine_ = std::make_unique<proto::PushServer>(std::move(self));
  make_quorum(tenures);
  const auto store = engine_->status();
  if (store.read_only) input(push::StoreState{store.read_only_reason, false});
  // A new directory under a known name may be an amnesiac: it shows itself only when its maps have said that it is not
  // (S6).
  if (!known_name_) register_active();
  read_live();
  read_tables();
}

void Service::make_quorum(const std::vector<store::Tenure>& tenures) {
  proto::quorum_tables::Self self;
  self.server = self_;
  self.fresh_under_known_name = known_name_;
  self.seen = state_.quorum_seen;
  for (const auto& t : tenures)
    if (t.mode == store::LogMode::quorum)
      self.held.push_back({t.id.partition, t.id.assignment, t.region, t.table, t.interval,
                           t.state == store::TenureState::aside,
                           engine_->log_end(t.id.partition).value_or(model::LogPoint{}).lsn.value == 0, t.whole});
  QuorumHooks hooks;
  hooks.fail = [this](const base::Error& error) { fail(error); };
  hooks.remember = [this](const std::map<model::TableUuid, model::TxnSeq>& seen) {
    state_.quorum_seen = seen;
    remember();
  };
  hooks.observed = [this](const std::string& table, model::TxnSeq txnseq) {
    tables_[table].observed_wanted = txnseq;
    publish_observed(table);
  };
  hooks.forward = [this](const model::ServerId& to, std::string_view method, std::string_view params,
                         model::TxnSeq txnseq, base::Duration timeout, rpc::Responder responder) {
    forward(to, method, params, txnseq, timeout, std::move(responder));
  };
  hooks.scan = [this](std::string_view params, rpc::Responder responder) { scan(params, std::move(responder), true); };
  hooks.get_on_loop = [this] { return get_on_loop(); };
  hooks.live = [this](const model::ServerId& server) {
    const auto* entry = servers_->find(server);
    return entry != nullptr && entry->live;
  };
  hooks.read_map = [this](const std::string& table, auto done) { read_map(table, std::move(done)); };
  hooks.change = [this](const std::string& table, model::Operation operation) {
    client::ChangeSpec spec;
    spec.table = table;
    spec.operations = {std::move(operation)};
    md_->change(std::move(spec), kSplitChangeTimeout, [this, table](base::Result<model::MdChangeReply> r) {
      if (!r) base::log(base::Level::info, "change", {{"table", table}, {"error", to_string(r.error())}});
      hint(table, r ? r->txnseq : model::TxnSeq{});
    });
  };
  quorum_ =
      std::make_unique<Quorum>(QuorumParts{loop_, *engine_, *session_, layout_, *links_, dir_->identity().incarnation},
                               std::move(self), std::move(hooks));
  quorum_->add_handlers(server_);
}

std::shared_ptr<const model::Metadata> Service::installed(std::string_view table) const {
  const auto map = machine_->installed(table), other = quorum_->tables().installed(table);
  if (map == nullptr || other == nullptr) return map != nullptr ? map : other;
  return map->dropped ? other : map;  // one name, dropped and made again as the other sort
}

std::set<model::ServerId> Service::partners() const {
  auto all = machine_->partners();
  const auto& quorum = quorum_->tables().partners();
  all.insert(quorum.begin(), quorum.end());
  return all;
}

base::Status Service::listen() {
  TRY_ASSIGN(listening_, daemon::listen_all(server_, config_.own, std::string(kRole), daemon::kPortPartd));
  return base::ok();
}

void Service::register_active() {
  if (registration_) return;
  registration_ =
      std::make_unique<coord::Registration>(*session_, timers_, random_, dir_->identity().incarnation, state_.instance);
  registration_->on_displaced([](const std::string& text) { base::log(Level::error, "displaced", {{"by", text}}); });
  registration_->keep(layout_.version(self_), coord::version_text({.software = CANTLE_VERSION}));
  update_active();
  registration_->start();
}

void Service::update_active() {
  if (!registration_ || !machine_) return;
  coord::Active active;
  active.readonly = active_readonly_ = store_read_only_ || draining_;
  active.role = coord::Role::partd;
  active.tcp = listening_.tcp;
  active.unix_socket = listening_.local;
  active.incarnation = dir_->identity().incarnation;
  active.instance = state_.instance;
  registration_->keep(layout_.active(self_), coord::active_text(active));
}

// --- time -------------------------------------------------------------------------------------------------------

void Service::tick() {
  const auto at = loop_.now();
  // Deadlines are kept to 10 ms while somebody waits; an idle server sleeps.
  tick_timer_.start(requests_.empty() ? push::kTickIdle : push::kTickBusy);
  if (engine_ && at >= store_tick_at_) {
    store_tick_at_ = at + kStoreTickEvery;
    engine_->tick();
    if (!kept_scans_.empty()) kept_scans_.expire(at, engine_->status().index.file_bytes);
  }
  if (!machine_ || failed_) return;
  input(push::Tick{});
  links_->want(partners());
  expire_parked();
  if (at >= positions_at_) {
    positions_at_ = at + kPositionsEvery;
    read_positions();
  }
  if (at >= reconcile_at_) {
    reconcile_at_ = at + kReconcileEvery;
    if (session_->connected()) {
      read_live();
      read_tables();
    }
  }
  maybe_ready();
}

// Serving: every table's map is here, every copy has caught up, and the cluster knows where this server is.
void Service::maybe_ready() {
  if (ready_ || !tables_known_) return;
  for (const auto& [name, t] : tables_)
    if (!t.had_map && !t.gone) return;
  if (!registration_) register_active();
  if (!machine_->caught_up() || !quorum_->tables().begun() || !registration_->registered()) return;
  ready_ = true;
  CRASH_POINT("partd.before_ready");
  base::log(Level::notice, "ready",
            {{"tables", tables_.size()}, {"copies", copies().size()}, {"ms", base::to_ms(loop_.now() - began_)}});
  if (on_ready_) on_ready_();
}

std::string Service::status_line() const {
  if (!engine_) return "waiting for the coordination service";
  if (!machine_) return "store open, waiting for the coordination service";
  const auto s = machine_->status();
  std::string line = ready_ ? "serving" : s.caught_up ? "starting" : "catching up";
  const auto copies = machine_->copies().size() + quorum_->tables().held();
  line += ", " + std::to_string(tables_.size()) + " tables, " + std::to_string(copies) + " copies";
  if (const auto leading = quorum_->leading(); leading > 0) line += ", leading " + std::to_string(leading);
  if (!s.read_only.empty()) line += ", read-only: " + s.read_only;
  if (!session_->connected()) line += ", coordination service away";
  return line;
}

bool Service::healthy() const { return !failed_; }

// --- ending -----------------------------------------------------------------------------------------------------

void Service::drain(std::function<void()> done) {
  draining_ = true;
  if (!machine_ || failed_) return done();
  input(push::DrainAsked{true});
  const auto until = loop_.now() + kDrainWrites;
  // Leaders hand over first, while this server is still one that may be asked.
  quorum_->hand_over(loop_.now() + kHandOverMost, [this, until, done = std::move(done)] {
    update_active();
    wait_for_writes(until, [this, done] {
      publish_systems();
      registration_ ? registration_->withdraw([] {}) : void();
      server_.drain(std::chrono::seconds(5), [this, done] {
        engine_->shutdown([done](base::Status status) {
          if (!status) base::log(Level::error, "shutdown", {{"error", to_string(status.error())}});
          done();
        });
      });
    });
  });
}

void Service::wait_for_writes(base::Instant deadline, std::function<void()> done) {
  if (requests_.empty() || loop_.now() >= deadline) return done();
  timers_.after(std::chrono::milliseconds(10), [this, alive = alive_, deadline, done = std::move(done)] {
    if (*alive) wait_for_writes(deadline, done);
  });
}

// --- the machine --------------------------------------------------------------------------------------------------

push::Now Service::now() { return {loop_.now(), loop_.wall_ms()}; }

void Service::input(const push::Input& in) {
  if (!machine_ || failed_) return;
  if (stepping_) {
    inputs_.push_back(in);
    return;
  }
  stepping_ = true;
  const push::Input* next = &in;
  push::Input queued;
  for (;;) {
    machine_->step(now(), *next, &effects_);
    // Effects may be performed one after the other: what they lead to is queued.
    for (size_t i = 0; i < effects_.size() && !failed_; i++) std::visit([this](auto& e) { perform(e); }, effects_[i]);
    effects_.clear();
    current_ = nullptr;
    if (inputs_.empty() || failed_) break;
    queued = std::move(inputs_.front());
    inputs_.pop_front();
    next = &queued;
  }
  stepping_ = false;
}

void Service::flush_soon() {
  if (std::exchange(flush_planned_, true)) return;
  loop_.defer([this] {
    flush_planned_ = false;
    input(push::Flush{});
  });
}

}  // namespace cantle::partd
