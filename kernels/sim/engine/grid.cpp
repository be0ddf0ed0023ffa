// Grids on the threads of the host, a block at a time on each, and the table
// of kernels.
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "block.h"

namespace lfsim {

char race_tag;

namespace {

// Grid is a launch that blocks are taken from.
struct Grid {
  const Launch& launch;
  const uint64_t blocks;
  std::atomic<uint64_t> next{0};
  std::atomic<bool> failed{false};
  unsigned helpers = 0;  // of the pool, at work on it; under Pool::mu_
  std::mutex mu;
  Outcome outcome = Outcome::Done;
  std::string message;

  explicit Grid(const Launch& l) : launch(l), blocks((uint64_t)l.grid.x * l.grid.y * l.grid.z) {}

  bool one(Block& block) {
    uint64_t i = next++;
    if (failed || i >= blocks) return false;
    block.start(launch, at(i));
    block.run();
    if (launch.work) *launch.work += block.work;
    if (block.outcome == Outcome::Done && !launch.counts) return true;
    std::lock_guard<std::mutex> lock(mu);
    if (block.outcome == Outcome::Done) {
      block.counter->end();
      launch.counts->add(block.counter->counts);
      return true;
    }
    if (!failed.exchange(true)) {
      outcome = block.outcome;
      message = block.message;
    }
    return false;
  }

  // at returns the block that runs at turn i. Random walks with a stride that has no
  // factor in common with the number of blocks, so that each comes once.
  uint64_t at(uint64_t i) const {
    switch (options.order) {
      case Order::Forward:
        return i;
      case Order::Reverse:
        return blocks - 1 - i;
      default:
        uint64_t stride = options.seed % blocks + 1;
        while (std::__gcd(stride, blocks) != 1) stride++;
        return (uint64_t)((unsigned __int128)(i + options.seed) * stride % blocks);
    }
  }
};

// Lent is the block of a thread of the host. It is given back when the thread
// ends, for the next one, since it keeps a stack for each CUDA thread that it ever
// ran, and a stream is a thread: the number of mappings of a process is
// limited. Race mode lends nothing: a thread may end while the sanitizer still
// knows its fibers, and the lock would order blocks that nothing orders.
struct Lent {
  Block* block = nullptr;

  Lent() {
    if (!race::on) {
      std::lock_guard<std::mutex> lock(mu());
      if (!idle().empty()) {
        block = idle().back();
        idle().pop_back();
        return;
      }
    }
    block = new Block;
  }
  ~Lent() {
    if (race::on) return;
    std::lock_guard<std::mutex> lock(mu());
    idle().push_back(block);
  }

 private:
  // Never destroyed: threads end after main does.
  static std::mutex& mu() {
    static auto* m = new std::mutex;
    return *m;
  }
  static std::vector<Block*>& idle() {
    static auto* blocks = new std::vector<Block*>;
    return *blocks;
  }
};

Block& my_block() {
  static thread_local Lent mine;
  return *mine.block;
}

// Pool is the threads that help with grids of many blocks. It is never
// destroyed: work may be under way when the process ends.
class Pool {
 public:
  static Pool& get() {
    static Pool* pool = new Pool;
    return *pool;
  }

  void run(Grid& g) {
    std::unique_lock<std::mutex> lock(mu_);
    while (workers_ + 1 < options.threads) {
      std::thread(&Pool::work, this).detach();
      workers_++;
    }
    grids_.push_back(&g);
    lock.unlock();
    ready_.notify_all();
    while (g.one(my_block())) {
    }
    lock.lock();
    grids_.erase(std::find(grids_.begin(), grids_.end(), &g));
    idle_.wait(lock, [&] { return g.helpers == 0; });
  }

 private:
  void work() {
    prepare_thread();
    std::unique_lock<std::mutex> lock(mu_);
    for (;;) {
      Grid* g = nullptr;
      for (Grid* x : grids_) {
        if (!x->failed && x->next < x->blocks) g = x;
      }
      if (!g) {
        ready_.wait(lock);
        continue;
      }
      g->helpers++;
      lock.unlock();
      while (g->one(my_block())) {
      }
      lock.lock();
      g->helpers--;
      idle_.notify_all();
    }
  }

  std::mutex mu_;
  std::condition_variable ready_, idle_;
  std::deque<Grid*> grids_;
  int workers_ = 0;
};

// run_unordered runs every block in its own thread. It starts all of them before it joins
// one, so that the race sanitizer sees no order between blocks.
void run_unordered(Grid& g) {
  std::vector<std::thread> threads;
  std::atomic<uint64_t> arrived{0};
  for (uint64_t i = 0; i < g.blocks; i++) {
    threads.emplace_back([&] {
      prepare_thread();
      arrived++;
      while (arrived < g.blocks) std::this_thread::yield();
      g.one(my_block());
      my_block().discard();
    });
  }
  for (auto& t : threads) t.join();
  race::acquire(&race_tag);
}

// Starting helpers is not worth it below this many threads of a grid.
constexpr uint64_t few = 2048;

std::unordered_map<std::string, const KernelDef*>& kernels() {
  static auto* table = new std::unordered_map<std::string, const KernelDef*>;
  return *table;
}

}  // namespace

Outcome run(const Launch& launch, std::string* message) {
  prepare_thread();
  Grid g(launch);
  if (race::on) {
    run_unordered(g);
  } else if (options.threads > 1 && g.blocks > 1 && g.blocks * launch.block.x * launch.block.y * launch.block.z > few) {
    Pool::get().run(g);
  } else {
    while (g.one(my_block())) {
    }
  }
  *message = g.message;
  return g.outcome;
}

void register_kernel(const KernelDef* def) { kernels()[def->name] = def; }

const KernelDef* find_kernel(const std::string& name) {
  auto it = kernels().find(name);
  return it == kernels().end() ? nullptr : it->second;
}

std::vector<std::string> kernel_names() {
  std::vector<std::string> names;
  for (auto& k : kernels()) names.push_back(k.first);
  return names;
}

}  // namespace lfsim
