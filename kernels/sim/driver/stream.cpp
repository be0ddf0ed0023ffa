#include "stream.h"

#include <chrono>
#include <thread>

#include "settings.h"
#include "state.h"

namespace lfsim {

static constexpr uint64_t everything = ~(uint64_t)0;

Stream::Stream(Context* c, bool b, int p) : context(c), blocking(b), priority(p), id(next_id()), demand_(settings().lazy_streams ? 0 : everything) {}

std::shared_ptr<Stream> Stream::start(Context* c, bool blocking, int priority) {
  std::shared_ptr<Stream> s(new Stream(c, blocking, priority));
  std::thread([s] { s->work(); }).detach();
  return s;
}

uint64_t Stream::push(std::shared_ptr<Work> work) {
  std::lock_guard<std::mutex> lock(mu_);
  queue_.push_back(std::move(work));
  changed_.notify_all();
  return ++issued_;
}

uint64_t Stream::tail() const {
  std::lock_guard<std::mutex> lock(mu_);
  return done_ == issued_ ? 0 : issued_;
}

void Stream::wait(uint64_t ticket) {
  std::unique_lock<std::mutex> lock(mu_);
  if (demand_ < ticket) {
    demand_ = ticket;
    changed_.notify_all();
  }
  changed_.wait(lock, [&] { return done_ >= ticket; });
}

bool Stream::reached(uint64_t ticket) {
  std::lock_guard<std::mutex> lock(mu_);
  if (demand_ < ticket) {
    demand_ = ticket;
    changed_.notify_all();
  }
  return done_ >= ticket;
}

void Stream::close() {
  std::lock_guard<std::mutex> lock(mu_);
  closed_ = true;
  demand_ = everything;
  changed_.notify_all();
}

void Stream::work() {
  std::unique_lock<std::mutex> lock(mu_);
  for (;;) {
    changed_.wait(lock, [&] { return closed_ || !queue_.empty(); });
    if (queue_.empty()) return;
    if (done_ >= demand_ && !changed_.wait_for(lock, settings().patience, [&] { return done_ < demand_; })) demand_ = done_ + 1;
    std::shared_ptr<Work> w = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    if (w->always() || !sticky(context)) {
      abi::Result r = w->run();
      if (r != abi::Success) set_sticky(context, r);
    }
    w.reset();
    lock.lock();
    done_++;
    changed_.notify_all();
  }
}

}  // namespace lfsim
