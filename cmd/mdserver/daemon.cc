#include "cmd/mdserver/daemon.h"

#include <sys/stat.h>
#include <unistd.h>

#include "cmd/mdserver/methods.h"
#include "lib/base/log.h"
#include "lib/store/lmdb_index.h"

namespace cantle::mdserver {

using base::Code;
using base::Level;

namespace {

constexpr base::Duration kChoresEvery = std::chrono::milliseconds(500);
constexpr base::Duration kFormatRetry = std::chrono::milliseconds(500);
constexpr size_t kInstanceBytes = 16;

std::string host_name() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 ? std::string(name) : std::string();
}

}  // namespace

Daemon::Daemon(Config config)
    : config_(std::move(config)),
      layout_(config_.cluster),
      disk_(config_.own.data_dir),
      timers_(loop_),
      reserve_(disk_, "meta/reserve"),
      timer_(loop_, [this] { chores(); }) {}

// What uses the loop goes before it, what is used after its users.
Daemon::~Daemon() {
  *alive_ = false;
  timer_.stop();
  registration_.reset();
  server_.reset();
  service_.reset();
  world_.reset();
  session_.reset();
  files_.reset();
  executor_.reset();
  index_.reset();
  life_.reset();
}

base::Status Daemon::open_disk() {
  if (::mkdir(config_.own.data_dir.c_str(), 0750) != 0 && errno != EEXIST)
    return base::fail(base::errno_error("data directory " + config_.own.data_dir, errno));
  TRY(disk_.make_dir("meta"));
  TRY_ASSIGN(const bool has_id, disk_.exists("id"));
  TRY_ASSIGN(const bool has_files, disk_.exists("meta/data.mdb"));
  if (!has_id && has_files)
    return base::fail(Code::identity,
                      config_.own.data_dir +
                          ": there are METADATA files, but no `id` file: restore it; or give this server a new, "
                          "empty data directory and have it join again (zkctl md leave, then join)");
  return base::ok();
}

base::Status Daemon::open_identity(const model::ClusterUuid& cluster) {
  TRY_ASSIGN(dir_, store::DataDir::open(disk_, {model::ServerId{config_.own.id}, cluster}));
  cluster_ = cluster;
  auto instance = disk_.read_whole("meta/instance", 64);
  if (!instance && instance.error().code == Code::not_found) {
    std::string raw;
    for (size_t i = 0; i < kInstanceBytes; i += 8) base::put_u64_be(raw, random_.u64());
    instance = base::to_hex(raw);
    TRY(disk_.write_whole("meta/instance", *instance));
  }
  if (!instance) return base::fail(std::move(instance).error());
  instance_ = *instance;
  return base::ok();
}

base::Status Daemon::run() {
  TRY(open_disk());
  auto session = coord::open(
      loop_,
      {.url = config_.coord, .session_timeout = std::chrono::milliseconds(config_.session_ms), .must_exist = true});
  if (!session && session.error().code == Code::not_found) session.error().code = Code::identity;
  TRY_ASSIGN(session_, std::move(session));
  session_->on_event([this](coord::Event event) { on_event(event); });
  life_ = std::make_unique<daemon::Supervisor>(
      loop_, daemon::Life{.name = "mdserver " + config_.own.id,
                          .drain =
                              [this](std::function<void()> done) {
                                if (!server_) return done();
                                server_->drain(std::chrono::seconds(config_.own.drain_seconds), done);
                              },
                          .reload = nullptr,
                          .status = [this] { return status_line(); },
                          .healthy = nullptr});
  const auto known = store::DataDir::read(disk_);
  if (known) {
    // Later starts know their cluster, and go on though the coordination service is away.
    TRY(begin(known->cluster));
  } else if (known.error().code != Code::not_found) {
    return base::fail(known.error());
  }
  read_format();
  timer_.start(kChoresEvery, kChoresEvery);
  return life_->run();
}

// Retried until it is there.
void Daemon::read_format() {
  session_->get(layout_.format(), nullptr, [this, alive = std::weak_ptr<bool>(alive_)](base::Result<coord::Node> node) {
    if (!alive.lock()) return;
    if (!node && node.error().code == Code::not_found)
      return fail(base::Error(Code::identity, "there is no cluster " + config_.cluster + " at " + config_.coord +
                                                  ": zkctl init makes one"));
    if (!node) {
      timers_.after(kFormatRetry, [this, alive] {
        if (alive.lock()) read_format();
      });
      return;
    }
    auto format = coord::parse_format(node->value);
    if (!format) return fail(std::move(format).error());
    format_read(*format);
  });
}

void Daemon::format_read(const coord::Format& format) {
  if (!dir_) {
    if (auto begun = begin(format.cluster); !begun) return fail(std::move(begun).error());
  }
  if (format.cluster != cluster_)
    return fail(base::Error(Code::identity, "the data directory " + config_.own.data_dir + " belongs to cluster " +
                                                to_string(cluster_) + ", but " + config_.cluster + " at " +
                                                config_.coord + " is " + to_string(format.cluster)));
  format_checked_ = true;
  register_self();
}

base::Status Daemon::begin(const model::ClusterUuid& cluster) {
  TRY(open_identity(cluster));
  const auto& id = dir_->identity();
  executor_ =
      std::make_unique<store::ThreadExecutor>([this](store::Executor::Fn fn) { loop_.post(std::move(fn)); },
                                              [this](store::Executor::Fn fn) { loop_.defer(std::move(fn)); }, 1);
  TRY_ASSIGN(index_, store::open_lmdb(disk_.root() + "/meta", {.write = true}, {store::Db::records, store::Db::meta}));
  TRY_ASSIGN(files_, meta::FileStore::open(*index_, *executor_));
  files_->on_no_space([this] { return reserve_.release(); });

  rpc::Identity identity;
  identity.cluster = cluster;
  identity.token = config_.token;
  identity.role = "mdserver";
  identity.id = id.server.name;
  world_ =
      std::make_unique<World>(loop_, *session_, layout_, *files_, World::Self{id.server, id.incarnation, identity});
  service_ = std::make_unique<meta::Service>(*world_);
  server_ = std::make_unique<rpc::Server>(loop_, identity);
  serve_methods(*server_, *service_, [this] { return status(); });
  TRY_ASSIGN(listening_, daemon::listen_all(*server_, config_.own, "mdserver", daemon::kPortMdserver));
  base::log(Level::notice, "started",
            {{"id", id.server.name},
             {"incarnation", id.incarnation.value},
             {"tcp", listening_.tcp},
             {"socket", listening_.local},
             {"cluster", to_string(cluster)}});
  world_->node_watch().start();
  service_->start();
  return base::ok();
}

void Daemon::register_self() {
  coord::Active active;
  active.role = coord::Role::mdserver;
  active.tcp = listening_.tcp;
  active.unix_socket = listening_.local;
  active.incarnation = dir_->identity().incarnation;
  active.instance = instance_;
  coord::NodeVersion version;
  version.software = CANTLE_VERSION;
  version.protocol_min = rpc::kProtocolMin;
  version.protocol_max = rpc::kProtocolMax;
  registration_ =
      std::make_unique<coord::Registration>(*session_, timers_, random_, dir_->identity().incarnation, instance_);
  registration_->keep(layout_.active(dir_->identity().server), active_text(active));
  registration_->keep(layout_.version(dir_->identity().server), version_text(version));
  registration_->on_displaced([](const std::string& text) { base::log(Level::error, "displaced", {{"text", text}}); });
  registration_->start();
  write_info();
}

// nodes/info is for people and for placing, which passes over metadata servers: made once, never fought over.
void Daemon::write_info() {
  coord::NodeInfo info;
  info.role = coord::Role::mdserver;
  info.rack = config_.rack;
  info.host = host_name();
  session_->create(layout_.info(dir_->identity().server), info_text(info), coord::CreateMode::persistent,
                   [](base::Result<std::string> made) {
                     if (!made && made.error().code != Code::exists)
                       base::log(Level::info, "info-not-written", {{"error", to_string(made.error())}});
                   });
}

void Daemon::on_event(coord::Event event) {
  if (registration_) registration_->on_event(event);
  if (event == coord::Event::expired && world_) world_->node_watch().session_lost();
  if (service_) service_->on_event(event);
}

void Daemon::check_ready() {
  if (service_ && format_checked_ && registration_ && registration_->registered() && service_->ready()) life_->ready();
}

void Daemon::chores() {
  check_ready();
  if (!files_) return;
  // A whole file is the worst that a put can be; what is shared with others takes no room.
  reserve_.want(kReserveFiles * files_->largest_put());
  index_->check_readers();
}

std::string Daemon::status_line() const {
  if (!service_) return "waiting for the coordination service at " + config_.coord;
  size_t current = 0, regressed = 0;
  const auto tables = service_->status();
  for (const auto& t : tables) current += t.current ? 1 : 0, regressed += t.regressed ? 1 : 0;
  std::string line = std::to_string(tables.size()) + " tables, " + std::to_string(current) + " current";
  if (regressed != 0) line += ", " + std::to_string(regressed) + " REGRESSED";
  if (!session_->connected()) line += ", coordination service away";
  return line;
}

model::MdStatusReply Daemon::status() const {
  model::MdStatusReply s;
  s.server = dir_->identity().server;
  s.role = "mdserver";
  s.cluster = config_.cluster;
  s.cluster_uuid = cluster_;
  s.incarnation = dir_->identity().incarnation;
  s.version = CANTLE_VERSION;
  s.coord_connected = session_->connected();
  s.reserve = reserve_.held();
  s.tables = service_->status();
  return s;
}

void Daemon::fail(base::Error error) { life_->fail(std::move(error)); }

}  // namespace cantle::mdserver
