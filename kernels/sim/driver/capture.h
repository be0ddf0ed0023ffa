// Stream capture: what is given to a stream becomes nodes of a graph, and an
// event that is recorded there takes other streams along.
#pragma once
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "graph.h"

namespace lfsim {

struct Capture {
  std::shared_ptr<Graph> graph = std::make_shared<Graph>();
  std::shared_ptr<Stream> origin;
  abi::CaptureMode mode{};
  std::thread::id thread;
  bool spoiled = false;
  uint64_t id = 0;
  // The nodes that the next work of each stream must wait for.
  std::map<std::shared_ptr<Stream>, std::vector<Node*>> frontier;

  Node* add(const std::shared_ptr<Stream>& stream, std::shared_ptr<Work> work);

  // join makes a stream wait for nodes, taking it into the capture.
  void join(const std::shared_ptr<Stream>& stream, const std::vector<Node*>& nodes);

  // joined reports whether the origin finally waits for all work of the other streams.
  bool joined() const;
};

}  // namespace lfsim
