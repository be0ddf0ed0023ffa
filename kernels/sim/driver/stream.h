// Streams are queues with their own threads, so that work is really
// asynchronous. Events are positions in streams.
#pragma once
#include <stdint.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>

#include "abi.h"

namespace lfsim {

struct Context;
struct Capture;

// Work is an operation of a stream, or a node of a graph.
struct Work {
  virtual ~Work() = default;
  virtual abi::NodeType type() const { return abi::NodeEmpty; }
  virtual abi::Result run() = 0;
  // marks work that runs even after an error, since it reports the position of the
  // stream to others.
  virtual bool always() const { return false; }
};

class Stream : public std::enable_shared_from_this<Stream> {
 public:
  static std::shared_ptr<Stream> start(Context* context, bool blocking, int priority);

  Context* const context;
  const bool blocking;  // waits for the default stream and is waited for by it
  const int priority;
  const uint64_t id;

  // Both under the driver's lock.
  std::shared_ptr<Capture> capture;
  uint64_t seen_default = 0;  // ticket of the default stream that it has waited for

  // push returns a ticket: the work is done once done() has reached it.
  uint64_t push(std::shared_ptr<Work> work);
  uint64_t tail() const;

  // wait blocks until the ticket is done, reached only asks. Both make a lazy
  // stream go on up to there.
  void wait(uint64_t ticket);
  bool reached(uint64_t ticket);

  // close lets the thread end after the last work.
  void close();

 private:
  Stream(Context* c, bool blocking, int priority);
  void work();

  mutable std::mutex mu_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Work>> queue_;
  uint64_t issued_ = 0, done_ = 0;
  uint64_t demand_;  // tickets above it wait for somebody to ask
  bool closed_ = false;
};

// Mark is a place in a stream, and when it was passed.
struct Mark {
  std::shared_ptr<Stream> stream;
  uint64_t ticket = 0;
  std::atomic<double> seconds{0};
};

// Waits for another stream, on a stream.
struct WaitWork : Work {
  std::shared_ptr<Stream> stream;
  uint64_t ticket;
  WaitWork(std::shared_ptr<Stream> s, uint64_t t) : stream(std::move(s)), ticket(t) {}
  abi::NodeType type() const override { return abi::NodeWaitEvent; }
  bool always() const override { return true; }
  abi::Result run() override {
    stream->wait(ticket);
    return abi::Success;
  }
};

struct EmptyWork : Work {
  bool always() const override { return true; }
  abi::Result run() override { return abi::Success; }
};

struct HostWork : Work {
  void (*fn)(void*);
  void* data;
  HostWork(void (*f)(void*), void* d) : fn(f), data(d) {}
  abi::NodeType type() const override { return abi::NodeHost; }
  abi::Result run() override {
    fn(data);
    return abi::Success;
  }
};

}  // namespace lfsim
