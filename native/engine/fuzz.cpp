// engine_fuzz JOBS SEED runs random streams through the engine, in a build with sanitizers.
//
// The streams have small id universes, caches that overflow, repeats within samples, empty and refused batches,
// flushes, snapshots and damaged snapshots. The Python tests check the results; this checks that nothing goes wrong
// underneath.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "common/mix64.h"
#include "engine/batch/admission.h"
#include "engine/engine.h"
#include "engine/joint/transport.h"
#include "engine/plan/initial_rows.h"
#include "engine/sync/fuzz_ways.h"
#include "wire/packed_column.h"
#include "wire/plan_writer.h"

namespace {

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() { return esd::mix64(state_ += 0x9e3779b97f4a7c15ULL); }
  std::uint64_t below(std::uint64_t bound) { return next() % bound; }

 private:
  std::uint64_t state_;
};

std::uint64_t draw_value(Random& random, std::uint64_t universe) {
  switch (random.below(20)) {
    case 0: return 0;
    case 1: return ~std::uint64_t{0};
    case 2: return esd::mix64(random.below(universe));
    default: return random.below(random.below(universe) + 1);
  }
}

// Of one of the tables, where there are several.
std::uint64_t draw_id(Random& random, std::uint64_t universe, std::size_t tables) {
  const std::uint64_t value = draw_value(random, universe);
  return tables == 0 ? value : (value & 0xffffff) | random.below(tables) << 56;
}

void check_joint(const esd::Engine& engine, Random& random, const std::vector<std::int32_t>& link_costs,
                 std::size_t samples) {
  std::vector<std::uint32_t> lookahead;  // batches, at the end of what is prepared
  while (samples > 1 && random.below(3) == 0) {
    lookahead.push_back(static_cast<std::uint32_t>(random.below(samples)));
    samples -= lookahead.back();
  }
  std::vector<std::int32_t> capacities(engine.workers());
  for (std::size_t i = 0; i < samples; ++i) ++capacities[random.below(capacities.size())];
  const auto no_limit = std::chrono::steady_clock::time_point::max();
  const std::vector<std::int32_t> least(capacities.size(), 0),
      most(capacities.size(), static_cast<std::int32_t>(samples));
  const std::vector<double> sample_costs(capacities.size(), static_cast<double>(random.below(1000)));
  const std::vector<double> fixed_costs(capacities.size(), static_cast<double>(random.below(1000)));
  const esd::WorkloadLimits limits{least.data(), most.data(), sample_costs.data(), fixed_costs.data()};
  engine.joint({link_costs.data(),
                capacities.data(),
                engine.workers(),
                random.next(),
                2,
                3,
                lookahead,
                no_limit,
                {9, 9},
                random.below(2) ? &limits : nullptr});
}

// Transportation problems as the joint search solves them, each from the prices of the one before. In this build every
// answer proves itself (engine/joint/transport.h).
template <unsigned Width>
void solve_transports(Random& random) {
  esd::Transport<Width> transport;
  std::int32_t prices[Width] = {};
  std::vector<int> assignment;
  for (int problem = 0; problem < 4; ++problem) {
    const std::uint64_t limit = std::uint64_t{1} << random.below(29);  // the largest that a search may have, among them
    std::vector<std::int32_t> costs((1 + random.below(4 * Width)) * Width);
    for (std::int32_t& cost : costs) cost = static_cast<std::int32_t>(random.below(random.below(limit) + 1));
    for (std::int32_t& cost : costs) cost -= random.below(8) ? 0 : static_cast<std::int32_t>(random.below(limit) / 3);
    int capacities[Width] = {};
    const std::uint64_t open = 1 + random.below(Width);
    for (std::size_t i = 0; i < costs.size() / Width; ++i) ++capacities[random.below(open) * 7 % Width];
    transport.solve(costs, capacities, prices, assignment);
  }
}

// Columns of a message, some of them damaged: they are read, or refused.
void check_columns(std::string message, Random& random) {
  message[random.below(message.size())] ^= static_cast<char>(random.below(256));
  for (int i = 0; i < 20; ++i) {
    const std::size_t begin = random.below(message.size());
    const std::size_t size = random.below(message.size() - begin + 1);
    const std::vector<std::uint8_t> bytes(message.begin() + static_cast<std::ptrdiff_t>(begin),
                                          message.begin() + static_cast<std::ptrdiff_t>(begin + size));
    try {
      const esd::wire::UnpackedColumn column(bytes.data(), bytes.size());
      if (column.count() > 8 * bytes.size()) continue;  // as esd.native.wire does
      std::vector<std::uint32_t> values(column.count());
      column.read(values.data());
    } catch (const std::invalid_argument&) {
    }
  }
}

void check_messages(const esd::IterationPlans& plans, std::size_t samples, Random& random) {
  const std::vector<float> dense(2 * samples), labels(2 * samples), weights(samples);
  const std::vector<std::uint64_t> groups(samples), references(samples);
  const std::vector<std::uint32_t> lengths(samples * plans.fields), chunks(samples);
  const std::vector<std::uint32_t> roles(plans.workers.size(), 3);
  const std::size_t lists = random.below(samples + 1);
  const esd::wire::PlanContext context{1,
                                       samples - lists,
                                       dense.data(),
                                       2,
                                       labels.data(),
                                       1 + random.below(2),
                                       random.below(2) ? lengths.data() : nullptr,
                                       random.below(2) ? weights.data() : nullptr,
                                       random.below(2) ? groups.data() : nullptr,
                                       random.below(2) ? references.data() : nullptr,
                                       chunks.data(),
                                       random.below(2) ? roles.data() : nullptr};
  for (std::size_t worker = 0; worker < plans.workers.size(); ++worker) {
    std::string message = esd::wire::plan_message(plans, plans.arena, worker, context);
    if (random.below(8) == 0) check_columns(std::move(message), random);
    std::vector<std::uint64_t> values(random.below(30)), again(values.size());
    for (std::uint64_t& value : values) value = random.next() >> random.below(64);
    std::string packed;
    esd::wire::PackedColumn<std::uint64_t>(values.data(), values.size()).append_to(packed);
    const std::vector<std::uint8_t> bytes(packed.begin(), packed.end());
    esd::wire::UnpackedColumn(bytes.data(), bytes.size()).read(again.data());
    if (values != again) {
      std::puts("a column changed on its way");
      std::exit(1);
    }
  }
}

// Some ids of some later iteration, which may be one that is too far ahead.
void tell_reads(esd::Engine& engine, Random& random, std::uint64_t universe, std::size_t tables) {
  std::vector<std::uint64_t> ids(random.below(30));
  for (std::uint64_t& id : ids) id = draw_id(random, universe, tables);
  try {
    engine.look_ahead(ids.data(), ids.size(), engine.iteration() + static_cast<std::uint32_t>(random.below(33)));
  } catch (const std::invalid_argument&) {
  }
}

// Samples with one id of each field, or with lists of them.
struct Samples {
  Samples(Random& random, std::uint64_t universe, std::size_t samples, std::size_t fields, std::size_t tables)
      : samples(samples), fields(fields), lists(random.below(2) == 0), lengths(samples * fields, 1) {
    if (lists) {
      for (std::uint32_t& length : lengths) length = static_cast<std::uint32_t>(random.below(4));
    }
    ids.resize(std::accumulate(lengths.begin(), lengths.end(), std::size_t{0}));
    for (std::uint64_t& id : ids) id = draw_id(random, universe, tables);
  }

  esd::SampleIds given() const { return {ids.data(), samples, fields, lists ? lengths.data() : nullptr}; }

  std::size_t samples, fields;
  bool lists;
  std::vector<std::uint32_t> lengths;
  std::vector<std::uint64_t> ids;
};

// The plans of admitted ids get the other ids, so that each sample has all of its ids again.
void add_others(const esd::AdmittedIds& divided, std::size_t ids, esd::IterationPlans& plans) {
  esd::add_initial_rows(divided.initial, plans);
  for (const esd::WorkerPlan& plan : plans.workers) ids -= plan.inverse.size;
  if (ids == 0) return;
  std::puts("the plans lack ids of their samples");
  std::exit(1);
}

// Of samples that workers in `present` train; with an admission, of their admitted ids.
void run_iteration(esd::Engine& engine, Random& random, std::uint64_t universe, std::size_t samples, std::size_t fields,
                   std::size_t tables, bool looks_ahead, const std::vector<std::int32_t>& present,
                   esd::Admission* admission) {
  const Samples drawn(random, universe, samples, fields, tables);
  esd::AdmittedIds divided;
  if (admission != nullptr) {
    admission->expect(drawn.given(), divided);
    admission->count(drawn.given(), divided);
    engine.prepare(esd::SampleIds{divided.ids.data(), samples, fields, divided.lengths.data()});
  } else if (random.below(2) == 0) {
    engine.prepare(drawn.given());
  } else {
    esd::BatchIds shared;
    esd::IdFinder().find(drawn.given(), shared);
    engine.prepare(shared);
  }

  const std::vector<std::int32_t> link_costs(engine.workers(), static_cast<std::int32_t>(random.below(1000)));
  std::vector<std::int32_t> scores(samples * engine.workers());
  engine.costs(link_costs.data(), scores.data());
  for (const esd::AtHand at_hand : {esd::AtHand::kLatest, esd::AtHand::kTrained}) {
    engine.affinity(at_hand, scores.data());
    if (fields > 0) engine.affinity(at_hand, {static_cast<std::uint32_t>(random.below(fields))}, scores.data());
  }
  if (random.below(3) == 0) engine.training_shares(scores.data());
  check_joint(engine, random, link_costs, samples);
  if (random.below(10) == 0) engine.flush();

  std::vector<std::int32_t> assignment(samples);
  for (std::int32_t& worker : assignment) worker = present[random.below(present.size())];
  if (samples > 0 && random.below(50) == 0) assignment[0] = static_cast<std::int32_t>(engine.workers());
  try {
    std::vector<std::int64_t> limits(engine.workers());
    for (std::int64_t& limit : limits) limit = static_cast<std::int64_t>(random.below(20)) - 1;
    esd::IterationPlans plans = engine.commit(assignment.data(), {}, looks_ahead ? limits.data() : nullptr);
    if (admission != nullptr) add_others(divided, drawn.ids.size(), plans);
    check_messages(plans, samples, random);
  } catch (const esd::CacheTooSmall&) {
  } catch (const std::invalid_argument&) {
  }
}

void use_snapshot(esd::Engine& engine, Random& random) {
  std::string bytes = engine.snapshot();
  engine.restore(bytes.data(), bytes.size(), true);
  bytes[random.below(bytes.size())] ^= static_cast<char>(1 + random.below(255));
  bytes.resize(random.below(2) ? bytes.size() : random.below(bytes.size()));
  try {
    engine.restore(bytes.data(), bytes.size(), true);
    std::puts("a damaged snapshot was restored");
    std::exit(1);
  } catch (const std::invalid_argument&) {
  }
}

// An iteration and a flush that were taken back come again as they were.
void use_savepoint(esd::Engine& engine, Random& random, std::uint64_t universe, std::size_t samples, std::size_t fields,
                   std::size_t tables, const esd::DrawnWay& drawn) {
  const esd::Engine::Savepoint before = engine.savepoint();
  const auto run = [&](Random& draws) {
    engine.roll_back(before);
    run_iteration(engine, draws, universe, samples, fields, tables, drawn.looks_ahead, drawn.present, nullptr);
    const esd::FlushPlans flush = engine.flush();
    return std::pair(std::vector(flush.arena.u64.begin(), flush.arena.u64.end()), engine.savepoint().state);
  };
  Random again = random;
  if (run(again) == run(random)) return;
  std::puts("an iteration that was taken back has left something");
  std::exit(1);
}

void run_job(Random& random) {
  const char* policies[] = {"emark", "emark-size", "reuse", "lru", "lfu", "static"};
  const std::size_t fields = random.below(6), samples = random.below(20);
  std::vector<std::uint32_t> cache_rows(1 + random.below(random.below(3) ? 8 : esd::kMaxWorkers));
  for (std::uint32_t& rows : cache_rows) rows = static_cast<std::uint32_t>(1 + random.below(8 * samples * fields + 2));
  std::vector<std::uint32_t> sizes(random.below(2) ? 1 + random.below(random.below(8) ? 16 : 256) : 0);
  for (std::uint32_t& size : sizes) size = static_cast<std::uint32_t>(1 + random.below(9));
  const std::uint64_t max_rows = random.below(2) ? 0 : samples * fields + 1 + random.below(40);
  const esd::DrawnWay drawn = esd::draw_way(random, cache_rows, std::max<std::size_t>(sizes.size(), 1));
  std::vector<std::uint32_t> row_ttls(random.below(3) ? 0 : std::max<std::size_t>(sizes.size(), 1));
  for (std::uint32_t& ttl : row_ttls) ttl = static_cast<std::uint32_t>(random.below(12));
  const bool forgets = max_rows > 0 || std::any_of(row_ttls.begin(), row_ttls.end(), [](auto ttl) { return ttl > 0; });
  const auto window = static_cast<std::uint32_t>(forgets ? 0 : random.below(4));
  esd::Engine engine(
      {cache_rows, policies[random.below(6)], sizes, max_rows, row_ttls, {}, {}, window, random.below(30)}, *drawn.way);
  std::unique_ptr<esd::Admission> admission;
  if (random.below(4) == 0) {
    std::vector<std::uint32_t> afters(std::max<std::size_t>(sizes.size(), 1), 2);
    for (std::uint32_t& after : afters) after += static_cast<std::uint32_t>(random.below(random.below(2) ? 3 : 20));
    admission = std::make_unique<esd::Admission>(afters, random.next());
  }
  const std::uint64_t universe = 1 + random.below(400);
  for (int iteration = 0; iteration < 130; ++iteration) {
    if (drawn.looks_ahead) tell_reads(engine, random, universe, sizes.size());
    run_iteration(engine, random, universe, random.below(4) ? samples : random.below(samples + 1), fields, sizes.size(),
                  drawn.looks_ahead, drawn.present, admission.get());
    if (random.below(20) == 0) use_savepoint(engine, random, universe, samples, fields, sizes.size(), drawn);
    if (random.below(40) != 0) continue;
    engine.flush();
    use_snapshot(engine, random);
  }
}

// Which samples are hot, over batches of any length.
void judge_samples(Random& random) {
  std::vector<std::uint32_t> sizes(random.below(2) ? 1 + random.below(random.below(8) ? 16 : 256) : 0);
  for (std::uint32_t& size : sizes) size = static_cast<std::uint32_t>(1 + random.below(9));
  esd::HotSamples hot_samples = esd::draw_hot_samples(random, sizes);
  const std::uint64_t universe = 1 + random.below(400);
  const std::size_t fields = random.below(6);
  std::vector<std::uint8_t> hot(20);
  for (int iteration = 0; iteration < 130; ++iteration) {
    const Samples drawn(random, universe, random.below(hot.size() + 1), fields, sizes.size());
    hot_samples.judge(drawn.given(), hot.data());
    hot_samples.train(drawn.given());
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: %s JOBS SEED\n", argv[0]);
    return 2;
  }
  const int jobs = std::atoi(argv[1]);
  Random random(std::strtoull(argv[2], nullptr, 10));
  for (int job = 0; job < jobs; ++job) {
    run_job(random);
    solve_transports<16>(random);
    solve_transports<32>(random);
    solve_transports<esd::kMaxWorkers>(random);
    judge_samples(random);
  }
  std::printf("%d jobs\n", jobs);
}
